locals {
  # Exactly the actions that the backend calls, in durastore_dynamodb.ACTIONS and OPTIONAL_ACTIONS; a test counts them. A transaction
  # needs those of the writes in it.
  actions = {
    reader = [
      "dynamodb:BatchGetItem",
      "dynamodb:DescribeTable",
      "dynamodb:DescribeTimeToLive",
      "dynamodb:GetItem",
      "dynamodb:Query",
    ]
    writer = [
      "dynamodb:BatchGetItem",
      "dynamodb:BatchWriteItem",
      "dynamodb:ConditionCheckItem",
      "dynamodb:DeleteItem",
      "dynamodb:DescribeTable",
      "dynamodb:DescribeTimeToLive",
      "dynamodb:GetItem",
      "dynamodb:Query",
      "dynamodb:UpdateItem",
    ]
  }
  key_actions = {
    reader = ["kms:Decrypt", "kms:DescribeKey"]
    writer = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
  }
  resources = concat(
    [aws_dynamodb_table.this.arn],
    [for index in keys(local.indexes) : "${aws_dynamodb_table.this.arn}/index/${index}"],
  )
  attachments = merge(
    { for arn in var.principals.readers : "reader ${arn}" => { arn = arn, policy = "reader" } },
    { for arn in var.principals.writers : "writer ${arn}" => { arn = arn, policy = "writer" } },
  )
  role_attachments = { for key, one in local.attachments : key => one if strcontains(one.arn, ":role/") }
  user_attachments = { for key, one in local.attachments : key => one if strcontains(one.arn, ":user/") }
}

data "aws_region" "current" {}

data "aws_iam_policy_document" "this" {
  for_each = local.actions

  statement {
    sid       = "Table"
    actions   = each.value
    resources = local.resources
  }

  dynamic "statement" {
    for_each = var.encryption_key == null ? [] : [var.encryption_key]
    content {
      sid       = "Key"
      actions   = local.key_actions[each.key]
      resources = [statement.value]

      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["dynamodb.${data.aws_region.current.name}.amazonaws.com"]
      }
    }
  }
}

resource "aws_iam_policy" "this" {
  for_each    = local.actions
  name        = "durastore-${var.name}-${each.key}"
  description = each.key == "reader" ? "Look at durastore's runs and records" : "Claim, commit and sweep in durastore's table"
  policy      = data.aws_iam_policy_document.this[each.key].json
  tags        = var.labels
}

resource "aws_iam_role_policy_attachment" "principal" {
  for_each   = local.role_attachments
  role       = reverse(split("/", each.value.arn))[0]
  policy_arn = aws_iam_policy.this[each.value.policy].arn
}

resource "aws_iam_user_policy_attachment" "principal" {
  for_each   = local.user_attachments
  user       = reverse(split("/", each.value.arn))[0]
  policy_arn = aws_iam_policy.this[each.value.policy].arn
}

resource "aws_iam_role" "client" {
  count              = var.role.create ? 1 : 0
  name               = substr("durastore-${var.name}", 0, 64)
  description        = "Clients of durastore's table ${var.name}"
  assume_role_policy = var.role.trust_policy
  tags               = var.labels
}

resource "aws_iam_role_policy_attachment" "client" {
  count      = var.role.create ? 1 : 0
  role       = aws_iam_role.client[0].name
  policy_arn = aws_iam_policy.this["writer"].arn
}
