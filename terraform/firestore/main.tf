locals {
  # What the backend's queries and its sweep need, in durastore_firestore.listing; a test compares the two.
  composite_indexes = {
    records = [["run_id", "key"], ["state", "key"]]
  }
  indexed_fields = {
    records = ["blob", "key", "run_id", "state", "sweep_after"]
    runs    = ["blob"]
    blobs   = ["check_at"]
    chunks  = []
  }
  ttl_fields = {
    records = "expire_at"
  }

  delete_protection      = { true = "DELETE_PROTECTION_ENABLED", false = "DELETE_PROTECTION_DISABLED" }
  point_in_time_recovery = { true = "POINT_IN_TIME_RECOVERY_ENABLED", false = "POINT_IN_TIME_RECOVERY_DISABLED" }

  fields = merge(flatten([
    for collection, fields in local.indexed_fields : [
      for field in concat(["*"], fields) : {
        "${collection}/${field}" = { collection = collection, field = field, indexed = field != "*" }
      }
    ]
  ])...)
  indexes = merge(flatten([
    for collection, indexes in local.composite_indexes : [
      for fields in indexes : {
        "${collection}/${join("+", fields)}" = { collection = collection, fields = fields }
      }
    ]
  ])...)
}

resource "google_project_service" "firestore" {
  count              = var.enable_api ? 1 : 0
  project            = var.project
  service            = "firestore.googleapis.com"
  disable_on_destroy = false
}

resource "google_firestore_database" "this" {
  project                           = var.project
  name                              = var.name
  location_id                       = var.location
  type                              = "FIRESTORE_NATIVE"
  app_engine_integration_mode       = "DISABLED"
  delete_protection_state           = local.delete_protection[var.deletion_protection]
  point_in_time_recovery_enablement = local.point_in_time_recovery[var.backup.enabled]

  # The provider would only forget the database otherwise; with protection on, the API refuses.
  deletion_policy = "DELETE"

  dynamic "cmek_config" {
    for_each = var.encryption_key == null ? [] : [var.encryption_key]
    content {
      kms_key_name = cmek_config.value
    }
  }

  depends_on = [google_project_service.firestore]
}

resource "google_firestore_field" "single" {
  for_each   = local.fields
  project    = var.project
  database   = google_firestore_database.this.name
  collection = "${var.collection}_${each.value.collection}"
  field      = each.value.field

  # Without an index inside, the field is exempt; "*" stands for all fields that are not named.
  index_config {
    dynamic "indexes" {
      for_each = each.value.indexed ? ["ASCENDING"] : []
      content {
        order       = indexes.value
        query_scope = "COLLECTION"
      }
    }
  }
}

resource "google_firestore_field" "ttl" {
  for_each   = local.ttl_fields
  project    = var.project
  database   = google_firestore_database.this.name
  collection = "${var.collection}_${each.key}"
  field      = each.value

  index_config {}
  ttl_config {}
}

resource "google_firestore_index" "this" {
  for_each    = local.indexes
  project     = var.project
  database    = google_firestore_database.this.name
  collection  = "${var.collection}_${each.value.collection}"
  query_scope = "COLLECTION"

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = fields.value
      order      = "ASCENDING"
    }
  }
}

resource "google_firestore_backup_schedule" "daily" {
  count     = var.backup.enabled ? 1 : 0
  project   = var.project
  database  = google_firestore_database.this.name
  retention = "${var.backup.retention_days * 24 * 3600}s"

  daily_recurrence {}
}

resource "google_firestore_backup_schedule" "weekly" {
  count     = var.backup.enabled && var.weekly_backup.retention_weeks > 0 ? 1 : 0
  project   = var.project
  database  = google_firestore_database.this.name
  retention = "${var.weekly_backup.retention_weeks * 7 * 24 * 3600}s"

  weekly_recurrence {
    day = var.weekly_backup.day
  }
}
