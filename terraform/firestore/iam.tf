locals {
  slug = replace(trim(var.name, "()"), "-", "_")

  # An account's id has at most 30 characters and does not end with a hyphen.
  account_id = coalesce(var.service_account.account_id, replace(substr("durastore-${trim(var.name, "()")}", 0, 30), "/-+$/", ""))

  # A role's id has at most 64 characters; the end of it tells readers and writers apart.
  role_slug = substr(local.slug, 0, 47)

  # Exactly what the backend calls: no transaction (`datastore.databases.get`), no index, no import or export.
  permissions = {
    reader = ["datastore.entities.get", "datastore.entities.list"]
    writer = [
      "datastore.entities.create",
      "datastore.entities.delete",
      "datastore.entities.get",
      "datastore.entities.list",
      "datastore.entities.update",
    ]
  }
  grants = merge(
    { for member in var.principals.readers : "reader ${member}" => { member = member, role = "reader" } },
    { for member in var.principals.writers : "writer ${member}" => { member = member, role = "writer" } },
    var.service_account.create ? { "writer" = { member = google_service_account.client[0].member, role = "writer" } } : {},
  )
}

resource "google_service_account" "client" {
  count        = var.service_account.create ? 1 : 0
  project      = var.project
  account_id   = local.account_id
  display_name = "durastore ${var.name}"

  # A Firestore database takes no labels, and neither does an account.
  description = substr(join(", ", [for key, value in var.labels : "${key}=${value}"]), 0, 256)
}

resource "google_project_iam_custom_role" "this" {
  for_each    = local.permissions
  project     = var.project
  role_id     = "durastore_${local.role_slug}_${each.key}"
  title       = "durastore ${var.name} ${each.key}"
  description = each.key == "reader" ? "Looks at runs and records" : "Claims, commits and sweeps"
  permissions = each.value
}

resource "google_project_iam_member" "this" {
  for_each = local.grants
  project  = var.project
  role     = google_project_iam_custom_role.this[each.value.role].id
  member   = each.value.member

  condition {
    title       = "durastore ${var.name}"
    description = "In this database only"
    expression  = "resource.name == \"projects/${var.project}/databases/${var.name}\""
  }
}

resource "google_service_account_iam_member" "workload" {
  for_each           = var.service_account.workload_identities
  service_account_id = google_service_account.client[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = each.value
}
