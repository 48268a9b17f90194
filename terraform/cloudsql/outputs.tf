output "connection_name" {
  description = "PROJECT:REGION:INSTANCE, as the connectors and the proxy take it."
  value       = google_sql_database_instance.this.connection_name
}

output "database" {
  description = "The database inside the instance."
  value       = google_sql_database.this.name
}

output "grants" {
  description = "SQL for the owner of durastore's tables to run once after `durastore init`: rights on their rows for the IAM users, and on nothing else."
  value       = join("\n", concat(local.closing, local.entering, local.grants))
}

output "private_ip_address" {
  description = "The address inside the VPC network; null without one."
  value       = var.network.private_network == null ? null : google_sql_database_instance.this.private_ip_address
}

output "service_account_email" {
  description = "The service account that clients run as; null when none was made."
  value       = one(google_service_account.client[*].email)
}

output "store_url" {
  description = "What durastore.open takes. It logs in as the service account, or as the first writer where none was made."
  value = join("", [
    "cloudsql+${var.engine}://",
    urlencode(local.login),
    "@${var.project}:${var.region}:${google_sql_database_instance.this.name}/${google_sql_database.this.name}",
    "?iam=true&ip_type=${local.ip_type}",
  ])
}
