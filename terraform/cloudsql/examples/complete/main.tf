# MySQL with a standby, reached by Private Service Connect; agents on GKE act as the store's service account.

provider "google" {
  project = var.project
}

variable "project" {
  description = "The project's id."
  type        = string
}

module "store" {
  source = "../.."

  name              = "agents-production"
  project           = var.project
  region            = "europe-west3"
  engine            = "mysql"
  database          = "agents"
  encryption_key    = "projects/${var.project}/locations/europe-west3/keyRings/stores/cryptoKeys/agents"
  high_availability = true

  backup      = { retention_days = 30 }
  flags       = { slow_query_log = "on" }
  labels      = { team = "agents", environment = "production" }
  machine     = { tier = "db-perf-optimized-N-2", edition = "ENTERPRISE_PLUS", disk_limit = 500 }
  maintenance = { day = 6, hour = 22 }
  network     = { psc_consumer_projects = [var.project] }

  principals = {
    readers = ["group:operators@example.com"]
    writers = ["serviceAccount:batch@${var.project}.iam.gserviceaccount.com"]
  }

  service_account = {
    workload_identities = ["serviceAccount:${var.project}.svc.id.goog[agents/worker]"]
  }
}

output "grants" {
  description = "SQL to run once after `durastore init`."
  value       = module.store.grants
}

output "store_url" {
  description = "What durastore.open takes."
  value       = module.store.store_url
}
