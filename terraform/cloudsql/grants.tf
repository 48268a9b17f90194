# The provider grants nothing inside a database, so these are statements for an administrator to run once, after
# `durastore init` made the tables: the rows of durastore's tables, and nothing else.
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

  # By itself PostgreSQL lets every user of the instance into every database, and before version 15 make tables there.
  closing = local.postgresql ? [
    "REVOKE ALL ON DATABASE \"${var.database}\" FROM PUBLIC;",
    "REVOKE CREATE ON SCHEMA public FROM PUBLIC;",
  ] : []
  entering = local.postgresql ? [
    for key in keys(local.users) : "GRANT CONNECT ON DATABASE \"${var.database}\" TO \"${local.logins[key]}\";"
  ] : []
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
