"""Floors: one durable write by the raw driver, under the same settings as the store's. What durastore is measured against."""

from __future__ import annotations

import itertools
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from durastore import urls
from durastore.errors import ConfigError

__all__ = ["Floor", "floor", "new_table", "remove_file"]

_VALUE = b'json\n{"ok":true}'


@dataclass(frozen=True, slots=True)
class Floor:
    """The raw driver at work in a table of its own."""

    version: str
    """What serves, as far as the driver knows."""
    write: Callable[[], object]
    """One durable write of a new row."""
    read: Callable[[], object]
    """One read by primary key, of a row that is there once `write` was called."""
    close: Callable[[], None]
    """End the connection; whoever made the table removes it."""


class _Place:
    """A new table, and keys in it that no other worker has."""

    def __init__(self, url: urls.StoreURL, table: str, worker: int) -> None:
        self.url = url
        self.table = table
        self.owner = worker == 0
        mine = secrets.token_hex(4)
        self.first = f"{mine}-0"
        self.next = (f"{mine}-{number}" for number in itertools.count()).__next__


def floor(url: str, table: str, worker: int | None = None) -> Floor:
    """The floor of a store, in a new `table` for it alone.

    Several workers share one table: the first, 0, makes and removes it. Raises `ConfigError` for a store that has none.
    """
    parsed = urls.parse(url)
    make = _FLOORS.get(parsed.scheme.rpartition("+")[2])
    if make is None:
        known = ", ".join(f"{name}://" for name in _FLOORS)
        raise ConfigError(f"{parsed.scheme}:// has no raw driver to compare with; one of {known}")
    urls.connect(parsed).close()  # says what is wrong with the URL, or which package is missing
    return make(_Place(parsed, table, worker or 0))


def _sqlite(place: _Place) -> Floor:
    path = Path(f"{place.url.path.removeprefix('/')}.{place.table}")
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS floor (key TEXT PRIMARY KEY, value BLOB)")

    def write() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO floor VALUES (?, ?)", (place.next(), _VALUE))
        connection.execute("COMMIT")

    def read() -> Any:
        return connection.execute("SELECT value FROM floor WHERE key = ?", (place.first,)).fetchone()

    def close() -> None:
        connection.close()
        if place.owner:
            remove_file(path)

    return Floor(f"SQLite {sqlite3.sqlite_version}", write, read, close)


def remove_file(path: Path) -> None:
    """Remove a SQLite file with what belongs to it."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _postgresql(place: _Place) -> Floor:
    from psycopg import errors

    connection = _connection(place.url)
    connection.autocommit = True
    connection.prepare_threshold = None
    with suppress(errors.UniqueViolation, errors.DuplicateTable):  # another worker was first
        connection.execute(f'CREATE TABLE IF NOT EXISTS "{place.table}" (key text PRIMARY KEY, value bytea)')

    def write() -> Any:
        return connection.execute(f'INSERT INTO "{place.table}" VALUES (%s, %s)', (place.next(), _VALUE))  # noqa: S608  our own name

    def read() -> Any:
        return connection.execute(f'SELECT value FROM "{place.table}" WHERE key = %s', (place.first,)).fetchone()  # noqa: S608

    version = connection.execute("SHOW server_version").fetchone()[0].split()[0]
    drop = partial(connection.execute, f'DROP TABLE IF EXISTS "{place.table}"')
    return Floor(f"PostgreSQL {version}", write, read, partial(_end, connection, drop if place.owner else None))


def _mysql(place: _Place) -> Floor:
    connection = _connection(place.url)
    connection.autocommit(True)

    def execute(statement: str, *values: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchone()

    execute(
        f"CREATE TABLE IF NOT EXISTS `{place.table}` (`key` varchar(200) PRIMARY KEY, value longblob) ENGINE=InnoDB"
    )
    return Floor(
        f"MySQL {connection.get_server_info()}",
        lambda: execute(f"INSERT INTO `{place.table}` VALUES (%s, %s)", place.next(), _VALUE),  # noqa: S608  our own name
        lambda: execute(f"SELECT value FROM `{place.table}` WHERE `key` = %s", place.first),  # noqa: S608
        partial(_end, connection, partial(execute, f"DROP TABLE IF EXISTS `{place.table}`") if place.owner else None),
    )


def _connection(url: urls.StoreURL) -> Any:
    """A connection of the driver, made as the store makes its own."""
    from durastore_cloudsql.targets import target

    return target(url, url.options).connect()


def _end(connection: Any, drop: Callable[[], object] | None) -> None:
    try:
        if drop is not None:
            drop()
    finally:
        connection.close()


def _dynamodb(place: _Place) -> Floor:
    from durastore_dynamodb import target

    found = target.parse(place.url)
    client = found.client(lambda: None)
    if place.owner:
        client.create_table(
            TableName=place.table,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        client.get_waiter("table_exists").wait(TableName=place.table, WaiterConfig={"Delay": 1})

    def write() -> Any:
        return client.put_item(
            TableName=place.table,
            Item={"pk": {"S": place.next()}, "value": {"B": _VALUE}},
            ConditionExpression="attribute_not_exists(pk)",
        )

    def read() -> Any:
        return client.get_item(TableName=place.table, Key={"pk": {"S": place.first}}, ConsistentRead=True)["Item"]

    def close() -> None:
        if place.owner:
            client.delete_table(TableName=place.table)
        client.close()

    return Floor("DynamoDB" + (f" at {found.endpoint_url}" if found.endpoint_url else ""), write, read, close)


def _firestore(place: _Place) -> Floor:
    from durastore_firestore import target

    found = target.parse(place.url)
    channel = found.channel()
    client = found.client(channel)
    collection = client.collection(place.table)

    def close() -> None:
        if place.owner:
            client.recursive_delete(collection)
        channel.close()

    return Floor(
        "Firestore" + (" emulator" if found.emulator_host else ""),
        lambda: collection.document(place.next()).create({"value": _VALUE}),
        lambda: collection.document(place.first).get().to_dict(),
        close,
    )


def new_table() -> str:
    """A name that no other run of a benchmark has."""
    return f"durastore-bench-{time.time_ns()}"


_FLOORS: dict[str, Callable[[_Place], Floor]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "mysql": _mysql,
    "dynamodb": _dynamodb,
    "firestore": _firestore,
}
