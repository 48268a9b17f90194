mock_provider "aws" {
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\": \"2012-10-17\", \"Statement\": []}" }
  }
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_resource "aws_iam_policy" {
    defaults = { arn = "arn:aws:iam::123456789012:policy/durastore" }
  }
}

# Not applied to an emulator: moto has no tags for autoscaling, and without them Terraform's provider does not go on.
run "provisioned" {
  module {
    source = "./examples/provisioned"
  }

  assert {
    condition     = output.store_url == "dynamodb://agents-steady?region=eu-central-1"
    error_message = "the example passes the URL on"
  }
}
