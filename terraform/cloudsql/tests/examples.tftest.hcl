# The examples are what people copy.

mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = {
      email  = "durastore@acme-prod.iam.gserviceaccount.com"
      member = "serviceAccount:durastore@acme-prod.iam.gserviceaccount.com"
    }
  }
}

variables {
  project = "acme-prod"
}

run "minimal" {
  module {
    source = "./examples/minimal"
  }

  assert {
    condition     = output.store_url == "cloudsql+postgresql://durastore%40acme-prod.iam@acme-prod:europe-west3:durastore/durastore?iam=true&ip_type=private"
    error_message = "The minimal example is PostgreSQL on a private address."
  }
}

run "complete" {
  module {
    source = "./examples/complete"
  }

  assert {
    condition     = output.store_url == "cloudsql+mysql://durastore@acme-prod:europe-west3:agents-production/agents?iam=true&ip_type=psc"
    error_message = "The complete example is MySQL by Private Service Connect."
  }
}
