"""Connections: SQLAlchemy's pool and dialects, and the driver's own connection out of it where a round trip counts.

`Pool.execute` runs one statement on an autocommit connection: SQLAlchemy's Core would add 124 µs to it, the driver's own
connection out of the pool adds 35. `Pool.transaction` is SQLAlchemy's, for what takes several statements and for users' effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy.pool import QueuePool

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

__all__ = ["Connect", "Pool"]

Connect = Callable[[], Any]
"""Makes a new connection of the driver."""
RECYCLE = 1800
"""Seconds after which a pooled connection is replaced: proxies and clouds cut idle ones without a word."""
_inherited: list[Any] = []
"""A parent's pools: closing their connections here would end the parent's sessions."""


class Pool:
    """The connections of one store in this process."""

    def __init__(
        self, dialect: str, connect: Connect, *, size: int, timeout: float, closer: Callable[[], None]
    ) -> None:
        self.dialect = dialect
        self._connect = connect
        self._size = size
        self._timeout = timeout
        self._closer = closer
        self._open()

    def _open(self) -> None:
        self._single = self._engine(autocommit=True)
        self._multiple = self._engine(autocommit=False)

    def _engine(self, *, autocommit: bool) -> Engine:
        """An engine; its pool never holds more than `size` connections, and hands out the one used last."""

        def connect() -> Any:
            connection = self._connect()
            _set_autocommit(connection, autocommit=autocommit)
            return connection

        return sqlalchemy.create_engine(
            f"{self.dialect}://",
            creator=connect,
            poolclass=QueuePool,
            pool_size=self._size,
            max_overflow=0,
            pool_timeout=self._timeout,
            pool_recycle=RECYCLE,
            pool_use_lifo=True,
            pool_reset_on_return=None if autocommit else "rollback",
            isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        )

    @contextmanager
    def single(self) -> Iterator[Any]:
        """The driver's own connection, in autocommit. One that broke is not used again."""
        pooled = self._single.raw_connection()
        try:
            yield pooled.driver_connection
        except BaseException:
            pooled.invalidate()  # it may be broken, or in the middle of an answer
            raise
        finally:
            pooled.close()

    def execute(self, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of one statement, which is a transaction of its own."""
        with self.single() as connection:
            cursor = connection.cursor()
            try:
                cursor.execute(sql, values)
                return list(cursor.fetchall()) if cursor.description else []
            finally:
                cursor.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A SQLAlchemy connection in a transaction at READ COMMITTED: committed at the end, rolled back on any exception."""
        with self._multiple.begin() as connection:
            yield connection

    def forked(self) -> None:
        """In a child: connections of one's own, and the parent's left alone."""
        _inherited.append((self._single, self._multiple))
        self._single.dispose(close=False)
        self._multiple.dispose(close=False)
        self._open()

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._single.dispose()
        self._multiple.dispose()
        self._closer()


def _set_autocommit(connection: Any, *, autocommit: bool) -> None:
    """The two drivers differ: one has an attribute, the other a method of the same name."""
    if callable(connection.autocommit):
        connection.autocommit(autocommit)
    else:
        connection.autocommit = autocommit
