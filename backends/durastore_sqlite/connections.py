"""Connections and transactions: one connection for each thread, one writer at a time, the commits of waiting threads in one.

SQLite's own busy handler sleeps longer and longer, so that some processes starve while others run: of 8 processes that wrote
for 3 s, the luckiest made 12,180 writes and the four unluckiest one each. Here a waiter sleeps a random 0 to 4 ms between tries,
however long it has waited: 482 to 634 steps of two writes each. (0 to 2 ms reached four fifths of that, 0 to 0.5 ms two fifths:
failed tries take the processor from the one who has the lock. 2 cores, `python -m tests.bench.scale`.)
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from durastore.errors import ConfigError

__all__ = ["Connections", "is_busy"]

T = TypeVar("T")
_PAUSE_MAX = 0.004
"""Seconds, at most, between two tries to get the write lock."""
_BATCH_MAX = 256
"""Writes of waiting threads that go into one transaction."""
_WAKE_SECONDS = 0.5
"""How often a waiting thread looks by itself: the one that was to wake it may have been interrupted."""
_inherited: list[object] = []
"""Connections of a parent process: never to be closed here, which would drop locks and files that the parent relies on."""


class _Held:
    """A thread's connection; closed when the thread ends, or the store does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


class _Job(Generic[T]):
    """A write that waits for its turn."""

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self.work = work
        self.done = False
        self.ready = threading.Lock()
        """Free once the job is done, or its thread is to take the turn."""
        self.ready.acquire()
        self.result: T
        self.error: Exception | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Do the work. Its own refusals are its own; an error of SQLite fails the whole transaction."""
        self.error = None
        try:
            self.result = self.work(connection)
        except sqlite3.Error:
            raise
        except Exception as exc:  # noqa: BLE001  a rule said no, before anything was written
            self.error = exc

    def finish(self, error: Exception | None) -> None:
        self.error = error or self.error
        self.done = True
        with suppress(RuntimeError):
            self.ready.release()

    def outcome(self) -> T:
        if self.error is not None:
            raise self.error
        return self.result


class Connections:
    """All connections of one store in this process."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._reset()

    def _reset(self) -> None:
        self._local = threading.local()
        self._held: weakref.WeakSet[_Held] = weakref.WeakSet()
        self._turn = threading.Lock()
        self._waiting: deque[_Job[Any]] = deque()
        self._closed = False

    def get(self) -> sqlite3.Connection:
        """The connection of the calling thread. Opens the file, and does not create it."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is None:
            if self._closed:
                raise ConfigError(f"the store {str(self.path)!r} is closed")
            held = self._local.held = _Held(self.open("rw"))
            self._held.add(held)
        return held.connection

    def drop(self) -> None:
        """Let go of this thread's connection. One that was opened before the tables were made may go on saying that there are
        none, when the file is busy just as it looks again.
        """
        self._local.__dict__.pop("held", None)

    def open(self, mode: str) -> sqlite3.Connection:
        """A new connection; `mode` is ``rw`` or ``rwc`` (create the file)."""
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
        )
        self._at_once_or_patiently(partial(connection.execute, "PRAGMA synchronous = FULL"))
        return connection

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read without the write lock."""
        return self._at_once_or_patiently(partial(work, self.get()))

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in a transaction that is durable on return; with that of the threads that wait at the same time.

        `work` decides before it writes: when it raises anything but a `sqlite3.Error`, it has written nothing.
        """
        if self.get().in_transaction:
            raise ConfigError("inside transact(), an effect writes through tx alone: call the store before or after")
        job = _Job(work)
        self._waiting.append(job)
        while not job.done:
            if self._turn.acquire(blocking=False):
                try:
                    while not job.done:
                        if job not in self._waiting:  # whoever took it was interrupted
                            self._waiting.append(job)
                        self._run_waiting()
                finally:
                    self._hand_over()
            else:
                job.ready.acquire(timeout=_WAKE_SECONDS)
        return job.outcome()

    def _hand_over(self) -> None:
        """Give up the turn, to a thread that waits. Whoever comes after the look at the queue finds the turn free."""
        self._turn.release()
        with suppress(IndexError, RuntimeError):  # nobody waits, or it is awake already
            self._waiting[0].ready.release()

    def _run_waiting(self) -> None:
        """Do what waits in one transaction. An interrupt is this thread's alone: what it left undone, perhaps after the commit,
        is done again by those who wait, and every verb recognises its own earlier success.
        """
        jobs: list[_Job[Any]] = []
        error: Exception | None = None
        try:
            self.transaction(partial(self._run_each, jobs))
        except Exception as exc:  # noqa: BLE001  each waiting thread raises it
            error = exc
            if not jobs:  # the transaction did not begin
                jobs.extend(self._waiting.popleft() for _ in range(len(self._waiting)))
        except BaseException:
            self._waiting.extendleft(reversed(jobs))
            raise
        for job in jobs:
            job.finish(error)

    def _run_each(self, jobs: list[_Job[Any]], connection: sqlite3.Connection) -> None:
        """Do what waits, also what comes to wait meanwhile, and note it in `jobs`."""
        while self._waiting and len(jobs) < _BATCH_MAX:
            jobs.append(self._waiting.popleft())
            jobs[-1].run(connection)

    def exclusively(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in a transaction of its own, which is rolled back whatever `work` raises."""
        self._turn.acquire()
        try:
            return self.transaction(work)
        finally:
            self._hand_over()

    def transaction(self, work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection | None = None) -> T:
        """BEGIN IMMEDIATE, `work`, COMMIT on this thread's connection, or another. An interrupt at any place, also between one of
        these and what follows it, leaves no transaction open.
        """
        connection = connection or self.get()
        try:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as exc:
                if not is_busy(exc):
                    raise
                self.patiently(partial(connection.execute, "BEGIN IMMEDIATE"))
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _at_once_or_patiently(self, call: Callable[[], T]) -> T:
        """For what the file's lock stops only now and then: while the last connection closes, or the first recovers the WAL."""
        try:
            return call()
        except sqlite3.OperationalError as exc:
            if not is_busy(exc):
                raise
        return self.patiently(call)

    def patiently(self, call: Callable[[], T]) -> T:
        """Try until the lock is free, fairly: no waiter sleeps longer for having waited long."""
        gives_up = time.monotonic() + self._busy_timeout
        while True:
            time.sleep(random.uniform(0, _PAUSE_MAX))  # noqa: S311  jitter
            try:
                return call()
            except sqlite3.OperationalError as exc:
                if not is_busy(exc) or time.monotonic() > gives_up:
                    raise

    def forked(self) -> None:
        """In a child: start anew, and keep the parent's connections from being closed by the garbage collector."""
        _inherited.append([self._local, list(self._held)])
        self._reset()

    def close(self) -> None:
        """Close every thread's connection."""
        self._closed = True
        for held in list(self._held):
            held.connection.close()
        self._local = threading.local()


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds the lock. By text, since Python 3.10 has no error codes."""
    return "locked" in str(error)
