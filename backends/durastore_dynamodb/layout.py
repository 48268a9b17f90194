"""The table: what lies where, and which indexes find it.

One table, keys `pk` and `sk`, two sparse indexes that hold keys alone::

    item       pk                      sk       run (index by_run)   todo, due (index by_todo)
    record     NAMESPACE/r/SHARD       key      NAMESPACE/RUN_ID     not committed: NAMESPACE/open/SHARD, when it was created
                                                                     retained: NAMESPACE/due/SHARD, when retention ends
                                                                     removed: likewise, an hour after its token
    run        NAMESPACE/u/SHARD       run id
    payload    NAMESPACE/b/BLOB        -                             NAMESPACE/blob/SHARD, when to see whether it is orphaned
    chunk      NAMESPACE/c/BLOB/INDEX  -

A key's shard is a hash of it, one of 16. Listings of everything, by prefix and of committed records are 16 queries of the
table itself, strongly consistent. In return a namespace begins with 16 partition keys of 1,000 write units per second
each (about 5,000 steps per second); DynamoDB splits them further by itself when they stay hot. Listings by run and by
state find *which* records by an index, which is eventually consistent (as a rule by less than a second), and then read
the records consistently.

What is removed within an hour leaves an item with its last number behind (a record's token, a run's incarnation), which nobody
sees: a request that draws a first number may be on its way, and that must be higher.

`SHARDS` and the hash are part of the layout: two clients that differ in them would not see each other's claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

__all__ = ["BY_RUN", "BY_TODO", "INDEXES", "SHARDS", "TTL", "Key", "Names", "table_definition"]

Key = dict[str, dict[str, str]]
SHARDS = "0123456789abcdef"
BY_RUN = "by_run"
BY_TODO = "by_todo"
TTL = "ttl"
INDEXES: dict[str, tuple[tuple[str, str, str], ...]] = {
    BY_RUN: (("run", "HASH", "S"), ("sk", "RANGE", "S")),
    BY_TODO: (("todo", "HASH", "S"), ("due", "RANGE", "N")),
}
"""Global secondary indexes: (attribute, kind of key, type). Each projects keys alone."""
_KEYS = (("pk", "HASH", "S"), ("sk", "RANGE", "S"))


def table_definition(table: str) -> dict[str, Any]:
    """What `create_table` takes."""
    columns = {name: kind for keys in (_KEYS, *INDEXES.values()) for name, _, kind in keys}
    return {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in columns.items()],
        "KeySchema": key_schema(_KEYS),
        "GlobalSecondaryIndexes": [
            {"IndexName": name, "KeySchema": key_schema(keys), "Projection": {"ProjectionType": "KEYS_ONLY"}}
            for name, keys in INDEXES.items()
        ],
    }


def key_schema(keys: tuple[tuple[str, str, str], ...]) -> list[dict[str, str]]:
    """A key schema as the API writes it."""
    return [{"AttributeName": name, "KeyType": kind} for name, kind, _ in keys]


def shard_of(text: str) -> str:
    """The shard of a key, run id or blob."""
    return SHARDS[sha256(text.encode()).digest()[0] % len(SHARDS)]


@dataclass(frozen=True, slots=True)
class Names:
    """Where the items of one namespace are."""

    namespace: str

    def record(self, key: str) -> Key:
        """A record's primary key."""
        return _key(self.records(shard_of(key)), key)

    def records(self, shard: str) -> str:
        """The partition key of a shard of the records."""
        return f"{self.namespace}/r/{shard}"

    def run(self, run_id: str) -> Key:
        """A run's primary key."""
        return _key(self.runs(shard_of(run_id)), run_id)

    def runs(self, shard: str) -> str:
        """The partition key of a shard of the runs."""
        return f"{self.namespace}/u/{shard}"

    def payload(self, blob: str) -> Key:
        """The primary key of the item that describes a payload."""
        return _key(f"{self.namespace}/b/{blob}", "-")

    def chunk(self, blob: str, index: int) -> Key:
        """A chunk's primary key."""
        return _key(f"{self.namespace}/c/{blob}/{index}", "-")

    def run_of(self, run_id: str) -> str:
        """The `run` of a record."""
        return f"{self.namespace}/{run_id}"

    def run_id(self, run: str) -> str:
        """The run id in the `run` of a record."""
        return run[len(self.namespace) + 1 :]

    def todo(self, what: str, shard: str) -> str:
        """``open``, ``due`` or ``blob``: the `todo` of one shard."""
        return f"{self.namespace}/{what}/{shard}"


def _key(pk: str, sk: str) -> Key:
    return {"pk": {"S": pk}, "sk": {"S": sk}}
