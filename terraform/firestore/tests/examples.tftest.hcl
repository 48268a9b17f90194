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
    condition     = output.store_url == "firestore://acme-prod/durastore"
    error_message = "The minimal example has a URL."
  }
}

run "complete" {
  module {
    source = "./examples/complete"
  }

  assert {
    condition     = output.store_url == "firestore://acme-prod/agents-production?collection=agents"
    error_message = "The URL of the complete example names the collections."
  }
}
