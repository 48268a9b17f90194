# What the backend's setup() creates, in durastore_dynamodb.layout; a test compares the two tables.
locals {
  attributes    = { due = "N", pk = "S", run = "S", sk = "S", todo = "S" }
  hash_key      = "pk"
  range_key     = "sk"
  ttl_attribute = "ttl"

  # Global secondary indexes, sparse and of keys alone.
  indexes = {
    by_run  = { hash_key = "run", range_key = "sk" }
    by_todo = { hash_key = "todo", range_key = "due" }
  }
}
