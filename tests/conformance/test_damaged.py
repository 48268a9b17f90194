"""Records and runs that durastore did not write so, put into each store by its own means: fields that are missing or of another
type, states of a later version. Every verb that meets one says so in one line; none guesses, and none mends it.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore.contract import ClaimRequest
from durastore.errors import PayloadError
from tests.conformance.test_stores import url_of

MISSING: Any = object()
Write = Callable[[durastore.Store, str, Any], None]
"""Set a field of the record of key ``key`` behind durastore's back, or remove it."""


def _sqlite(store: Any, field: str, value: Any) -> None:
    def work(connection: sqlite3.Connection) -> None:
        statement = f"UPDATE durastore_records SET {field} = ? WHERE namespace = ?"
        connection.execute(statement, (value, store.backend._namespace))

    store.backend._connections.write(work)


def _sql(store: Any, field: str, value: Any) -> None:
    mark = "`" if store.backend.scheme == "mysql" else '"'
    with store.backend._pool.transaction() as connection:
        statement = f"UPDATE durastore_records SET {mark}{field}{mark} = %(value)s WHERE namespace = %(namespace)s"
        connection.exec_driver_sql(statement, {"value": value, "namespace": store.backend._namespace})


def _firestore(store: Any, field: str, value: Any) -> None:
    from google.cloud.firestore import DELETE_FIELD

    path = store.backend._space.names.record("key").partition("/documents/")[2]
    store.backend.client.document(path).update({field: DELETE_FIELD if value is MISSING else value})


def _dynamodb(store: Any, field: str, value: Any) -> None:
    place = {
        "TableName": "durastore",
        "Key": store.backend._names.record("key"),
        "ExpressionAttributeNames": {"#f": field},
    }
    if value is MISSING:
        store.backend.client.update_item(UpdateExpression="REMOVE #f", **place)
    else:
        typed = {"S": value} if isinstance(value, str) else {"N": str(value)}
        values = {":v": typed}
        store.backend.client.update_item(UpdateExpression="SET #f = :v", ExpressionAttributeValues=values, **place)


WRITES: dict[str, Write] = {
    "sqlite": _sqlite,
    "postgresql": _sql,
    "mysql": _sql,
    "firestore": _firestore,
    "dynamodb": _dynamodb,
}
FUTURE = [("state", "suspended")]
DAMAGE: dict[str, list[tuple[str, Any]]] = {
    "sqlite": [
        *FUTURE,
        ("attempt", "many"),
        ("token", b"\xff"),
        ("owner", b"x"),
        ("expires_at", "soon"),
        ("result", "text"),
    ],
    "postgresql": FUTURE,
    "mysql": FUTURE,
    "firestore": [
        *FUTURE,
        ("state", MISSING),
        ("attempt", "many"),
        ("nonce", MISSING),
        ("owner", 7),
        ("lease", "long"),
    ],
    "dynamodb": [
        *FUTURE,
        ("state", MISSING),
        ("attempt", "many"),
        ("nonce", MISSING),
        ("owner", 7),
        ("expires_at", "soon"),
    ],
}
CASES = [(store, *damage) for store, damages in DAMAGE.items() for damage in damages]


def _opened(name: str, folder: Path) -> durastore.Store:
    return durastore.open(url_of(name, folder), namespace=f"t-{uuid.uuid4().hex}", create=True)


def _request(key: str = "key", lease: int = 60_000_000) -> ClaimRequest:
    return ClaimRequest(key, "run", "somebody", uuid.uuid4().hex, lease)


VERBS: dict[str, Callable[[durastore.Store], Any]] = {
    "read": lambda store: store.record("key"),
    "scan": lambda store: list(store.records()),
    "claim": lambda store: store.backend.claim(_request()),
    "read again": lambda store: store.record("key"),
}


@pytest.mark.parametrize(("name", "field", "value"), CASES, ids=lambda value: "missing" if value is MISSING else None)
def test_damaged_record(name: str, field: str, value: Any, tmp_path: Path) -> None:
    """Each verb raises `PayloadError`, in one line; the record stays as it is, and other keys are not concerned."""
    refused(name, field, value, tmp_path)


def refused(
    name: str, field: str, value: Any, folder: Path, wrap: Callable[[Any], Any] = lambda backend: backend
) -> None:
    """A record that is damaged, met by each verb of a store behind a wrapper."""
    with _opened(name, folder) as store:
        store.backend = wrap(store.backend)
        store.backend.claim(_request(lease=0))
        WRITES[name](store, field, value)
        for verb, call in VERBS.items():
            with pytest.raises(PayloadError) as said:
                pytest.fail(f"{verb} took it: {call(store)}")
            assert "\n" not in str(said.value), verb
            assert "damaged" in str(said.value), verb
        assert store.checkpoint("run").run_once("other", lambda: 1).value == 1
