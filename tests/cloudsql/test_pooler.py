"""Behind PgBouncer in transaction mode: each transaction may meet another session, and there are fewer of them than clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import durastore
from durastore_cloudsql import wire

from .conftest import Servers
from .requests import RESULT, granted, request

THREADS = 16


@pytest.fixture
def pooled(servers: Servers, postgresql: str) -> Iterator[durastore.Store]:
    """A store by way of the pooler."""
    query = postgresql.partition("?")[2]
    with durastore.open(f"{servers('pgbouncer').url}?{query}") as opened:
        yield opened


def test_sixteen_threads(pooled: durastore.Store) -> None:
    """Every thread's steps are executed once, although sessions are handed round."""
    calls: list[int] = []

    def work(number: int) -> list[Any]:
        ckpt = pooled.checkpoint(f"run-{number}")
        return [ckpt.run_once(f"{number}-{step}", lambda step=step: calls.append(step) or step) for step in range(10)]

    with ThreadPoolExecutor(THREADS) as executor:
        outcomes = list(executor.map(work, range(THREADS)))
    assert [[outcome.value for outcome in each] for each in outcomes] == [list(range(10))] * THREADS
    assert len(calls) == THREADS * 10


def test_every_verb(pooled: durastore.Store) -> None:
    """Runs, transactions, listings, chunks and the sweep go through it as well."""
    ckpt = pooled.checkpoint("run")
    summary = durastore.run_agent(range(5), ckpt, lambda item: "x" * 400_000)
    assert summary.executed == 5
    assert ckpt.transact("tx", lambda tx: tx.exec_driver_sql("SELECT 41 + 1").scalar_one()).value == 42
    assert len(list(pooled.records(run_id="run"))) == 6
    assert pooled.sweep().records == 0
    pooled.setup()
    assert all(finding.ok for finding in pooled.check())


def test_nothing_is_prepared(pooled: durastore.Store, postgresql: str) -> None:
    """The pooler is recognised, and so is its absence."""
    with pooled.backend._pool.sessions.lend() as session:
        assert not session.beside.prepares
    with durastore.open(postgresql) as direct, direct.backend._pool.sessions.lend() as session:
        assert session.beside.prepares


def test_a_pooler_that_is_not_recognised(pooled: durastore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that change are noticed by the first statement that is not known or known already; nothing is lost."""
    monkeypatch.setattr(wire, "_is_direct", lambda _connection: True)
    together = threading.Barrier(THREADS)

    def work(number: int) -> None:
        for step in range(5):
            together.wait(30)
            grant = granted(pooled.call("claim", pooled.backend.claim, request(f"{number}-{step}")))
            pooled.call("commit", pooled.backend.commit, grant, result=RESULT)

    with ThreadPoolExecutor(THREADS) as executor:
        list(executor.map(work, range(THREADS)))
    assert not pooled.backend._lines._may_prepare, "it was noticed"
    assert sum(record.state == "committed" for record in pooled.records()) == THREADS * 5
