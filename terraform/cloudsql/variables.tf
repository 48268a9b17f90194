variable "backup" {
  description = "Point-in-time recovery and scheduled backups: whether, and how many days back they reach."
  type = object({
    enabled        = optional(bool, true)
    retention_days = optional(number, 7)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.backup.retention_days >= 1 && var.backup.retention_days <= 365 && floor(var.backup.retention_days) == var.backup.retention_days
    error_message = "backup.retention_days is a whole number from 1 to 365; point-in-time recovery reaches 7 days back at most, 35 with ENTERPRISE_PLUS."
  }
}

variable "database" {
  description = "The database inside the instance."
  type        = string
  default     = "durastore"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9_]{0,62}$", var.database))
    error_message = "database is 1 to 63 of a-z 0-9 _ and begins with a letter."
  }
}

variable "deletion_protection" {
  description = "Refuse to delete the store and its data."
  type        = bool
  default     = true
  nullable    = false
}

variable "enable_api" {
  description = "Enable sqladmin.googleapis.com in the project. It stays enabled when this module is destroyed."
  type        = bool
  default     = true
  nullable    = false
}

variable "encryption_key" {
  description = "The KMS key to encrypt with; null for the cloud's own key."
  type        = string
  default     = null

  validation {
    condition     = var.encryption_key == null || can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.encryption_key))
    error_message = "encryption_key is projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY."
  }
}

variable "engine" {
  description = "The server: postgresql or mysql."
  type        = string
  default     = "postgresql"
  nullable    = false

  validation {
    condition     = contains(["postgresql", "mysql"], var.engine)
    error_message = "engine is postgresql or mysql."
  }
}

variable "engine_version" {
  description = "The server's version as Cloud SQL names it, such as POSTGRES_17 or MYSQL_8_4; null for one that is tested."
  type        = string
  default     = null

  validation {
    condition     = var.engine_version == null || can(regex({ postgresql = "^POSTGRES_1[4-9]$", mysql = "^MYSQL_8_(0|0_[0-9]+|4)$" }[var.engine], var.engine_version))
    error_message = "engine_version is POSTGRES_14 or later for postgresql, MYSQL_8_0 or MYSQL_8_4 for mysql."
  }
}

variable "flags" {
  description = "Further database flags; one of durastore's own that is given here too is replaced."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = !anytrue([for flag in keys(var.flags) : contains(["cloudsql.iam_authentication", "cloudsql_iam_authentication"], flag)])
    error_message = "flags leave IAM authentication on: clients log in by it."
  }

  validation {
    condition     = alltrue([for flag, values in { synchronous_commit = ["on", "local", "remote_apply", "remote_write"], innodb_flush_log_at_trx_commit = ["1"], sync_binlog = ["1"] } : contains(values, lookup(var.flags, flag, values[0]))])
    error_message = "flags leave commits durable: a result that is lost after its commit is an effect that happens twice."
  }
}

variable "high_availability" {
  description = "Keep a standby in a second zone; it needs backup.enabled."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = var.backup.enabled || !var.high_availability
    error_message = "high_availability needs backup.enabled: the standby lives by its log."
  }
}

variable "labels" {
  description = "Labels, or tags, of everything that takes them."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for key, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))])
    error_message = "labels have keys of 1 to 63 and values of up to 63 of a-z 0-9 - _; keys begin with a letter."
  }
}

