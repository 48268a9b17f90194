"""Records and runs that durastore did not write so, put into each store by its own means: fields that are missing or of another
type, states of a later version. Every verb that meets one says so in one line; none guesses, and none mends it.
"""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import durastore
from durastore.contract import ClaimRequest, Payload, StoredProgress
from durastore.errors import PayloadError
from tests.conformance.test_stores import url_of

MISSING: Any = object()
What = Literal["record", "run", "chunk"]
Write = Callable[[durastore.Store, What, str, Any], None]
"""Set a field of the record of key ``key``, of the run ``run``, or of the first chunk of that key's result, or remove it: behind
durastore's back."""


def _sqlite(store: Any, what: What, field: str, value: Any) -> None:
    def work(connection: sqlite3.Connection) -> None:
        statement = f"UPDATE durastore_{what}s SET {field} = ? WHERE namespace = ?"
        connection.execute(statement, (value, store.backend._namespace))

    store.backend._connections.write(work)


def _sql(store: Any, what: What, field: str, value: Any) -> None:
    mark = "`" if store.backend.scheme == "mysql" else '"'
    with store.backend._pool.transaction() as connection:
        statement = f"UPDATE durastore_{what}s SET {mark}{field}{mark} = %(value)s WHERE namespace = %(namespace)s"
        connection.exec_driver_sql(statement, {"value": value, "namespace": store.backend._namespace})


def _place(store: Any, what: What, names: Any) -> Any:
    if what == "chunk":
        return names.chunk(store.backend.read(["key"])[0].result.blob, 0)
    return names.record("key") if what == "record" else names.run("run")


def _firestore(store: Any, what: What, field: str, value: Any) -> None:
    from google.cloud.firestore import DELETE_FIELD

    names = store.backend._space.names
    path = _place(store, what, names).partition("/documents/")[2]
    store.backend.client.document(path).update({field: DELETE_FIELD if value is MISSING else value})


def _dynamodb(store: Any, what: What, field: str, value: Any) -> None:
    names = store.backend._names
    place = {
        "TableName": "durastore",
        "Key": _place(store, what, names),
        "ExpressionAttributeNames": {"#f": field},
    }
    if value is MISSING:
        store.backend.client.update_item(UpdateExpression="REMOVE #f", **place)
    else:
        typed: Any = {"S": value} if isinstance(value, str) else {"N": str(value)}
        typed = {"B": value} if isinstance(value, bytes) else typed
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
RUNS: dict[str, list[tuple[str, Any]]] = {
    "sqlite": [("step", "many"), ("state", "text"), ("updated_at", b"x"), ("incarnation", "x")],
    "firestore": [("step", "many"), ("step", MISSING), ("run_id", MISSING), ("state", "text"), ("incarnation", "x")],
    "dynamodb": [("step", "many"), ("state", "text"), ("incarnation", "x")],
}
"""The columns of PostgreSQL and MySQL have types, and hold nothing of another."""
RUN_CASES = [(store, *damage) for store, damages in RUNS.items() for damage in damages]
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
        WRITES[name](store, "record", field, value)
        for verb, call in VERBS.items():
            with pytest.raises(PayloadError) as said:
                pytest.fail(f"{verb} took it: {call(store)}")
            assert "\n" not in str(said.value), verb
            assert "damaged" in str(said.value), verb
        assert store.checkpoint("run").run_once("other", lambda: 1).value == 1


STATE = Payload(b"json\n9")
RUN_VERBS: dict[str, Callable[[durastore.Store], Any]] = {
    "load": lambda store: store.checkpoint("run").load(),
    "scan_runs": lambda store: list(store.runs()),
    "incarnate": lambda store: store.checkpoint("run", supersede=True),
    "save": lambda store: store.call("save", store.backend.save, StoredProgress("run", 9, STATE)),
    "load again": lambda store: store.checkpoint("run").load(),
}


def _concerned(verb: str, field: str) -> bool:
    """`save` and `incarnate` need not look at what they do not keep."""
    return {"save": field in ("step", "run_id"), "incarnate": field == "incarnation"}.get(verb, True)


@pytest.mark.parametrize(
    ("name", "field", "value"), RUN_CASES, ids=lambda value: "missing" if value is MISSING else None
)
def test_damaged_run(name: str, field: str, value: Any, tmp_path: Path) -> None:
    """The same of a run's progress."""
    with _opened(name, tmp_path) as store:
        store.checkpoint("run").save_progress(1, "state")
        WRITES[name](store, "run", field, value)
        for verb, call in RUN_VERBS.items():
            if not _concerned(verb, field):
                continue
            with pytest.raises(PayloadError) as said:
                pytest.fail(f"{verb} took it: {call(store)}")
            assert "\n" not in str(said.value), verb
            assert "damaged" in str(said.value), verb
        store.checkpoint("other").save_progress(1, "state")
        assert store.checkpoint("other").load() == (1, "state")


LARGE = random.Random(2).randbytes(1_500_000).hex()
SHORT = b"short"
CHUNKS: dict[str, list[Any]] = {
    "sqlite": [SHORT, "text", 7],
    "postgresql": [SHORT],
    "mysql": [SHORT],
    "firestore": [SHORT, "text", MISSING],
    "dynamodb": [SHORT, "text", MISSING],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in CHUNKS.items() for value in values])
def test_damaged_chunk(name: str, value: Any, tmp_path: Path) -> None:
    """A part of a large result that is not what was written: the result is damaged, and its effect is not run again."""
    with _opened(name, tmp_path) as store:
        ckpt = store.checkpoint("run")
        ckpt.run_once("key", lambda: LARGE)
        WRITES[name](store, "chunk", "data", value)
        for _ in range(2):
            with pytest.raises(PayloadError, match="damaged") as said:
                ckpt.run_once("key", lambda: pytest.fail("the effect ran again"))
            assert "\n" not in str(said.value)
        assert ckpt.run_once("other", lambda: 1).value == 1
