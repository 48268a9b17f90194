# What the backend's setup() creates; a test compares the two tables.
locals {
  attributes    = { pk = "S", sk = "S" }
  hash_key      = "pk"
  range_key     = "sk"
  ttl_attribute = "expire_at"

  # Global secondary indexes: name => keys and projection.
  indexes = {}
}
