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

variables {
  name     = "durastore"
  capacity = { mode = "PROVISIONED", write = { min = 10, max = 400, target = 50 } }
}

run "scales" {
  assert {
    condition     = aws_dynamodb_table.this.read_capacity == 5 && aws_dynamodb_table.this.write_capacity == 10
    error_message = "it begins with the minimum"
  }
  assert {
    condition     = aws_appautoscaling_target.this["write"].max_capacity == 400 && aws_appautoscaling_policy.this["write"].target_tracking_scaling_policy_configuration[0].target_value == 50
    error_message = "writes scale as they are told to"
  }
  assert {
    condition     = aws_appautoscaling_target.this["read"].scalable_dimension == "dynamodb:table:ReadCapacityUnits" && aws_appautoscaling_policy.this["read"].target_tracking_scaling_policy_configuration[0].predefined_metric_specification[0].predefined_metric_type == "DynamoDBReadCapacityUtilization"
    error_message = "reads scale by their own utilisation"
  }
}
