# A key of one's own, a role for tasks on ECS, operators who may look, and alarms that reach somebody.

provider "aws" {
  region = "eu-central-1"
}

resource "aws_kms_key" "store" {
  description         = "durastore's table"
  enable_key_rotation = true
}

resource "aws_iam_role" "operators" {
  name               = "operators"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

data "aws_iam_policy_document" "tasks" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }
  }
}

data "aws_caller_identity" "current" {}

module "store" {
  source = "../.."

  name           = "agents-production"
  encryption_key = aws_kms_key.store.arn

  alarms = { actions = ["arn:aws:sns:eu-central-1:${data.aws_caller_identity.current.account_id}:on-call"] }
  backup = { retention_days = 35 }
  labels = { team = "agents", environment = "production" }

  principals = {
    readers = ["arn:aws:iam::${data.aws_caller_identity.current.account_id}:role/${aws_iam_role.operators.name}"]
  }

  role = {
    create       = true
    trust_policy = data.aws_iam_policy_document.tasks.json
  }
}

output "role_arn" {
  description = "The role for the tasks."
  value       = module.store.role_arn
}

output "store_url" {
  description = "What durastore.open takes."
  value       = module.store.store_url
}
