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

output "store_url" {
  description = "What durastore.open takes."
  value       = module.store.store_url
}
