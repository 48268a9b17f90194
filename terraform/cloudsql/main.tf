locals {
  postgresql = var.engine == "postgresql"
  plus       = var.machine.edition == "ENTERPRISE_PLUS"

  default_versions = { postgresql = "POSTGRES_17", mysql = "MYSQL_8_4" }
  availability     = { true = "REGIONAL", false = "ZONAL" }

  # As the connector is told to go: the most private way that there is.
  ip_type = var.network.private_network != null ? "private" : length(var.network.psc_consumer_projects) > 0 ? "psc" : "public"

  # A client that hangs in a transaction must not hold its locks for ever; MySQL knows idle sessions alone, and durastore
  # connects again. Chunks of large results are 4 MiB with their escapes.
  own_flags = {
    postgresql = {
      "cloudsql.iam_authentication"         = "on"
      "idle_in_transaction_session_timeout" = "600000"
    }
    mysql = {
      "cloudsql_iam_authentication" = "on"
      "max_allowed_packet"          = "67108864"
      "wait_timeout"                = "600"
    }
  }
  flags = merge(local.own_flags[var.engine], var.flags)
}

resource "google_project_service" "sqladmin" {
  count              = var.enable_api ? 1 : 0
  project            = var.project
  service            = "sqladmin.googleapis.com"
  disable_on_destroy = false
}

resource "google_sql_database_instance" "this" {
  project             = var.project
  name                = var.name
  region              = var.region
  database_version    = coalesce(var.engine_version, local.default_versions[var.engine])
  encryption_key_name = var.encryption_key
  deletion_protection = var.deletion_protection

  settings {
    tier                        = var.machine.tier
    edition                     = var.machine.edition
    availability_type           = local.availability[var.high_availability]
    deletion_protection_enabled = var.deletion_protection
    disk_autoresize             = true
    disk_autoresize_limit       = var.machine.disk_limit
    disk_size                   = var.machine.disk_size
    disk_type                   = "PD_SSD"
    user_labels                 = var.labels

    backup_configuration {
      enabled                        = var.backup.enabled
      binary_log_enabled             = local.postgresql ? null : var.backup.enabled
      point_in_time_recovery_enabled = local.postgresql ? var.backup.enabled : null
      start_time                     = "02:00"
      transaction_log_retention_days = min(var.backup.retention_days, local.plus ? 35 : 7)

      backup_retention_settings {
        retained_backups = var.backup.retention_days
        retention_unit   = "COUNT"
      }
    }

    dynamic "database_flags" {
      for_each = local.flags
      content {
        name  = database_flags.key
        value = database_flags.value
      }
    }

    insights_config {
      query_insights_enabled  = true
      query_string_length     = 1024
      record_application_tags = true
      record_client_address   = false
    }

    ip_configuration {
      ipv4_enabled                                  = var.network.public_ip
      private_network                               = var.network.private_network
      enable_private_path_for_google_cloud_services = var.network.private_network != null
      ssl_mode                                      = "ENCRYPTED_ONLY"

      dynamic "psc_config" {
        for_each = length(var.network.psc_consumer_projects) == 0 ? [] : [var.network.psc_consumer_projects]
        content {
          psc_enabled               = true
          allowed_consumer_projects = psc_config.value
        }
      }
    }

    maintenance_window {
      day          = var.maintenance.day
      hour         = var.maintenance.hour
      update_track = var.maintenance.track
    }
  }

  lifecycle {
    # The disk grows by itself.
    ignore_changes = [settings[0].disk_size]
  }

  depends_on = [google_project_service.sqladmin]
}

resource "google_sql_database" "this" {
  project   = var.project
  instance  = google_sql_database_instance.this.name
  name      = var.database
  charset   = local.postgresql ? "UTF8" : "utf8mb4"
  collation = local.postgresql ? null : "utf8mb4_bin"

  # PostgreSQL does not let a database go whose objects belong to other users; the instance takes it with it.
  deletion_policy = "ABANDON"
}
