"""Servers that restart, sessions that are ended: calls are made again, and nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import durastore
from durastore import emulators
from durastore.conformance.proxy import Proxy
from durastore.errors import ClaimLost, StoreUnavailable

from .requests import RESULT, granted, request


@pytest.fixture
def own(kind: str) -> Iterator[emulators.Server]:
    """A server of this test's own, for it is going to fall."""
    try:
        running = emulators.start(kind)
    except emulators.EmulatorNotRun as exc:
        pytest.fail(str(exc)) if emulators.required(kind) else pytest.skip(f"not run: {exc}")
    with running:
        if running.how == "url":
            pytest.skip("not run: a server of somebody else's is not restarted")
        yield running


def test_killed_in_mid_run(own: emulators.Server) -> None:
    """The server crashes twice and comes back: each step runs once, and what was committed is there."""
    calls: list[int] = []

    def step(item: int) -> int:
        calls.append(item)
        if item in (5, 12):
            own.kill()
            own.restart()
        return item * 2

    with durastore.open(own.url, create=True) as store:
        summary = durastore.run_agent(range(20), store.checkpoint("run"), step)
        assert (summary.executed, calls) == (20, list(range(20)))
        assert sorted(record.result for record in store.records(run_id="run")) == [item * 2 for item in range(20)]
        assert store.checkpoint("run").load()[0] == 20


def test_idle_connections_fall_together(watched: durastore.Store, proxy: Proxy, kind: str) -> None:
    """After a restart one call fails, not one for each connection of the pool."""
    pool = watched.backend._pool
    with ExitStack() as together:
        for _ in range(5):
            together.enter_context(pool.single())
    _end_sessions(watched, kind)
    with pytest.raises(Exception, match=r".") as first:
        watched.backend.time()
    assert isinstance(watched.backend.classify(first.value), StoreUnavailable)
    with ExitStack() as together:
        for _ in range(5):
            together.enter_context(pool.single()).cursor().execute("SELECT 1")


def _end_sessions(store: durastore.Store, kind: str) -> None:
    """End all idle sessions in which there was a statement of this store, from a connection beside its pool."""
    connection = store.backend._pool._target.connect()
    with connection.cursor() as cursor:
        if kind == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'durastore' "
                "AND pid <> pg_backend_pid()"
            )
        else:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE user = 'durastore' AND id <> CONNECTION_ID()"
            )
            for (number,) in cursor.fetchall():
                cursor.execute(f"KILL {number}")
    connection.close()


def test_transaction_idle_for_too_long(postgresql: str) -> None:
    """An effect that outlasts idle_in_transaction_session_timeout wrote nothing; one that is quick enough then lands."""
    waits = iter([0.5])

    def creator() -> Any:
        return psycopg.connect(
            postgresql.partition("?")[0],
            prepare_threshold=None,
            options="-c idle_in_transaction_session_timeout=100",
        )

    def effect(tx: Any) -> str:
        time.sleep(next(waits, 0))
        return "done"

    with durastore.open(postgresql, creator=creator) as store:
        grant = granted(store.backend.claim(request("slow")))
        with pytest.raises(Exception, match=r".") as ended:
            store.backend.transact(grant, lambda tx: time.sleep(0.5) or RESULT)
        meaning = store.backend.classify(ended.value)
        assert isinstance(meaning, StoreUnavailable)
        assert store.backend.renew([grant]) == [grant], "the claim stands, nothing was committed"
        assert store.checkpoint("run").transact("key", effect).value == "done"


def test_ended_while_an_effect_runs(store: durastore.Store, kind: str) -> None:
    """The session of a transaction is ended under its effect: the effect runs again in a new one, and lands once."""
    table = f"ended_{time.time_ns()}"
    with store.backend._pool.transaction() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {table} (n INTEGER)")
    calls: list[int] = []

    def effect(tx: Any) -> int:
        calls.append(1)
        tx.exec_driver_sql(f"INSERT INTO {table} VALUES (1)")
        if len(calls) == 1:
            _end_sessions(store, kind)
        return len(calls)

    assert store.checkpoint("run").transact("key", effect).value == 2
    with store.backend._pool.transaction() as connection:
        assert connection.exec_driver_sql(f"SELECT COUNT(*) FROM {table}").scalar_one() == 1
        connection.exec_driver_sql(f"DROP TABLE {table}")


def test_replaced_while_out_of_reach(store: durastore.Store, kind: str) -> None:
    """A holder whose session was ended and whose claim was taken over hears `ClaimLost`, not an error of the network."""
    grant = granted(store.backend.claim(request("key", lease=0)))
    granted(store.backend.claim(request("key")))
    _end_sessions(store, kind)
    with pytest.raises(ClaimLost):
        store.call("commit", store.backend.commit, grant, result=RESULT)
