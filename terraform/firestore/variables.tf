variable "backup" {
  description = "Point-in-time recovery and scheduled backups: whether, and how many days back they reach."
  type = object({
    enabled        = optional(bool, true)
    retention_days = optional(number, 7)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.backup.retention_days >= 1 && var.backup.retention_days <= 98 && floor(var.backup.retention_days) == var.backup.retention_days
    error_message = "backup.retention_days is a whole number from 1 to 98; point-in-time recovery reaches 7 days back at most."
  }
}

variable "collection" {
  description = "Prefix of durastore's collections, the option `collection` of the URL."
  type        = string
  default     = "durastore"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9_-]{0,99}$", var.collection))
    error_message = "collection is 1 to 100 of A-Z a-z 0-9 - _ and begins with a letter."
  }
}

variable "deletion_protection" {
  description = "Refuse to delete the store and its data."
  type        = bool
  default     = true
  nullable    = false
}

variable "enable_api" {
  description = "Enable firestore.googleapis.com in the project. It stays enabled when this module is destroyed."
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

variable "location" {
  description = "Where the data lie: a region such as europe-west3, or a multi-region such as eur3."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^([a-z]+-[a-z]+[0-9]+|nam[0-9]|eur[0-9])$", var.location))
    error_message = "location is a region such as europe-west3, or a multi-region such as eur3 or nam5."
  }
}

variable "name" {
  description = "Name of the store: of the table, the database or the instance."
  type        = string
  nullable    = false

  validation {
    condition     = var.name == "(default)" || can(regex("^[a-z][a-z0-9-]{2,61}[a-z0-9]$", var.name))
    error_message = "name is 4 to 63 of a-z 0-9 -, begins with a letter and does not end with -; or it is (default)."
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
    condition     = alltrue([for member in setunion(var.principals.readers, var.principals.writers) : can(regex("^(serviceAccount|user|group):[^@]+@[^@]+$|^(principal|principalSet)://", member))])
    error_message = "principals are IAM members: serviceAccount:, user: or group: with an e-mail address, or principal:// or principalSet:// for a workload."
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
}

variable "weekly_backup" {
  description = "A weekly backup beside the daily one: its day, and for how many weeks it is kept (0 for none)."
  type = object({
    day             = optional(string, "SUNDAY")
    retention_weeks = optional(number, 8)
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(["MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"], var.weekly_backup.day)
    error_message = "weekly_backup.day is MONDAY to SUNDAY."
  }

  validation {
    condition     = var.weekly_backup.retention_weeks >= 0 && var.weekly_backup.retention_weeks <= 14 && floor(var.weekly_backup.retention_weeks) == var.weekly_backup.retention_weeks
    error_message = "weekly_backup.retention_weeks is a whole number from 0 to 14."
  }
}
