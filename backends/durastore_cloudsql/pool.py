"""Connections: SQLAlchemy's pool and dialects, and the driver's own connection out of it where a round trip counts.

`Pool.execute` runs one statement on an autocommit connection: SQLAlchemy's Core would add 124 µs to it, the driver's own
connection out of the pool adds 35. `Pool.transaction` is SQLAlchemy's, for what takes several statements and for users' effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy.pool import QueuePool

from durastore.errors import ConfigError

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


RECYCLE = 1800
"""Seconds after which a pooled connection is replaced: proxies and clouds cut idle ones without a word."""
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
        on_single: Callable[[Any, Any], None] = lambda _connection, _info: None,
    ) -> None:
        self.dialect = dialect
        self._target = target
        self._on_single = on_single
        self._size = size
        self._timeout = timeout
        self._generation = 0
        self._open()

    def _open(self) -> None:
        """Two pools of at most `size` connections; each hands out the one used last, so that the others may grow old."""
        self._single = QueuePool(
            self._autocommitting,
            pool_size=self._size,
            max_overflow=0,
            timeout=self._timeout,
            recycle=RECYCLE,
            use_lifo=True,
            reset_on_return=None,
        )
        sqlalchemy.event.listen(self._single, "connect", self._made)
        sqlalchemy.event.listen(self._single, "checkout", self._handed_out)
        self._multiple = sqlalchemy.create_engine(
            f"{self.dialect}://",
            creator=self._target.connect,
            pool_size=self._size,
            max_overflow=0,
            pool_timeout=self._timeout,
            pool_recycle=RECYCLE,
            pool_use_lifo=True,
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

    def _made(self, connection: Any, record: Any) -> None:
        record.info["generation"] = self._generation
        self._on_single(connection, record.info)

    def _handed_out(self, _connection: Any, record: Any, _proxy: Any) -> None:
        if record.info["generation"] != self._generation:
            raise sqlalchemy.exc.DisconnectionError  # the pool makes a new one in its place

    @contextmanager
    def single(self) -> Iterator[Any]:
        """A connection out of the pool, in autocommit. One that broke is not used again, nor are those that idle beside it."""
        pooled = self._single.connect()
        connection = pooled.driver_connection
        try:
            yield pooled
        except BaseException as exc:
            if self._is_disconnect(exc, connection):
                self.replace_idle()  # the server went away: each of them would fail one more call
            pooled.invalidate()  # it may be broken, or in the middle of an answer
            raise
        finally:
            pooled.close()

    def replace_idle(self) -> None:
        """Use no connection again that is older than this call."""
        self._generation += 1

    def _is_disconnect(self, error: BaseException, connection: Any) -> bool:
        dialect = self._multiple.dialect
        return isinstance(error, dialect.loaded_dbapi.Error) and dialect.is_disconnect(error, connection, None)

    def execute(self, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of one statement that has some; a transaction of its own."""
        with self.single() as pooled:
            cursor = pooled.cursor()
            try:
                cursor.execute(sql, values)
                return list(cursor.fetchall())
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
        self._target.forked()
        self._open()

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._single.dispose()
        self._multiple.dispose()
        self._target.close()
