"""Floors: one durable write by the raw driver, under the same settings as the store's. What durastore is measured against."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

Write = Callable[[], None]
_VALUE = b'json\n{"ok":true}'


def floor(url: str, prefix: str = "") -> tuple[Write, Write, Callable[[], None]]:
    """``(write, read, close)`` for the store of a URL: one durable write, one read by primary key, and the end.

    `prefix` keeps the keys of several processes apart.
    """
    scheme, prefix = url.partition("://")[0], prefix or f"{time.time_ns()}-"
    return {"sqlite": _sqlite, "postgresql": _postgresql, "dynamodb": _dynamodb, "firestore": _firestore}[scheme](
        url, prefix
    )


def _sqlite(url: str, prefix: str) -> tuple[Write, Write, Callable[[], None]]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///") + ".floor", isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS floor (key TEXT PRIMARY KEY, value BLOB)")
    numbers = itertools.count()

    def write() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO floor VALUES (?, ?)", (f"{prefix}key-{next(numbers)}", _VALUE))
        connection.execute("COMMIT")

    def read() -> None:
        connection.execute("SELECT value FROM floor WHERE key = ?", (f"{prefix}key-0",)).fetchone()

    return write, read, connection.close


def _postgresql(url: str, prefix: str) -> tuple[Write, Write, Callable[[], None]]:
    import psycopg

    connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    with contextlib.suppress(
        psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable
    ):  # another process was first
        connection.execute("CREATE TABLE IF NOT EXISTS durastore_floor (key text PRIMARY KEY, value bytea)")
    numbers = itertools.count()

    def write() -> None:
        connection.execute("INSERT INTO durastore_floor VALUES (%s, %s)", (f"{prefix}key-{next(numbers)}", _VALUE))

    def read() -> None:
        connection.execute("SELECT value FROM durastore_floor WHERE key = %s", (f"{prefix}key-0",)).fetchone()

    return write, read, connection.close


def _dynamodb(url: str, prefix: str) -> tuple[Write, Write, Callable[[], None]]:
    import boto3

    options = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    endpoint = options.get("endpoint_url")
    dummy = {"aws_access_key_id": "test", "aws_secret_access_key": "test"} if endpoint else {}
    client: Any = boto3.client(
        "dynamodb", endpoint_url=endpoint, region_name=options.get("region", "us-east-1"), **dummy
    )
    table = f"durastore-floor-{time.time_ns()}"
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})
    numbers = itertools.count()

    def write() -> None:
        client.put_item(
            TableName=table,
            Item={"pk": {"S": f"{prefix}key-{next(numbers)}"}, "value": {"B": _VALUE}},
            ConditionExpression="attribute_not_exists(pk)",
        )

    def read() -> None:
        client.get_item(TableName=table, Key={"pk": {"S": f"{prefix}key-0"}}, ConsistentRead=True)

    def close() -> None:
        client.delete_table(TableName=table)
        client.close()

    return write, read, close


def _firestore(url: str, prefix: str) -> tuple[Write, Write, Callable[[], None]]:
    import os

    from google.auth.credentials import AnonymousCredentials
    from google.cloud import firestore

    parts = urlsplit(url)
    os.environ["FIRESTORE_EMULATOR_HOST"] = parse_qs(parts.query)["emulator_host"][0]
    client = firestore.Client(project=parts.netloc, credentials=AnonymousCredentials())
    collection = client.collection(f"durastore-floor-{time.time_ns()}")
    numbers = itertools.count()

    def write() -> None:
        collection.document(f"{prefix}key-{next(numbers)}").create({"value": _VALUE})

    def read() -> None:
        collection.document("key-0").get()

    return write, read, client.close
