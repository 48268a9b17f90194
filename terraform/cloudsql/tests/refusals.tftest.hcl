# What the variables refuse; a test outside holds that no validation goes without. Runs of many values save time.

mock_provider "google" {}

variables {
  name    = "durastore"
  network = { private_network = "projects/acme-prod/global/networks/default" }
  project = "acme-prod"
  region  = "europe-west3"
}

run "values_1" {
  command = plan

  variables {
    # retention of no day
    backup = { retention_days = 0 }
    # database with a quote
    database = "a\"b"
    # key that is no path
    encryption_key = "agents"
    # engine that is not there
    engine = "sqlserver"
    # login by iam turned off
    flags = { "cloudsql.iam_authentication" = "off" }
    # label in capitals
    labels = { Team = "agents" }
    # edition that is not there
    machine = { edition = "STANDARD" }
    # maintenance on day 0
    maintenance = { day = 0 }
    # name that ends with a hyphen
    name = "agents-"
    # network without a way
    network = {}
    # principal without a kind
    principals = { writers = ["batch@acme-prod.iam.gserviceaccount.com"] }
    # project by number
    project = "123456789"
    # region that is a zone
    region = "europe-west3-a"
  }

  expect_failures = [
    var.backup,
    var.database,
    var.encryption_key,
    var.engine,
    var.flags,
    var.labels,
    var.machine,
    var.maintenance,
    var.name,
    var.network,
    var.principals,
    var.project,
    var.region,
  ]
}

run "values_2" {
  command = plan

  variables {
    # retention of half a day
    backup = { retention_days = 1.5 }
    # postgresql that forgets
    flags = { synchronous_commit = "off" }
    # label with a blank
    labels = { team = "my agents" }
    # tier of another edition
    machine = { edition = "ENTERPRISE_PLUS" }
    # maintenance at 24
    maintenance = { hour = 24 }
    # name in capitals
    name = "Agents"
    # network by name
    network = { private_network = "default" }
    # everybody as a reader
    principals = { readers = ["allUsers"] }
  }

  expect_failures = [
    var.backup,
    var.flags,
    var.labels,
    var.machine,
    var.maintenance,
    var.name,
    var.network,
    var.principals,
  ]
}

run "values_3" {
  command = plan

  variables {
    # retention of 366 days
    backup = { retention_days = 366 }
    # disk below 10 gb
    machine = { disk_size = 5 }
    # maintenance on no track
    maintenance = { track = "preview" }
    # psc for a project by number
    network = { psc_consumer_projects = ["123456789"] }
    # principal with a quote
    principals = { readers = ["user:ann'--@example.com"] }
  }

  expect_failures = [
    var.backup,
    var.machine,
    var.maintenance,
    var.network,
    var.principals,
  ]
}

run "values_4" {
  command = plan

  variables {
    # disk above its limit
    machine = { disk_size = 200, disk_limit = 100 }
    # principal that no database knows
    principals = { writers = ["principalSet://iam.googleapis.com/pool"] }
  }

  expect_failures = [
    var.machine,
    var.principals,
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

run "version_of_another_engine" {
  command = plan

  variables {
    engine         = "mysql"
    engine_version = "POSTGRES_17"
  }

  expect_failures = [
    var.engine_version,
  ]
}

run "mysql_that_forgets" {
  command = plan

  variables {
    engine = "mysql"
    flags  = { innodb_flush_log_at_trx_commit = "2" }
  }

  expect_failures = [
    var.flags,
  ]
}

run "standby_without_a_log" {
  command = plan

  variables {
    backup            = { enabled = false }
    high_availability = true
  }

  expect_failures = [
    var.high_availability,
  ]
}

run "nobody_who_writes" {
  command = plan

  variables {
    service_account = { create = false }
  }

  expect_failures = [
    var.service_account,
  ]
}
