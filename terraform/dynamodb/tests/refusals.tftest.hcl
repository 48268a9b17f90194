# What the variables refuse; a test outside holds that no validation goes without. Runs of many values save time.

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
  name = "durastore"
}

run "values_1" {
  command = plan

  variables {
    # action by its name
    alarms = { actions = ["on-call"] }
    # retention of no day
    backup = { retention_days = 0 }
    # capacity by the day
    capacity = { mode = "DAILY" }
    # key by its alias
    encryption_key = "alias/my-key"
    # label of Amazon's
    labels = { "aws:team" = "agents" }
    # name with a blank
    name = "my store"
    # everybody as a writer
    principals = { writers = ["*"] }
    # role that nobody may assume
    role = { create = true }
  }

  expect_failures = [
    var.alarms,
    var.backup,
    var.capacity,
    var.encryption_key,
    var.labels,
    var.name,
    var.principals,
    var.role,
  ]
}

run "values_2" {
  command = plan

  variables {
    # retention of a quarter
    backup = { retention_days = 90 }
    # less at most than at least
    capacity = { write = { min = 10, max = 5 } }
    # name of two characters
    name = "ab"
    # an account as a reader
    principals = { readers = ["arn:aws:iam::123456789012:root"] }
    # trust that is no policy
    role = { create = true, trust_policy = "ecs-tasks.amazonaws.com" }
  }

  expect_failures = [
    var.backup,
    var.capacity,
    var.name,
    var.principals,
    var.role,
  ]
}

run "values_3" {
  command = plan

  variables {
    # retention of half a day
    backup = { retention_days = 1.5 }
    # no headroom to scale in
    capacity = { read = { target = 100 } }
  }

  expect_failures = [var.backup, var.capacity]
}
