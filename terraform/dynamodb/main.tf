locals {
  provisioned = var.capacity.mode == "PROVISIONED"
}

resource "aws_dynamodb_table" "this" {
  name                        = var.name
  billing_mode                = var.capacity.mode
  hash_key                    = local.hash_key
  range_key                   = local.range_key
  read_capacity               = local.provisioned ? var.capacity.read.min : null
  write_capacity              = local.provisioned ? var.capacity.write.min : null
  deletion_protection_enabled = var.deletion_protection
  tags                        = var.labels

  dynamic "attribute" {
    for_each = local.attributes
    content {
      name = attribute.key
      type = attribute.value
    }
  }

  dynamic "global_secondary_index" {
    for_each = local.indexes
    content {
      name            = global_secondary_index.key
      hash_key        = global_secondary_index.value.hash_key
      range_key       = global_secondary_index.value.range_key
      projection_type = "KEYS_ONLY"
      read_capacity   = local.provisioned ? var.capacity.read.min : null
      write_capacity  = local.provisioned ? var.capacity.write.min : null
    }
  }

  point_in_time_recovery {
    enabled                 = var.backup.enabled
    recovery_period_in_days = var.backup.enabled ? var.backup.retention_days : null
  }

  # Without this block it is encrypted with a key that AWS owns.
  dynamic "server_side_encryption" {
    for_each = var.encryption_key == null ? [] : [var.encryption_key]
    content {
      enabled     = true
      kms_key_arn = server_side_encryption.value
    }
  }

  ttl {
    attribute_name = local.ttl_attribute
    enabled        = true
  }

  lifecycle {
    # Autoscaling moves these.
    ignore_changes = [read_capacity, write_capacity]
  }
}
