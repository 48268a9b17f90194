# What somebody gets who asks for nothing.

mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = {
      email  = "durastore-durastore@acme-prod.iam.gserviceaccount.com"
      member = "serviceAccount:durastore-durastore@acme-prod.iam.gserviceaccount.com"
    }
  }
}

variables {
  name    = "durastore"
  network = { private_network = "projects/acme-prod/global/networks/default" }
  project = "acme-prod"
  region  = "europe-west3"
}

run "is_safe" {
  assert {
    condition     = google_sql_database_instance.this.deletion_protection && google_sql_database_instance.this.settings[0].deletion_protection_enabled
    error_message = "Deletion protection is on by default, in Terraform and in Cloud SQL."
  }

  assert {
    condition     = !google_sql_database_instance.this.settings[0].ip_configuration[0].ipv4_enabled
    error_message = "There is no public address by default."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].ip_configuration[0].ssl_mode == "ENCRYPTED_ONLY"
    error_message = "Nothing but TLS."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].backup_configuration[0].enabled && google_sql_database_instance.this.settings[0].backup_configuration[0].point_in_time_recovery_enabled
    error_message = "Backups and point-in-time recovery are on by default."
  }

  assert {
    condition = tomap({ for flag in google_sql_database_instance.this.settings[0].database_flags : flag.name => flag.value }) == tomap({
      "cloudsql.iam_authentication"         = "on"
      "idle_in_transaction_session_timeout" = "600000"
    })
    error_message = "IAM login, and an end to transactions that hang."
  }

  assert {
    condition     = output.store_url == "cloudsql+postgresql://durastore-durastore%40acme-prod.iam@acme-prod:europe-west3:durastore/durastore?iam=true&ip_type=private"
    error_message = "store_url logs in as the service account, by IAM, on the private address."
  }
}

run "gives_little" {
  assert {
    condition     = toset([for grant in google_project_iam_member.this : grant.role]) == toset(["roles/cloudsql.client", "roles/cloudsql.instanceUser"])
    error_message = "Connecting and logging in, no more."
  }

  assert {
    condition     = alltrue([for grant in google_project_iam_member.this : strcontains(grant.condition[0].expression, "resource.name == \"projects/acme-prod/instances/durastore\"")])
    error_message = "Rights end at this instance."
  }

  assert {
    condition     = google_sql_user.this["service_account"].type == "CLOUD_IAM_SERVICE_ACCOUNT" && google_sql_user.this["service_account"].name == "durastore-durastore@acme-prod.iam"
    error_message = "The user logs in by IAM, under the name that PostgreSQL knows."
  }
}

run "mysql_is_an_option" {
  variables {
    engine            = "mysql"
    high_availability = true
  }

  assert {
    condition     = google_sql_database_instance.this.database_version == "MYSQL_8_4" && google_sql_database_instance.this.settings[0].availability_type == "REGIONAL"
    error_message = "MySQL with a standby."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].backup_configuration[0].binary_log_enabled
    error_message = "MySQL recovers to a point in time, and fails over, by its binary log."
  }

  assert {
    condition     = tomap({ for flag in google_sql_database_instance.this.settings[0].database_flags : flag.name => flag.value }) == tomap({ cloudsql_iam_authentication = "on", max_allowed_packet = "67108864", wait_timeout = "600" })
    error_message = "IAM login, packets that take durastore's chunks, and an end to sessions that hang."
  }

  assert {
    condition     = google_sql_user.this["service_account"].name == "durastore-durastore@acme-prod.iam.gserviceaccount.com"
    error_message = "The provider takes MySQL's users by their whole address."
  }

  assert {
    condition     = output.store_url == "cloudsql+mysql://durastore-durastore@acme-prod:europe-west3:durastore/durastore?iam=true&ip_type=private"
    error_message = "store_url has the name that MySQL knows."
  }
}

run "flags_add_up" {
  variables {
    flags = { idle_in_transaction_session_timeout = "60000", max_connections = "400" }
  }

  assert {
    condition = tomap({ for flag in google_sql_database_instance.this.settings[0].database_flags : flag.name => flag.value }) == tomap({
      "cloudsql.iam_authentication"         = "on"
      "idle_in_transaction_session_timeout" = "60000"
      "max_connections"                     = "400"
    })
    error_message = "A flag that is given goes before durastore's own."
  }
}

run "the_log_reaches_as_far_as_the_edition_lets_it" {
  variables {
    backup  = { retention_days = 30 }
    machine = { edition = "ENTERPRISE_PLUS", tier = "db-perf-optimized-N-2" }
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].backup_configuration[0].transaction_log_retention_days == 30 && google_sql_database_instance.this.settings[0].backup_configuration[0].backup_retention_settings[0].retained_backups == 30
    error_message = "30 days in ENTERPRISE_PLUS."
  }
}

run "the_log_reaches_7_days_in_enterprise" {
  variables {
    backup = { retention_days = 30 }
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].backup_configuration[0].transaction_log_retention_days == 7 && google_sql_database_instance.this.settings[0].backup_configuration[0].backup_retention_settings[0].retained_backups == 30
    error_message = "The log 7 days, backups 30."
  }
}

run "somebody_else_writes" {
  variables {
    principals      = { readers = ["group:operators@example.com"], writers = ["serviceAccount:batch@acme-prod.iam.gserviceaccount.com"] }
    service_account = { create = false }
  }

  assert {
    condition     = output.store_url == "cloudsql+postgresql://batch%40acme-prod.iam@acme-prod:europe-west3:durastore/durastore?iam=true&ip_type=private"
    error_message = "store_url logs in as the first writer."
  }

  assert {
    condition     = tomap({ for key, user in google_sql_user.this : user.name => user.type }) == tomap({ "batch@acme-prod.iam" = "CLOUD_IAM_SERVICE_ACCOUNT", "operators@example.com" = "CLOUD_IAM_GROUP" })
    error_message = "Accounts and groups have users of their kind."
  }

  assert {
    condition     = strcontains(output.grants, "GRANT SELECT, INSERT, UPDATE, DELETE ON durastore_records TO \"batch@acme-prod.iam\";") && !strcontains(output.grants, "INSERT, UPDATE, DELETE ON durastore_records TO \"operators@example.com\"")
    error_message = "Writers write, readers look."
  }
}

run "public_only_when_asked_for" {
  variables {
    network = { public_ip = true }
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].ip_configuration[0].ipv4_enabled && length(google_sql_database_instance.this.settings[0].ip_configuration[0].authorized_networks) == 0 && endswith(output.store_url, "ip_type=public")
    error_message = "A public address takes the connector alone: no network is authorised."
  }
}
