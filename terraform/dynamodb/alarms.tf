locals {
  throttling = { reads = "ReadThrottleEvents", writes = "WriteThrottleEvents" }

  # DynamoDB counts what an index throttles under the index, not under its table; and such an index throttles the table's writes.
  throttled = var.alarms.enabled ? merge(
    { for kind, metric in local.throttling : kind => { metric = metric, index = {} } },
    merge([
      for index in keys(local.indexes) : {
        for kind, metric in local.throttling : "${kind} of ${index}" => { metric = metric, index = { GlobalSecondaryIndexName = index } }
      }
    ]...),
  ) : {}
  operations = ["BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "TransactWriteItems", "UpdateItem"]
}

resource "aws_cloudwatch_metric_alarm" "throttled" {
  for_each            = local.throttled
  alarm_name          = "${var.name} throttled ${each.key}"
  alarm_description   = "DynamoDB throttles ${each.key} of durastore's table ${var.name}: clients retry with jitter, and wait."
  namespace           = "AWS/DynamoDB"
  metric_name         = each.value.metric
  dimensions          = merge({ TableName = aws_dynamodb_table.this.name }, each.value.index)
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarms.actions
  ok_actions          = var.alarms.actions
  tags                = var.labels
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  count               = var.alarms.enabled ? 1 : 0
  alarm_name          = "${var.name} errors"
  alarm_description   = "DynamoDB fails requests to durastore's table ${var.name}: clients retry until their deadline."
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarms.actions
  ok_actions          = var.alarms.actions
  tags                = var.labels

  metric_query {
    id          = "total"
    expression  = "SUM(METRICS())"
    label       = "errors"
    return_data = true
  }

  # DynamoDB counts its errors by operation.
  dynamic "metric_query" {
    for_each = local.operations
    content {
      id = lower(metric_query.value)
      metric {
        namespace   = "AWS/DynamoDB"
        metric_name = "SystemErrors"
        dimensions  = { TableName = aws_dynamodb_table.this.name, Operation = metric_query.value }
        period      = 60
        stat        = "Sum"
      }
    }
  }
}
