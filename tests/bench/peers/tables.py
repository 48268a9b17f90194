"""Tables in DynamoDB that are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import boto3

from durastore import urls
from durastore_dynamodb import target


def asking(url: str) -> dict[str, str]:
    """How a client of the user's own reaches the server of a store's URL; an emulator wants some credentials."""
    found = target.parse(urls.parse(url))
    options = {"region_name": found.region or "us-east-1"}
    if found.endpoint_url:
        options |= {"endpoint_url": found.endpoint_url, "aws_access_key_id": "peers", "aws_secret_access_key": "peers"}
    return options


@contextmanager
def client_of(url: str) -> Iterator[Any]:
    """boto3's client, as it comes."""
    client: Any = boto3.client("dynamodb", **asking(url))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def table(client: Any, name: str, *, key: str) -> Iterator[None]:
    """A table with a partition key of strings."""
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
    try:
        yield
    finally:
        drop(client, name)


def drop(client: Any, name: str) -> None:
    """Delete a table, if it is there."""
    with suppress(client.exceptions.ResourceNotFoundException):
        client.delete_table(TableName=name)