variable "machine" {
  description = "What the instance runs on: its tier and edition, and its disk in GB, which grows by itself up to a limit (0 for none)."
  type = object({
    disk_limit = optional(number, 0)
    disk_size  = optional(number, 10)
    edition    = optional(string, "ENTERPRISE")
    tier       = optional(string, "db-custom-1-3840")
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(["ENTERPRISE", "ENTERPRISE_PLUS"], var.machine.edition)
    error_message = "machine.edition is ENTERPRISE or ENTERPRISE_PLUS."
  }

  validation {
    condition     = can(regex("^db-[A-Za-z0-9-]+$", var.machine.tier)) && (var.machine.edition != "ENTERPRISE_PLUS" || !can(regex("^db-(custom|[fgn]1)-", var.machine.tier)))
    error_message = "machine.tier is db-custom-CPUS-MEMORY_MB, or for ENTERPRISE_PLUS one of its own such as db-perf-optimized-N-2."
  }

  validation {
    condition     = var.machine.disk_size >= 10 && (var.machine.disk_limit == 0 || var.machine.disk_limit >= var.machine.disk_size)
    error_message = "machine.disk_size is at least 10, and disk_limit is 0 or not below it."
  }
}

variable "maintenance" {
  description = "When the server may be restarted for maintenance: day (1 is Monday), hour (UTC), and the update track."
  type = object({
    day   = optional(number, 7)
    hour  = optional(number, 3)
    track = optional(string, "stable")
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(range(1, 8), var.maintenance.day) && contains(range(0, 24), var.maintenance.hour)
    error_message = "maintenance.day is 1 (Monday) to 7, hour is 0 to 23."
  }

  validation {
    condition     = contains(["canary", "stable", "week5"], var.maintenance.track)
    error_message = "maintenance.track is canary, stable or week5."
  }
}

variable "name" {
  description = "Name of the store: of the table, the database or the instance."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,78}[a-z0-9])?$", var.name))
    error_message = "name is 1 to 80 of a-z 0-9 -, begins with a letter and does not end with -."
  }
}

variable "network" {
  description = "How clients reach the instance: a VPC network with private services access, Private Service Connect from projects, or (not by default) a public address, which still takes nothing but TLS and authorised clients."
  type = object({
    private_network       = optional(string)
    psc_consumer_projects = optional(set(string), [])
    public_ip             = optional(bool, false)
  })
  nullable = false

  validation {
    condition     = var.network.private_network != null || length(var.network.psc_consumer_projects) > 0 || var.network.public_ip
    error_message = "network gives clients at least one way: private_network, psc_consumer_projects or public_ip."
  }

  validation {
    condition     = var.network.private_network == null || can(regex("^projects/[^/]+/global/networks/[^/]+$", var.network.private_network))
    error_message = "network.private_network is projects/PROJECT/global/networks/NETWORK."
  }

  validation {
    condition     = alltrue([for project in var.network.psc_consumer_projects : can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", project))])
    error_message = "network.psc_consumer_projects are ids of projects."
  }
}

variable "principals" {
  description = "Who may use the store, and who may only look: ARNs of IAM roles or users on AWS, IAM members such as serviceAccount:EMAIL on Google Cloud."
  type = object({
    readers = optional(set(string), [])
    writers = optional(set(string), [])
  })
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for member in setunion(var.principals.readers, var.principals.writers) : can(regex("^(serviceAccount|user|group):[^@'\"`\\\\\\s]+@[a-z0-9.-]+$", member))])
    error_message = "principals are IAM members that a database can know: serviceAccount:, user: or group: with an e-mail address."
  }
}

variable "project" {
  description = "The project's id."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project is a project's id, not its number or name."
  }
}

variable "region" {
  description = "Where the instance runs, such as europe-west3."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region is a region such as europe-west3."
  }
}

variable "service_account" {
  description = "A service account for clients of the store (its id made of the store's name, if not given), and the workloads that may act as it without a key."
  type = object({
    account_id          = optional(string)
    create              = optional(bool, true)
    workload_identities = optional(set(string), [])
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.service_account.account_id == null || can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.service_account.account_id))
    error_message = "service_account.account_id is 6 to 30 of a-z 0-9 -, begins with a letter and does not end with -."
  }

  validation {
    condition     = alltrue([for member in var.service_account.workload_identities : can(regex("^serviceAccount:[^\\[]+\\.svc\\.id\\.goog\\[[^/]+/[^/]+\\]$|^(principal|principalSet)://", member))])
    error_message = "workload_identities are serviceAccount:PROJECT.svc.id.goog[NAMESPACE/NAME], principal:// or principalSet://."
  }

  validation {
    condition     = var.service_account.create || length(var.service_account.workload_identities) == 0
    error_message = "workload_identities need service_account.create."
  }

  validation {
    condition     = var.service_account.create || length(var.principals.writers) > 0
    error_message = "without service_account.create, principals.writers name who uses the store."
  }
}
