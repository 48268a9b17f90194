"""Connections: the driver's own, in autocommit, where a round trip counts; SQLAlchemy's for transactions and users' effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy

from durastore.errors import ConfigError
from durastore_cloudsql.sessions import RECYCLE, Sessions

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

__all__ = ["Connect", "NotOurs", "Pool", "Target", "still_in"]

Connect = Callable[[], Any]
"""Makes a new connection of the driver."""


@dataclass(frozen=True, slots=True)
class Target:
    """How to connect, what to do in a forked child, and at the end."""

    connect: Connect
    forked: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


_inherited: list[Any] = []
"""A parent's pools: closing their connections here would end the parent's sessions."""


class NotOurs(Exception):
    """A way out of a transaction: the claim is lost, or was committed by an earlier copy of the call."""


def still_in(connection: Connection) -> None:
    """Raise `ConfigError` when an effect ended the transaction that it was given."""
    if not connection.in_transaction():
        raise ConfigError("the effect ended its transaction: inside transact(), leave commit and rollback to durastore")


class Pool:
    """The connections of one store in this process."""

    def __init__(
        self,
        dialect: str,
        target: Target,
        *,
        size: int,
        timeout: float,
        beside: Callable[[Any], Any] = lambda _connection: None,
    ) -> None:
        self.dialect = dialect
        self._target = target
        self._beside = beside
        self._size = size
        self._timeout = timeout
        self._open()

    def _open(self) -> None:
        """At most `size` connections of each kind."""
        self.sessions = Sessions(
            self._autocommitting, self._beside, self._is_disconnect, size=self._size, timeout=self._timeout
        )
        self._multiple = sqlalchemy.create_engine(
            f"{self.dialect}://",
            creator=self._target.connect,
            pool_size=self._size,
            max_overflow=0,
            pool_timeout=self._timeout,
            pool_recycle=RECYCLE,
            pool_use_lifo=True,
            pool_reset_on_return=None,
            isolation_level="READ COMMITTED",
        )

    def _autocommitting(self) -> Any:
        """A new connection whose statements commit by themselves; the drivers differ in how to say so."""
        connection = self._target.connect()
        if callable(connection.autocommit):
            connection.autocommit(True)
        else:
            connection.autocommit = True
        return connection

    @contextmanager
    def single(self) -> Iterator[Any]:
        """One of the driver's connections, in autocommit; see `Sessions.lend`."""
        with self.sessions.lend() as session:
            yield session.connection

    def _is_disconnect(self, error: BaseException, connection: Any) -> bool:
        dialect = self._multiple.dialect
        return isinstance(error, dialect.loaded_dbapi.Error) and dialect.is_disconnect(error, connection, None)

    def execute(self, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of one statement that has some; a transaction of its own."""
        with self.single() as connection:
            cursor = connection.cursor()
            try:
                cursor.execute(sql, values)
                return list(cursor.fetchall())
            finally:
                cursor.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A SQLAlchemy connection in a transaction at READ COMMITTED: committed at the end, rolled back on any exception.

        After an error of the driver's the connection is not used again, so that the pool need not roll back what is returned.
        """
        with self._multiple.connect() as connection:
            try:
                with connection.begin():
                    yield connection
            except (sqlalchemy.exc.DBAPIError, self._multiple.dialect.loaded_dbapi.Error):
                if not connection.invalidated:
                    connection.invalidate()
                raise

    def forked(self) -> None:
        """In a child: connections of one's own, and the parent's left alone."""
        _inherited.append((self.sessions, self._multiple))
        self._target.forked()
        self._open()

    def close(self) -> None:
        """Close all connections that are not in use."""
        self.sessions.close()
        self._multiple.dispose()
        self._target.close()
