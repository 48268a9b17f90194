output "database" {
  description = "The database's resource name."
  value       = "projects/${var.project}/databases/${google_firestore_database.this.name}"
}

output "role_ids" {
  description = "The custom roles for clients, by reader and writer."
  value       = { for name, role in google_project_iam_custom_role.this : name => role.id }
}

output "service_account_email" {
  description = "The service account that clients run as; null when none was made."
  value       = one(google_service_account.client[*].email)
}

output "store_url" {
  description = "What durastore.open takes."
  value = join("", [
    "firestore://${var.project}/${urlencode(google_firestore_database.this.name)}",
    var.collection == "durastore" ? "" : "?collection=${var.collection}",
  ])
}
