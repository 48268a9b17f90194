# PostgreSQL in a private network, with backups, and a service account that logs in by IAM.

provider "google" {
  project = var.project
}

variable "project" {
  description = "The project's id."
  type        = string
}

module "store" {
  source = "../.."

  name    = "durastore"
  project = var.project
  region  = "europe-west3"
  network = { private_network = "projects/${var.project}/global/networks/default" }
}

output "connection_name" {
  description = "PROJECT:REGION:INSTANCE, as the connectors and the proxy take it."
  value       = module.store.connection_name
}

output "grants" {
  description = "SQL to run once after `durastore init`."
  value       = module.store.grants
}

output "store_url" {
  description = "What durastore.open takes."
  value       = module.store.store_url
}
