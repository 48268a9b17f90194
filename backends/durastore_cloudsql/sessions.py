"""Autocommit connections of the driver, few for many threads, handed out in 2 µs.

SQLAlchemy's pool is kept for transactions. Here it would add 27 µs to every statement (measured between durable writes, when
caches are cold), a tenth of such a write, twice for each step.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sqlalchemy.exc

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["RECYCLE", "Session", "Sessions"]

RECYCLE = 1800
"""Seconds after which an idle connection is replaced: proxies and clouds cut idle ones without a word."""


class Session:
    """A connection, what the backend keeps beside it, and which generation it is of."""

    __slots__ = ("beside", "connection", "generation", "made_at")

    def __init__(self, connection: Any, beside: Any, generation: int) -> None:
        self.connection = connection
        self.beside = beside
        self.generation = generation
        self.made_at = time.monotonic()


class Sessions:
    """At most `size` connections. The one used last is handed out first, so that the others may grow old."""

    def __init__(
        self,
        connect: Callable[[], Any],
        beside: Callable[[Any], Any],
        is_disconnect: Callable[[BaseException, Any], bool],
        *,
        size: int,
        timeout: float,
    ) -> None:
        self._connect = connect
        self._beside = beside
        self._is_disconnect = is_disconnect
        self._timeout = timeout
        self._generation = 0
        self._closed = False
        self._idle: list[Session] = []
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(size):
            self._places.put(None)

    def lend(self) -> _Loan:
        """A session for a ``with`` block. Raises sqlalchemy's `TimeoutError` when none becomes free.

        One in whose block something was raised is not used again: it may be broken, or in the middle of an answer. When the
        server went away, neither are those that idle beside it, which would fail one more call each.
        """
        return _Loan(self)

    def replace_idle(self) -> None:
        """Use no connection again that is older than this call."""
        self._generation += 1

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        self._closed = True
        while (session := self._pop()) is not None:
            _close(session)

    def take(self) -> Session:
        try:
            self._places.get(timeout=self._timeout)
        except queue.Empty:
            raise sqlalchemy.exc.TimeoutError(f"no connection became free within {self._timeout:g} s") from None
        try:
            while (session := self._pop()) is not None:
                if session.generation == self._generation and time.monotonic() - session.made_at < RECYCLE:
                    return session
                _close(session)
            return self._made()
        except BaseException:
            self._places.put(None)
            raise

    def give(self, session: Session, error: BaseException | None) -> None:
        try:
            if error is None and not self._closed:
                self._idle.append(session)
                return
            if error is not None and self._is_disconnect(error, session.connection):
                self.replace_idle()
            _close(session)
        finally:
            self._places.put(None)

    def _made(self) -> Session:
        generation = self._generation
        connection = self._connect()
        return Session(connection, self._beside(connection), generation)

    def _pop(self) -> Session | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


class _Loan:
    __slots__ = ("_session", "_sessions")

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def __enter__(self) -> Session:
        self._session = self._sessions.take()
        return self._session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sessions.give(self._session, error)


def _close(session: Session) -> None:
    with suppress(Exception):  # what the driver says of a connection that is broken already
        session.connection.close()
