# An on-demand table with point-in-time recovery, and policies to attach to whoever uses it.

provider "aws" {
  region = "eu-central-1"
}

module "store" {
  source = "../.."

  name = "durastore"
}

output "policy_arns" {
  description = "The IAM policies for clients, by reader and writer."
  value       = module.store.policy_arns
}

output "store_url" {
  description = "What durastore.open takes."
  value       = module.store.store_url
}
