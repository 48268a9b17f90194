locals {
  # What durastore does with its tables when they are there; a test holds a user to it.
  rights = {
    reader = { chunks = "SELECT", records = "SELECT", runs = "SELECT", version = "SELECT" }
    writer = {
      chunks  = "SELECT, INSERT, UPDATE, DELETE"
      records = "SELECT, INSERT, UPDATE, DELETE"
      runs    = "SELECT, INSERT, UPDATE, DELETE"
      version = "SELECT"
    }
  }
  grants = flatten([
    for key, user in local.users : [
      for table, rights in local.rights[user.role] : (
        local.postgresql
        ? "GRANT ${rights} ON durastore_${table} TO \"${local.logins[key]}\";"
        : "GRANT ${rights} ON `${var.database}`.`durastore_${table}` TO '${local.logins[key]}'@'%';"
      )
    ]
  ])
}
