"""Ways for a store to be gone for a while and to come back."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import pytest

from durastore import emulators, urls
from durastore.conformance.proxy import Fault, Proxy

__all__ = ["DOWN_SECONDS", "LEASE", "Outage", "Way", "crowded", "cut", "killed", "locked", "read_only", "refusing"]

LEASE = 0.6
DOWN_SECONDS = 2 * LEASE
"""Longer than a lease, by the store's clock too: so much time has to pass for real."""
Way = Callable[[], AbstractContextManager[None]]
"""While it is open, the store is gone."""


class Outage:
    """One time out of reach, for longer than a lease; the store comes back by itself, whatever its client does meanwhile."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._down, self._over = threading.Event(), threading.Event()

    def begin(self) -> None:
        """Returns when the store is gone."""
        threading.Thread(target=self._run, daemon=True).start()
        assert self._down.wait(30), "the store falls"

    @property
    def begun(self) -> bool:
        return self._down.is_set()

    def wait(self) -> None:
        """Until the store is back."""
        assert self._over.wait(60), "the store comes back"

    def __enter__(self) -> Outage:
        return self

    def __exit__(self, *_: object) -> None:
        if self.begun:
            self.wait()

    def _run(self) -> None:
        with self._way():
            self._down.set()
            time.sleep(DOWN_SECONDS)
        self._over.set()


def killed(server: emulators.Server) -> Way:
    """The server dies by SIGKILL, and starts again on its data."""
    assert server.keeps_data, "else nothing could be lost that was there"

    @contextmanager
    def way() -> Iterator[None]:
        server.kill()
        try:
            yield
        finally:
            server.restart()

    return way


def cut(proxy: Proxy) -> Way:
    """Every connection ends, and none is made."""
    return proxy.out_of_reach


def refusing(proxy: Proxy, fault: Fault) -> Way:
    """Connections stand, and each request gets the same refusal."""

    @contextmanager
    def way() -> Iterator[None]:
        proxy.draw = lambda: fault
        try:
            yield
        finally:
            proxy.draw = lambda: None

    return way


def locked(path: Any) -> Way:
    """Another process's transaction has a SQLite file for itself."""

    @contextmanager
    def way() -> Iterator[None]:
        with ExitStack() as stack:
            connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            stack.callback(connection.close)
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")

    return way


_READ_ONLY = {
    "postgresql": (
        "SET default_transaction_read_only = OFF",
        "ALTER ROLE CURRENT_USER SET default_transaction_read_only = {}",
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'durastore' AND pid <> pg_backend_pid()",
    ),
    "mysql": ("SET GLOBAL read_only = {}",),
}


def read_only(server: emulators.Server) -> Way:
    """The server takes no writes, as one that is being failed over. PostgreSQL's sessions end: new ones see it."""

    @contextmanager
    def way() -> Iterator[None]:
        run(server.url, *(line.format("ON") for line in _READ_ONLY[server.name]))
        try:
            yield
        finally:
            run(server.url, *(line.format("OFF") for line in _READ_ONLY[server.name]))

    return way


_CROWD_MAX = 1000
_SESSIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = 'durastore' AND pid <> pg_backend_pid()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = 'durastore' AND id <> CONNECTION_ID()",
}
_END = {"postgresql": "SELECT pg_terminate_backend({}, 10000)", "mysql": "KILL {}"}


def crowded(server: emulators.Server) -> Way:
    """Others have all connections of a server: those that were there end, and no new one is let in."""
    connect = urls.connect(urls.parse(server.url))._pool._target.connect  # type: ignore[attr-defined]

    def ended() -> Any:
        """Another's first connection, when it has ended all that were there."""
        first = connect()
        _limit(first, 10)
        with first.cursor() as cursor:
            cursor.execute(_SESSIONS[server.name])
            for (session,) in cursor.fetchall():
                with suppress(Exception):  # it has ended by itself
                    cursor.execute(_END[server.name].format(session))
        return first

    def crowd() -> Iterator[Any]:
        yield ended()
        with suppress(Exception):  # that there are too many is what is wanted
            for _ in range(_CROWD_MAX):
                yield connect()
            pytest.fail("the server lets in everybody")

    @contextmanager
    def way() -> Iterator[None]:
        others = list(crowd())
        try:
            yield
        finally:
            _limit(others[0], 300)
            for other in others:
                other.close()

    return way


def _limit(connection: Any, number: int) -> None:
    """MySQL's limit can be set as it runs; to reach its 300 by connections takes seconds. PostgreSQL's is 100, and stays."""
    if hasattr(connection, "thread_id"):
        with connection.cursor() as cursor:
            cursor.execute(f"SET GLOBAL max_connections = {number}")


def run(url: str, *statements: str) -> None:
    """Statements of the server's owner, in a session of their own."""
    connection = urls.connect(urls.parse(url))._pool._target.connect()  # type: ignore[attr-defined]
    connection.rollback()
    connection.autocommit(True) if url.startswith("mysql") else setattr(connection, "autocommit", True)
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()
