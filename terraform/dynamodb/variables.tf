variable "alarms" {
  description = "CloudWatch alarms for throttled requests and for errors of DynamoDB: whether, and the ARNs of what they notify."
  type = object({
    actions = optional(set(string), [])
    enabled = optional(bool, true)
  })
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for action in var.alarms.actions : startswith(action, "arn:")])
    error_message = "alarms.actions are ARNs, of SNS topics for example."
  }
}

variable "backup" {
  description = "Point-in-time recovery and scheduled backups: whether, and how many days back they reach."
  type = object({
    enabled        = optional(bool, true)
    retention_days = optional(number, 7)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.backup.retention_days >= 1 && var.backup.retention_days <= 35 && floor(var.backup.retention_days) == var.backup.retention_days
    error_message = "backup.retention_days is a whole number from 1 to 35."
  }
}

variable "capacity" {
  description = "On demand (PAY_PER_REQUEST), or PROVISIONED with autoscaling: units per second from min to max, at a target utilisation in percent."
  type = object({
    mode = optional(string, "PAY_PER_REQUEST")
    read = optional(object({
      max    = optional(number, 100)
      min    = optional(number, 5)
      target = optional(number, 70)
    }), {})
    write = optional(object({
      max    = optional(number, 100)
      min    = optional(number, 5)
      target = optional(number, 70)
    }), {})
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(["PAY_PER_REQUEST", "PROVISIONED"], var.capacity.mode)
    error_message = "capacity.mode is PAY_PER_REQUEST or PROVISIONED."
  }

  validation {
    condition     = alltrue([for units in [var.capacity.read, var.capacity.write] : units.min >= 1 && units.min <= units.max])
    error_message = "capacity.read and capacity.write have a min of at least 1 and a max not below it."
  }

  validation {
    condition     = alltrue([for units in [var.capacity.read, var.capacity.write] : units.target >= 20 && units.target <= 90])
    error_message = "capacity.read.target and capacity.write.target are 20 to 90 percent."
  }
}

variable "deletion_protection" {
  description = "Refuse to delete the store and its data."
  type        = bool
  default     = true
  nullable    = false
}

variable "encryption_key" {
  description = "The KMS key to encrypt with; null for the cloud's own key."
  type        = string
  default     = null

  validation {
    condition     = var.encryption_key == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/.+$", var.encryption_key))
    error_message = "encryption_key is the ARN of a KMS key."
  }
}

variable "labels" {
  description = "Labels, or tags, of everything that takes them."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for key, value in var.labels : length(key) >= 1 && length(key) <= 128 && length(value) <= 256 && !startswith(lower(key), "aws:")])
    error_message = "labels have keys of 1 to 128 and values of up to 256 characters; keys do not begin with aws:."
  }
}

variable "name" {
  description = "Name of the store: of the table, the database or the instance."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{3,100}$", var.name))
    error_message = "name is 3 to 100 of A-Z a-z 0-9 - _ and the dot."
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
    condition     = alltrue([for member in setunion(var.principals.readers, var.principals.writers) : can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/.+$", member))])
    error_message = "principals are ARNs of IAM roles or users."
  }
}

variable "role" {
  description = "An IAM role for clients of the store, and the trust policy (JSON) that says who may assume it."
  type = object({
    create       = optional(bool, false)
    trust_policy = optional(string)
  })
  default  = {}
  nullable = false

  validation {
    condition     = !var.role.create || can(jsondecode(var.role.trust_policy).Statement)
    error_message = "role.trust_policy is the JSON of a policy when role.create is true."
  }
}
