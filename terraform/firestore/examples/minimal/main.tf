# A database of its own for durastore, with backups, and a service account for its clients.

provider "google" {
  project = var.project
}

variable "project" {
  description = "The project's id."
  type        = string
}

module "store" {
  source = "../.."

  name     = "durastore"
  project  = var.project
  location = "europe-west3"
}

output "store_url" {
  description = "What durastore.open takes."
  value       = module.store.store_url
}
