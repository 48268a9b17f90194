"""`transact`: the application's rows and the committed mark land together, or neither does."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import durastore
from durastore.errors import ClaimLost, ConfigError

from .requests import RESULT, granted, progress, request


@pytest.fixture
def table(store: durastore.Store) -> Iterator[str]:
    """A table of the application, with two rows."""
    name = f"app_{uuid.uuid4().hex[:12]}"
    with store.backend._pool.transaction() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
        connection.exec_driver_sql(f"INSERT INTO {name} VALUES (1, 0), (2, 0)")
    yield name
    with store.backend._pool.transaction() as connection:
        connection.exec_driver_sql(f"DROP TABLE {name}")


def _rows(store: durastore.Store, table: str) -> list[tuple[int, int]]:
    with store.backend._pool.transaction() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f"SELECT id, n FROM {table} ORDER BY id")]


def test_together(store: durastore.Store, table: str) -> None:
    """What the effect wrote, the result and the progress are there; a replay gets the result and writes nothing."""
    ckpt = store.checkpoint("run")

    def effect(tx: sqlalchemy.Connection) -> str:
        tx.execute(sqlalchemy.text(f"UPDATE {table} SET n = n + 1 WHERE id = :id"), {"id": 1})
        return "done"

    assert ckpt.transact("key", effect) == ("done", "executed")
    assert ckpt.transact("key", effect) == ("done", "skipped")
    assert _rows(store, table) == [(1, 1), (2, 0)]


def test_lost_while_the_effect_ran(store: durastore.Store, table: str) -> None:
    """A takeover during the effect: `ClaimLost`, and neither rows nor result nor progress remain."""
    grant = granted(store.backend.claim(request("key", lease=0)))

    def effect(tx: sqlalchemy.Connection) -> Any:
        tx.exec_driver_sql(f"UPDATE {table} SET n = 9")
        granted(store.backend.claim(request("key", owner="thief")))
        return RESULT

    with pytest.raises(ClaimLost, match="thief"):
        store.backend.transact(grant, effect, progress=progress(5))
    assert _rows(store, table) == [(1, 0), (2, 0)]
    assert store.backend.load("run") is None


def test_committed_by_a_copy_of_the_call(store: durastore.Store, table: str) -> None:
    """A retried call that meets its own first attempt's commit rolls back, and returns what that stored."""
    grant = granted(store.backend.claim(request("key")))

    def effect(tx: sqlalchemy.Connection) -> Any:
        tx.exec_driver_sql(f"UPDATE {table} SET n = 9")
        store.backend.commit(grant, result=RESULT)
        return type(RESULT)(b"json\n2")

    assert store.backend.transact(grant, effect) == RESULT
    assert _rows(store, table) == [(1, 0), (2, 0)]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_effect_that_ends_the_transaction(store: durastore.Store, end: str) -> None:
    """It has broken the promise, and is told so."""
    with pytest.raises(ConfigError, match="leave commit and rollback"):
        store.checkpoint("run").transact("key", lambda tx: getattr(tx, end)())


def test_deadlock_between_effects(store: durastore.Store, table: str) -> None:
    """Two effects that lock rows crosswise: the server ends one, which runs again; both land, once each."""
    both_hold_one = threading.Barrier(2)
    tries: list[int] = []

    def work(first: int, second: int) -> str:
        waited = False

        def effect(tx: sqlalchemy.Connection) -> str:
            nonlocal waited
            tries.append(first)
            tx.exec_driver_sql(f"UPDATE {table} SET n = n + 1 WHERE id = {first}")
            if not waited:
                waited = True
                both_hold_one.wait(10)
            tx.exec_driver_sql(f"UPDATE {table} SET n = n + 1 WHERE id = {second}")
            return "done"

        return store.checkpoint(f"run-{first}").transact(f"key-{first}", effect).status

    with ThreadPoolExecutor(2) as executor:
        outcomes = list(executor.map(work, (1, 2), (2, 1)))
    assert outcomes == ["executed", "executed"]
    assert len(tries) > 2, "there was a deadlock"
    assert _rows(store, table) == [(1, 2), (2, 2)]


def test_object_mapper(store: durastore.Store, table: str) -> None:
    """A `Session` on the connection works as everywhere, its counts of changed rows included."""

    class Base(DeclarativeBase):
        pass

    class Thing(Base):
        __tablename__ = table
        id: Mapped[int] = mapped_column(primary_key=True)
        n: Mapped[int]

    Thing.__annotations__  # noqa: B018  the mapper reads them

    def effect(tx: sqlalchemy.Connection) -> int:
        with Session(tx, join_transaction_mode="create_savepoint") as session:
            thing = session.get_one(Thing, 1)
            thing.n = 5
            session.flush()
            sqlalchemy.orm.attributes.flag_modified(thing, "n")  # written again with the same value: no row changes
            session.flush()
            session.commit()
            return thing.n

    assert store.checkpoint("run").transact("key", effect).value == 5
    assert _rows(store, table) == [(1, 5), (2, 0)]


def test_errors_of_the_application(store: durastore.Store, table: str) -> None:
    """They are passed on as they are, the network's and the driver's too when they are the application's own; nothing lands."""
    for number, error in enumerate((ConnectionError("elsewhere"), TimeoutError("elsewhere"), KeyError("x"))):

        def effect(tx: sqlalchemy.Connection, error: Exception = error) -> None:
            tx.exec_driver_sql(f"UPDATE {table} SET n = 9")
            raise error

        with pytest.raises(type(error)) as raised:
            store.checkpoint("run").transact(f"key-{number}", effect)
        assert raised.value is error
    with pytest.raises(sqlalchemy.exc.IntegrityError):
        store.checkpoint("run").transact("twice", lambda tx: tx.exec_driver_sql(f"INSERT INTO {table} VALUES (1, 1)"))
    assert _rows(store, table) == [(1, 0), (2, 0)]
