locals {
  members = merge(
    { for member in var.principals.readers : member => "reader" },
    { for member in var.principals.writers : member => "writer" },
  )
  user_types = { serviceAccount = "CLOUD_IAM_SERVICE_ACCOUNT", user = "CLOUD_IAM_USER", group = "CLOUD_IAM_GROUP" }

  # By key, since the address of an account that is made here is not known when this is planned.
  users = merge(
    { for member, role in local.members : member => {
      email  = split(":", member)[1]
      member = member
      role   = role
      type   = local.user_types[split(":", member)[0]]
    } },
    var.service_account.create ? { service_account = {
      email  = google_service_account.client[0].email
      member = google_service_account.client[0].member
      role   = "writer"
      type   = "CLOUD_IAM_SERVICE_ACCOUNT"
    } } : {},
  )

  # PostgreSQL knows an account without the domain's end, MySQL knows anybody without the domain.
  logins = { for key, user in local.users : key => local.postgresql ? trimsuffix(user.email, ".gserviceaccount.com") : split("@", user.email)[0] }

  login = local.logins[var.service_account.create ? "service_account" : sort(var.principals.writers)[0]]

  # An account's id has at most 30 characters and does not end with a hyphen.
  account_id = coalesce(var.service_account.account_id, replace(substr("durastore-${var.name}", 0, 30), "/-+$/", ""))

  project_roles = ["roles/cloudsql.client", "roles/cloudsql.instanceUser"]
  project_grants = merge([
    for key, user in local.users : {
      for role in local.project_roles : "${key} ${role}" => { member = user.member, role = role }
    }
  ]...)
}

resource "google_service_account" "client" {
  count        = var.service_account.create ? 1 : 0
  project      = var.project
  account_id   = local.account_id
  display_name = "durastore ${var.name}"
  description  = substr(join(", ", [for key, value in var.labels : "${key}=${value}"]), 0, 256)
}

resource "google_project_iam_member" "this" {
  for_each = local.project_grants
  project  = var.project
  role     = each.value.role
  member   = each.value.member

  condition {
    title       = "durastore ${var.name}"
    description = "On this instance only"
    expression  = "resource.type == \"sqladmin.googleapis.com/Instance\" && resource.name == \"projects/${var.project}/instances/${var.name}\""
  }
}

resource "google_sql_user" "this" {
  for_each = local.users
  project  = var.project
  instance = google_sql_database_instance.this.name
  name     = local.postgresql ? trimsuffix(each.value.email, ".gserviceaccount.com") : each.value.email
  type     = each.value.type

  # A PostgreSQL user that owns something cannot be dropped; the instance takes it with it.
  deletion_policy = local.postgresql ? "ABANDON" : null
}

resource "google_service_account_iam_member" "workload" {
  for_each           = var.service_account.workload_identities
  service_account_id = google_service_account.client[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = each.value
}
