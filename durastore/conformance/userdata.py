"""How the suite writes the application's own data through a store's own transaction, for the TRANSACT clauses.

A backend from elsewhere says how under the entry-point group ``durastore.conformance``: the name is the scheme, the object a
function without arguments that returns a `UserData`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any, Protocol

from durastore.contract import Backend, ClaimRequest, Granted, Payload

__all__ = ["UserData", "through", "user_data_for"]

GROUP = "durastore.conformance"
TABLE = "durastore_conformance_data"
_LEASE = 60_000_000


class UserData(Protocol):
    """One application's table, bucket or collection, beside durastore's own. Made anew for each test."""

    def prepare(self, backend: Backend) -> None:
        """Create what `write` needs, unless it is there."""
        ...

    def write(self, tx: Any, name: str, value: str) -> None:
        """Write through the transaction that `Backend.transact` gave to its effect."""
        ...

    def read(self, backend: Backend, name: str) -> str | None:
        """What is stored under a name by now; None when nothing is."""
        ...

    def clear(self, backend: Backend) -> None:
        """Remove what `write` wrote."""
        ...


def user_data_for(scheme: str) -> UserData | None:
    """The `UserData` for a URL scheme, None when nobody knows any."""
    kind = _kind(scheme)
    return None if kind is None else kind()


@cache
def _kind(scheme: str) -> Callable[[], UserData] | None:
    for point in entry_points(group=GROUP, name=scheme):
        found: Callable[[], UserData] = point.load()
        return found
    return _BUILT_IN.get(scheme.partition("+")[2] or scheme)


def through(backend: Backend, work: Callable[[Any], Any]) -> Any:
    """What `work(tx)` returns, called in a transaction of its own, under a key of its own."""
    found: list[Any] = []

    def effect(tx: Any) -> Payload:
        found.append(work(tx))
        return Payload(b"")

    key = f"user data {os.urandom(12).hex()}"
    answer = backend.claim(ClaimRequest(key, "user data", "the suite", key, _LEASE))
    assert isinstance(answer, Granted)
    backend.transact(answer.grant, effect)
    return found[-1]


class _MemoryUserData:
    """`tx` is a dictionary."""

    def prepare(self, backend: Backend) -> None:
        """A dictionary needs nothing."""

    def write(self, tx: Any, name: str, value: str) -> None:
        tx[name] = value

    def read(self, backend: Any, name: str) -> str | None:
        found: str | None = backend.user_data.get(name)
        return found

    def clear(self, backend: Any) -> None:
        backend.user_data.clear()


class _Names:
    """What is to be cleared."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def adopt(self, names: Iterable[str]) -> None:
        """Clear what other processes wrote, too."""
        self._names.update(names)


class _TableUserData(_Names):
    """`tx` is a `sqlite3.Connection` or a SQLAlchemy `Connection`: a table with a row for each name."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        super().__init__()
        self._execute = execute

    def prepare(self, backend: Backend) -> None:
        create = f"CREATE TABLE IF NOT EXISTS {TABLE} (name VARCHAR(64) PRIMARY KEY, value VARCHAR(64))"
        through(backend, lambda tx: self._execute(tx, create))

    def write(self, tx: Any, name: str, value: str) -> None:
        self._names.add(name)
        self._execute(tx, f"INSERT INTO {TABLE} (name, value) VALUES (:name, :value)", name=name, value=value)  # noqa: S608

    def read(self, backend: Backend, name: str) -> str | None:
        query = f"SELECT value FROM {TABLE} WHERE name = :name"  # noqa: S608  a constant
        row = through(backend, lambda tx: self._execute(tx, query, name=name).fetchone())
        return None if row is None else str(row[0])

    def clear(self, backend: Backend) -> None:
        delete = f"DELETE FROM {TABLE} WHERE name = :name"  # noqa: S608  a constant
        for name in self._names:
            through(backend, partial(self._execute, statement=delete, name=name))


def _execute_sqlite(tx: Any, statement: str, **values: str) -> Any:
    return tx.execute(statement, values)


def _execute_sqlalchemy(tx: Any, statement: str, **values: str) -> Any:
    from sqlalchemy import text

    return tx.execute(text(statement), values)


class _FirestoreUserData(_Names):
    """`tx` is a write batch: a collection with a document for each name."""

    def prepare(self, backend: Backend) -> None:
        """A collection needs nothing."""

    def write(self, tx: Any, name: str, value: str) -> None:
        self._names.add(name)
        tx.set(tx.client.collection(TABLE).document(name), {"value": value})

    def read(self, backend: Backend, name: str) -> str | None:
        found: str | None = through(backend, lambda tx: tx.client.collection(TABLE).document(name).get()).get("value")
        return found

    def clear(self, backend: Backend) -> None:
        for name in self._names:
            through(backend, partial(self._delete, name))

    @staticmethod
    def _delete(name: str, tx: Any) -> None:
        tx.delete(tx.client.collection(TABLE).document(name))


class _DynamoDBUserData(_Names):
    """`tx` is a list of transact items: a table with an item for each name. `backend.client` is a low-level boto3 client."""

    def prepare(self, backend: Any) -> None:
        client = backend.client
        try:
            client.create_table(
                TableName=TABLE,
                KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        except client.exceptions.ResourceInUseException:
            return
        client.get_waiter("table_exists").wait(TableName=TABLE, WaiterConfig={"Delay": 1})

    def write(self, tx: Any, name: str, value: str) -> None:
        self._names.add(name)
        tx.append({"Put": {"TableName": TABLE, "Item": {"name": {"S": name}, "value": {"S": value}}}})

    def read(self, backend: Any, name: str) -> str | None:
        found = backend.client.get_item(TableName=TABLE, Key={"name": {"S": name}}, ConsistentRead=True)
        return str(found["Item"]["value"]["S"]) if "Item" in found else None

    def clear(self, backend: Any) -> None:
        for name in self._names:
            backend.client.delete_item(TableName=TABLE, Key={"name": {"S": name}})


_BUILT_IN: dict[str, Callable[[], UserData]] = {
    "memory": _MemoryUserData,
    "sqlite": lambda: _TableUserData(_execute_sqlite),
    "postgresql": lambda: _TableUserData(_execute_sqlalchemy),
    "mysql": lambda: _TableUserData(_execute_sqlalchemy),
    "firestore": _FirestoreUserData,
    "dynamodb": _DynamoDBUserData,
}
