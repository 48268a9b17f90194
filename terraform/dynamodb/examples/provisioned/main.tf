# Provisioned capacity that scales: cheaper than on demand for a load that is steady.

provider "aws" {
  region = "eu-central-1"
}

module "store" {
  source = "../.."

  name     = "agents-steady"
  capacity = { mode = "PROVISIONED", write = { min = 10, max = 400, target = 50 } }
}

output "store_url" {
  description = "What durastore.open takes."
  value       = module.store.store_url
}
