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

run "safe_by_default" {
  assert {
    condition     = aws_dynamodb_table.this.deletion_protection_enabled
    error_message = "deletion protection is on by default"
  }
  assert {
    condition     = aws_dynamodb_table.this.point_in_time_recovery[0].enabled && aws_dynamodb_table.this.point_in_time_recovery[0].recovery_period_in_days == 7
    error_message = "point-in-time recovery of a week by default"
  }
  assert {
    condition     = aws_dynamodb_table.this.billing_mode == "PAY_PER_REQUEST" && length(aws_appautoscaling_target.this) == 0
    error_message = "on demand by default"
  }
  assert {
    condition     = aws_dynamodb_table.this.ttl[0].enabled
    error_message = "records have a time to live"
  }
  assert {
    condition     = length(aws_cloudwatch_metric_alarm.throttled) == 6 && length(aws_cloudwatch_metric_alarm.errors) == 1
    error_message = "alarms for throttling and errors by default"
  }
  assert {
    condition     = [for name in ["by_run", "by_todo"] : aws_cloudwatch_metric_alarm.throttled["writes of ${name}"].dimensions["GlobalSecondaryIndexName"]] == ["by_run", "by_todo"]
    error_message = "each index has alarms of its own: DynamoDB does not count its throttling under the table"
  }
  assert {
    condition     = alltrue([for kind in ["reads", "writes"] : join(",", keys(aws_cloudwatch_metric_alarm.throttled[kind].dimensions)) == "TableName"])
    error_message = "and so has the table"
  }
  assert {
    condition     = length(aws_iam_policy.this) == 2 && length(aws_iam_role.client) == 0 && output.role_arn == null
    error_message = "two policies, and a role by option only"
  }
  assert {
    condition     = output.store_url == "dynamodb://durastore?region=eu-central-1"
    error_message = "store_url names table and region"
  }
}

run "without_extras" {
  variables {
    alarms              = { enabled = false }
    backup              = { enabled = false }
    deletion_protection = false
  }

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.throttled) + length(aws_cloudwatch_metric_alarm.errors) == 0
    error_message = "what is switched off is not made"
  }
  assert {
    condition     = !aws_dynamodb_table.this.deletion_protection_enabled && !aws_dynamodb_table.this.point_in_time_recovery[0].enabled
    error_message = "protection and recovery can be switched off"
  }
}

run "principals_and_key" {
  variables {
    encryption_key = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    principals = {
      readers = ["arn:aws:iam::123456789012:role/teams/operators"]
      writers = ["arn:aws:iam::123456789012:user/ann"]
    }
    role = { create = true, trust_policy = "{\"Version\": \"2012-10-17\", \"Statement\": []}" }
  }

  assert {
    condition     = [for one in aws_iam_role_policy_attachment.principal : one.role] == ["operators"] && [for one in aws_iam_user_policy_attachment.principal : one.user] == ["ann"]
    error_message = "policies are attached to roles and users by their names"
  }
  assert {
    condition     = aws_dynamodb_table.this.server_side_encryption[0].kms_key_arn == var.encryption_key
    error_message = "the given key encrypts"
  }
  assert {
    condition     = length(aws_iam_role.client) == 1 && length(aws_iam_role_policy_attachment.client) == 1
    error_message = "the role has the writers' policy"
  }
}
