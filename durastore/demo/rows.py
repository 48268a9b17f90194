"""For *transact*: deliveries as rows in the store itself, written through its own transaction, whatever the store.

A row is named by key and token, so that a second delivery of a key would be a second row. Everything goes through `transact`,
which is the door to the store's own transaction that every user has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from durastore.errors import ConfigError
from durastore.store import Store

__all__ = ["keys", "prepare", "write"]

_TABLE = "durastore_demo"
_CREATE = f"CREATE TABLE IF NOT EXISTS {_TABLE} (run VARCHAR(80) NOT NULL, delivery VARCHAR(400) NOT NULL, token BIGINT NOT NULL)"


def prepare(store: Store) -> None:
    """Make the table, where the store has tables. Raises `ConfigError` for a store that the demo cannot write rows to."""
    _once(store, partial(_kind(store).prepare, store))


def write(store: Store, tx: Any, run: str, key: str, token: int) -> None:
    """Add a delivery through the store's own transaction."""
    _kind(store).write(tx, run, key, token)


def keys(store: Store, run: str) -> list[str]:
    """The key of every delivery of a run."""
    found: list[str] = _once(store, partial(_kind(store).keys, store, run))
    return found


def _once(store: Store, effect: Callable[[Any], Any]) -> Any:
    return store.checkpoint("demo-rows", retain=0).transact(f"demo-rows-{time.time_ns()}", effect).value


class _Kind(NamedTuple):
    prepare: Callable[[Store, Any], None]
    write: Callable[[Any, str, str, int], None]
    keys: Callable[[Store, str, Any], list[str]]


def _kind(store: Store) -> _Kind:
    scheme = store.backend.scheme.rpartition("+")[2]
    if scheme not in _KINDS:
        raise ConfigError(
            f"the demo kills processes and writes rows, which {scheme}:// is not for; try sqlite:///demo.db"
        )
    return _KINDS[scheme]


def _sqlite_prepare(_store: Store, tx: Any) -> None:
    tx.execute(_CREATE)


def _sqlite_write(tx: Any, run: str, key: str, token: int) -> None:
    tx.execute(f"INSERT INTO {_TABLE} VALUES (?, ?, ?)", (run, key, token))  # noqa: S608  a constant


def _sqlite_keys(_store: Store, run: str, tx: Any) -> list[str]:
    return [key for (key,) in tx.execute(f"SELECT delivery FROM {_TABLE} WHERE run = ?", (run,))]  # noqa: S608  a constant


def _sql_prepare(_store: Store, tx: Any) -> None:
    tx.exec_driver_sql(_CREATE)


def _sql_write(tx: Any, run: str, key: str, token: int) -> None:
    tx.exec_driver_sql(f"INSERT INTO {_TABLE} VALUES (%s, %s, %s)", (run, key, token))  # noqa: S608  a constant


def _sql_keys(_store: Store, run: str, tx: Any) -> list[str]:
    rows = tx.exec_driver_sql(f"SELECT delivery FROM {_TABLE} WHERE run = %s", (run,))  # noqa: S608  a constant
    return [key for (key,) in rows]


def _firestore_prepare(_store: Store, _tx: Any) -> None:
    """Collections need no making."""


def _firestore_write(tx: Any, run: str, key: str, token: int) -> None:
    row = tx.client.collection(_TABLE).document(f"{key.replace('/', '|')}-{token}")
    tx.set(row, {"run": run, "delivery": key})


def _firestore_keys(_store: Store, run: str, tx: Any) -> list[str]:
    from google.cloud.firestore_v1.base_query import FieldFilter

    rows = tx.client.collection(_TABLE).where(filter=FieldFilter("run", "==", run))
    return [row.get("delivery") for row in rows.stream()]


def _dynamodb_prepare(store: Store, _tx: Any) -> None:
    names = {"run": "HASH", "delivery": "RANGE"}
    client: Any = store.backend.client  # type: ignore[attr-defined]  # this backend has one
    try:
        client.create_table(
            TableName=_TABLE,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
            BillingMode="PAY_PER_REQUEST",
        )
    except client.exceptions.ResourceInUseException:
        return
    client.get_waiter("table_exists").wait(TableName=_TABLE, WaiterConfig={"Delay": 1})


def _dynamodb_write(tx: Any, run: str, key: str, token: int) -> None:
    item = {"run": {"S": run}, "delivery": {"S": f"{key} {token}"}}
    tx.append({"Put": {"TableName": _TABLE, "Item": item}})


def _dynamodb_keys(store: Store, run: str, _tx: Any) -> list[str]:
    client: Any = store.backend.client  # type: ignore[attr-defined]  # this backend has one
    pages = client.get_paginator("query").paginate(
        TableName=_TABLE,
        ConsistentRead=True,
        KeyConditionExpression="#run = :run",
        ExpressionAttributeNames={"#run": "run"},
        ExpressionAttributeValues={":run": {"S": run}},
    )
    return [item["delivery"]["S"].rpartition(" ")[0] for page in pages for item in page["Items"]]


_KINDS = {
    "sqlite": _Kind(_sqlite_prepare, _sqlite_write, _sqlite_keys),
    "postgresql": _Kind(_sql_prepare, _sql_write, _sql_keys),
    "mysql": _Kind(_sql_prepare, _sql_write, _sql_keys),
    "firestore": _Kind(_firestore_prepare, _firestore_write, _firestore_keys),
    "dynamodb": _Kind(_dynamodb_prepare, _dynamodb_write, _dynamodb_keys),
}
