# Agents on GKE act as the store's service account by workload identity; operators may look.

provider "google" {
  project = var.project
}

variable "project" {
  description = "The project's id."
  type        = string
}

module "store" {
  source = "../.."

  name           = "agents-production"
  project        = var.project
  location       = "eur3"
  collection     = "agents"
  encryption_key = "projects/${var.project}/locations/eur3/keyRings/stores/cryptoKeys/agents"

  backup        = { retention_days = 14 }
  weekly_backup = { day = "SATURDAY", retention_weeks = 14 }
  labels        = { team = "agents", environment = "production" }

  principals = {
    readers = ["group:operators@example.com"]
    writers = ["serviceAccount:batch@${var.project}.iam.gserviceaccount.com"]
  }

  service_account = {
    workload_identities = ["serviceAccount:${var.project}.svc.id.goog[agents/worker]"]
  }
}

output "service_account_email" {
  description = "The service account that clients run as."
  value       = module.store.service_account_email
}

output "store_url" {
  description = "What durastore.open takes."
  value       = module.store.store_url
}
