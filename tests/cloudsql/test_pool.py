"""Connections: fewer than threads, nested, forked, closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import durastore
from durastore.errors import StoreUnavailable
from durastore_cloudsql.sessions import RECYCLE, Sessions

from .requests import RESULT, granted, request

THREADS = 16


def test_fewer_connections_than_threads(url: str) -> None:
    """A pool of 2 serves 16 threads: nobody waits for ever, and no connection beyond the 2 is made."""
    with durastore.open(url, pool_size=2) as store:

        def work(number: int) -> list[int]:
            ckpt = store.checkpoint(f"run-{number}")
            return [ckpt.run_once(f"{number}-{step}", lambda step=step: step).value for step in range(5)]

        with ThreadPoolExecutor(THREADS) as executor:
            assert list(executor.map(work, range(THREADS))) == [list(range(5))] * THREADS
        assert len(store.backend._pool.sessions._idle) <= 2


def test_a_store_within_a_transaction(url: str) -> None:
    """With one connection of each kind, effects of `transact` may still call the store, and their claims are renewed."""
    with durastore.open(url, pool_size=1, pool_timeout=5) as store:

        def effect(tx: object, number: int) -> int:
            return store.checkpoint("inner").run_once(f"inner-{number}", lambda: number).value

        def work(number: int) -> int:
            return store.checkpoint("outer").transact(f"outer-{number}", lambda tx: effect(tx, number)).value

        with ThreadPoolExecutor(4) as executor:
            assert list(executor.map(work, range(4))) == list(range(4))


def test_no_connection_to_be_had(url: str) -> None:
    """Past `pool_timeout` it is `StoreUnavailable`, which says what to do."""
    with durastore.open(url, pool_size=1, pool_timeout=0.05) as store:
        with store.backend._pool.single(), pytest.raises(Exception, match="no connection became free") as full:
            store.backend.time()
        meaning = store.backend.classify(full.value)
        assert isinstance(meaning, StoreUnavailable)
        assert "pool_size" in str(meaning)


def test_renewal_is_not_blocked_by_an_effect(store: durastore.Store) -> None:
    """While an effect runs in a transaction, its claim's row is free: a renewal, and anybody's look, return at once."""
    grant = granted(store.backend.claim(request("key")))

    def effect(tx: object) -> object:
        began = time.monotonic()
        assert store.backend.renew([grant]) == [grant]
        store.backend.claim(request("key"))
        assert time.monotonic() - began < 5, "InnoDB waits for a lock for 50 s, PostgreSQL for ever"
        return RESULT

    assert store.backend.transact(grant, effect) == RESULT


def test_interrupted(store: durastore.Store) -> None:
    """Ctrl-C reaches a thread that waits for a lock; the statement is given up, and the store goes on."""
    grant = granted(store.backend.claim(request("key")))
    main = threading.main_thread().ident
    assert main is not None
    with store.backend._pool.transaction() as connection:
        connection.exec_driver_sql(
            f"SELECT 1 FROM durastore_records WHERE namespace = '{store.backend._namespace}' FOR UPDATE"
        ).fetchall()
        threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            store.backend.commit(grant, result=RESULT)
    assert store.backend.renew([grant]) == [grant], "it was not committed later on"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="not run: there is no fork on this system")
def test_fork(url: str) -> None:
    """Both sides of a fork go on, with connections of their own; the parent's claim is still its own."""
    with durastore.open(url) as store:
        ckpt = store.checkpoint("run")
        ckpt.run_once("before", lambda: 1)
        grant = granted(store.backend.claim(request("parents")))
        children = [os.fork() or _child(store, number) for number in range(4)]
        for step in range(20):
            ckpt.run_once(f"parent-{step}", lambda step=step: step)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
        store.backend.commit(grant, result=RESULT)
        assert len(list(store.records(prefix="child-"))) == 80


def _child(store: durastore.Store, number: int) -> int:
    try:
        ckpt = store.checkpoint(f"child-{number}")
        values = [ckpt.run_once(f"child-{number}-{step}", lambda step=step: step).value for step in range(20)]
        os._exit(0 if values == list(range(20)) else 2)
    finally:
        os._exit(1)


def test_closed_with_the_process(url: str) -> None:
    """A process that just ends leaves no traceback and does not hang."""
    script = f"""
        import durastore
        store = durastore.open({url!r})
        print(store.checkpoint("run").run_once("key", lambda: 7).value)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("7\n", "", 0)


class _Connection:
    """Counts its closings."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def _sessions(size: int = 2) -> Sessions:
    return Sessions(_Connection, lambda _: None, lambda error, _: isinstance(error, OSError), size=size, timeout=0.05)


def test_an_old_connection_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made longer than `RECYCLE` ago is closed instead of lent."""
    sessions = _sessions()
    with sessions.lend() as first:
        pass
    with sessions.lend() as again:
        assert again is first
    monkeypatch.setattr(first, "made_at", first.made_at - RECYCLE)
    with sessions.lend() as second:
        assert second is not first
    assert first.connection.closed == 1


@pytest.mark.parametrize(
    ("error", "idle_survives"), [(OSError(), False), (ValueError(), True), (KeyboardInterrupt(), True)]
)
def test_a_connection_in_whose_use_something_was_raised(error: BaseException, *, idle_survives: bool) -> None:
    """It is closed and its place free again; those that idle beside it go when the server went away."""
    sessions = _sessions()
    with sessions.lend(), sessions.lend() as idle:  # which comes back first, and is handed out last
        pass
    with pytest.raises(type(error)), sessions.lend() as used:
        raise error
    assert used.connection.closed == 1
    with sessions.lend() as one, sessions.lend() as two:
        assert used not in (one, two)
        assert (idle in (one, two)) is idle_survives


def test_closed_while_in_use() -> None:
    """What is in use when the pool is closed is closed when it comes back."""
    sessions = _sessions()
    with sessions.lend() as session:
        sessions.close()
        assert session.connection.closed == 0
    assert session.connection.closed == 1


def test_places_are_free_again_after_a_failed_connect() -> None:
    """A server that is away for a while takes no place for good."""
    answers: list[Any] = [OSError(), OSError(), OSError(), _Connection()]

    def connect() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    sessions = Sessions(connect, lambda _: None, lambda *_: False, size=1, timeout=0.05)
    for _ in range(3):
        with pytest.raises(OSError), sessions.lend():
            pass
    with sessions.lend() as session:
        assert session.connection.closed == 0
