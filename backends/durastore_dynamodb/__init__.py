"""durastore on DynamoDB: ``dynamodb://TABLE?region=…&endpoint_url=…&profile=…``.

Options of the URL: `region`, `endpoint_url`, `profile` (else by boto3's own chain; an endpoint on this machine needs
neither region nor credentials), `timeout` (seconds for one answer, 10), `connect_timeout` (3), `connections` (kept open,
32), `attempts` (requests that one call of the client may make, 2), `fuse` (claim the next key in the transaction of the
commit: true, false, or when not given where the commit is a transaction anyway).

`setup()` creates the table for development; in production Terraform does. `ACTIONS` are the rights of a client, `STEPS`
what a step costs in request units.
"""

from __future__ import annotations

from durastore.urls import StoreURL
from durastore_dynamodb.backend import DynamoDBBackend
from durastore_dynamodb.costs import ACTIONS, OPTIONAL_ACTIONS, READ_ACTIONS, SETUP_ACTIONS, STEPS
from durastore_dynamodb.layout import INDEXES, TTL, table_definition
from durastore_dynamodb.target import Target, parse

__all__ = [
    "ACTIONS",
    "INDEXES",
    "OPTIONAL_ACTIONS",
    "READ_ACTIONS",
    "SETUP_ACTIONS",
    "STEPS",
    "TTL",
    "DynamoDBBackend",
    "Target",
    "connect",
    "table_definition",
]


def connect(url: StoreURL) -> DynamoDBBackend:
    """Open ``dynamodb://TABLE``; one request looks at the table.

    Raises `ConfigError` for a bad URL, without a region, and for a table with replicas in other regions.
    """
    backend = DynamoDBBackend(parse(url))
    backend.look()
    return backend
