# What the variables refuse; a test outside holds that no validation goes without. Runs of many values save time.

mock_provider "google" {}

variables {
  location = "europe-west3"
  name     = "durastore"
  project  = "acme-prod"
}

run "values_1" {
  command = plan

  variables {
    # retention of no day
    backup = { retention_days = 0 }
    # collection with a slash
    collection = "agents/durastore"
    # key that is no path
    encryption_key = "agents"
    # label in capitals
    labels = { Team = "agents" }
    # location that is a zone
    location = "europe-west3-a"
    # name that ends with a hyphen
    name = "agents-"
    # principal without a kind
    principals = { writers = ["batch@acme-prod.iam.gserviceaccount.com"] }
    # project by number
    project = "123456789"
    # weekly backup on a day in small letters
    weekly_backup = { day = "monday" }
  }

  expect_failures = [
    var.backup,
    var.collection,
    var.encryption_key,
    var.labels,
    var.location,
    var.name,
    var.principals,
    var.project,
    var.weekly_backup,
  ]
}

run "values_2" {
  command = plan

  variables {
    # retention of half a day
    backup = { retention_days = 1.5 }
    # label with a blank
    labels = { team = "my agents" }
    # name in capitals
    name = "Agents"
    # everybody as a reader
    principals = { readers = ["allUsers"] }
    # weekly backup for 15 weeks
    weekly_backup = { retention_weeks = 15 }
  }

  expect_failures = [
    var.backup,
    var.labels,
    var.name,
    var.principals,
    var.weekly_backup,
  ]
}

run "values_3" {
  command = plan

  variables {
    # retention of 99 days
    backup = { retention_days = 99 }
  }

  expect_failures = [
    var.backup,
  ]
}

run "account_id_of_five_characters" {
  command = plan

  variables {
    service_account = { account_id = "store" }
  }

  expect_failures = [
    var.service_account,
  ]
}

run "workload_by_address" {
  command = plan

  variables {
    service_account = { workload_identities = ["batch@acme-prod.iam.gserviceaccount.com"] }
  }

  expect_failures = [
    var.service_account,
  ]
}

run "workload_without_an_account" {
  command = plan

  variables {
    principals      = { writers = ["user:ann@example.com"] }
    service_account = { create = false, workload_identities = ["principal://iam.googleapis.com/pool"] }
  }

  expect_failures = [
    var.service_account,
  ]
}
