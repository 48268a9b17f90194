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

import pytest

import durastore
from durastore.errors import StoreUnavailable

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
        assert store.backend._pool._single.checkedin() <= 2


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
        with store.backend._pool.single(), pytest.raises(Exception, match="QueuePool") as full:
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
