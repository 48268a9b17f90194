locals {
  dimensions = {
    read  = { dimension = "ReadCapacityUnits", metric = "DynamoDBReadCapacityUtilization", units = var.capacity.read }
    write = { dimension = "WriteCapacityUnits", metric = "DynamoDBWriteCapacityUtilization", units = var.capacity.write }
  }
  scaled = local.provisioned ? merge(
    { for name, one in local.dimensions : name => merge(one, { resource = "table/${var.name}", kind = "table" }) },
    merge([
      for index in keys(local.indexes) : {
        for name, one in local.dimensions : "${index} ${name}" => merge(one, { resource = "table/${var.name}/index/${index}", kind = "index" })
      }
    ]...),
  ) : {}
}

resource "aws_appautoscaling_target" "this" {
  for_each           = local.scaled
  service_namespace  = "dynamodb"
  resource_id        = each.value.resource
  scalable_dimension = "dynamodb:${each.value.kind}:${each.value.dimension}"
  min_capacity       = each.value.units.min
  max_capacity       = each.value.units.max

  depends_on = [aws_dynamodb_table.this]
}

resource "aws_appautoscaling_policy" "this" {
  for_each           = aws_appautoscaling_target.this
  name               = "${each.value.scalable_dimension} of ${each.value.resource_id}"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = each.value.service_namespace
  resource_id        = each.value.resource_id
  scalable_dimension = each.value.scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value = local.scaled[each.key].units.target

    predefined_metric_specification {
      predefined_metric_type = local.scaled[each.key].metric
    }
  }
}
