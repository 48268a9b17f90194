# What somebody gets who asks for nothing.

mock_provider "google" {}

variables {
  location = "europe-west3"
  name     = "durastore"
  project  = "acme-prod"
}

run "is_safe" {
  assert {
    condition     = google_firestore_database.this.type == "FIRESTORE_NATIVE"
    error_message = "durastore needs native mode."
  }

  assert {
    condition     = google_firestore_database.this.delete_protection_state == "DELETE_PROTECTION_ENABLED"
    error_message = "Deletion protection is on by default."
  }

  assert {
    condition     = google_firestore_database.this.point_in_time_recovery_enablement == "POINT_IN_TIME_RECOVERY_ENABLED"
    error_message = "Point-in-time recovery is on by default."
  }

  assert {
    condition     = google_firestore_backup_schedule.daily[0].retention == "604800s" && google_firestore_backup_schedule.weekly[0].retention == "4838400s"
    error_message = "Daily backups are kept for 7 days, weekly ones for 8 weeks."
  }

  assert {
    condition     = output.store_url == "firestore://acme-prod/durastore"
    error_message = "store_url names the project and the database."
  }
}

run "gives_little" {
  assert {
    condition     = [for grant in google_project_iam_member.this : grant.role] == [google_project_iam_custom_role.this["writer"].id]
    error_message = "The service account writes, and nobody else has any rights."
  }

  assert {
    condition     = google_project_iam_member.this["writer"].condition[0].expression == "resource.name == \"projects/acme-prod/databases/durastore\""
    error_message = "Rights end at this database."
  }

  assert {
    condition     = alltrue([for role in google_project_iam_custom_role.this : alltrue([for permission in role.permissions : startswith(permission, "datastore.entities.")])])
    error_message = "Clients get rights on documents, not on indexes, backups or the database."
  }

  assert {
    condition     = length(setintersection(google_project_iam_custom_role.this["reader"].permissions, ["datastore.entities.create", "datastore.entities.delete", "datastore.entities.update"])) == 0
    error_message = "Readers only look."
  }
}

run "can_be_let_go" {
  variables {
    backup              = { enabled = false }
    deletion_protection = false
    service_account     = { create = false }
  }

  assert {
    condition     = google_firestore_database.this.delete_protection_state == "DELETE_PROTECTION_DISABLED" && google_firestore_database.this.deletion_policy == "DELETE"
    error_message = "Without protection, destroy deletes."
  }

  assert {
    condition     = length(google_firestore_backup_schedule.daily) + length(google_firestore_backup_schedule.weekly) == 0
    error_message = "No backups when they are turned off."
  }

  assert {
    condition     = output.service_account_email == null && length(google_project_iam_member.this) == 0
    error_message = "No account when none is asked for."
  }
}

run "knows_the_default_database" {
  variables {
    name = "(default)"
  }

  assert {
    condition     = output.store_url == "firestore://acme-prod/%28default%29" && google_service_account.client[0].account_id == "durastore-default"
    error_message = "The database (default) has a URL and an account too."
  }
}

run "shortens_the_account_of_a_long_name" {
  variables {
    name = "a23456789-123456789-123456789"
  }

  assert {
    condition     = google_service_account.client[0].account_id == "durastore-a23456789-123456789"
    error_message = "An account's id has at most 30 characters and ends with none but a letter or a digit."
  }
}

run "tells_the_roles_of_a_long_name_apart" {
  variables {
    name = "a23456789-123456789-123456789-123456789-123456789-123456789-123"
  }

  assert {
    condition     = google_project_iam_custom_role.this["reader"].role_id == "durastore_a23456789_123456789_123456789_123456789_1234567_reader"
    error_message = "A role's id has at most 64 characters, and does not lose the end that names it."
  }

  assert {
    condition     = google_project_iam_custom_role.this["writer"].role_id == "durastore_a23456789_123456789_123456789_123456789_1234567_writer"
    error_message = "A role's id has at most 64 characters, and does not lose the end that names it."
  }
}
