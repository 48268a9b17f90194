"""Sending to MySQL: several statements in one round trip, deadlocks tried again, and values that are too large told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pymysql
from pymysql.constants import CLIENT, CR, ER

from durastore.errors import ConfigError
from durastore_cloudsql.pool import Connect, Pool

__all__ = ["CLIENT_FLAGS", "Sent", "again_after_deadlock", "ready", "send", "sender"]

T = TypeVar("T")
CLIENT_FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS
"""What a connection needs: statements that travel together, and row counts as SQLAlchemy expects them in an effect."""
_SESSION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
_TRIES_MAX = 5
"""How often a transaction that was the victim of a deadlock is made again at once; then it counts as unavailable."""
_LARGE = 512 * 1024
"""Bytes from which on a lost connection may be the server's way of refusing the statement."""


class Sent(NamedTuple):
    """What came of one statement."""

    matched: int
    rows: Sequence[tuple[Any, ...]]


def ready(connect: Connect) -> Connect:
    """Connections from `connect`, ready for this backend. Raises `ConfigError` for one that takes one statement at a time."""

    def connected() -> Any:
        connection = connect()
        if connection.client_flag & CLIENT_FLAGS != CLIENT_FLAGS:
            connection.close()
            raise ConfigError(
                "the creator's connections need client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS (pymysql.constants)"
            )
        with connection.cursor() as cursor:
            cursor.execute(_SESSION)
        return connection

    return connected


def send(connection: Any, sql: str, *values: Mapping[str, Any]) -> list[Sent]:
    """What came of each of the statements, which travel together, once for each of `values`.

    After an error the connection may be in a transaction.
    """
    with connection.cursor() as cursor:
        query = ";\n".join(cursor.mogrify(sql, each) for each in values)
        try:
            cursor.execute(query)
            sent = [Sent(cursor.rowcount, cursor.fetchall())]
            while cursor.nextset():
                sent.append(Sent(cursor.rowcount, cursor.fetchall()))
        except pymysql.MySQLError as exc:
            exc.durastore_bytes = len(query)  # type: ignore[attr-defined]  # for `sender`, once it has a connection again
            raise
        return sent


def sender(pool: Pool, sql: str, values: Mapping[str, Any]) -> list[Sent]:
    """`send` on a connection of the pool, in autocommit; its transaction, if it left one open, is rolled back on any error."""

    def once() -> list[Sent]:
        with pool.single() as connection:
            return send(connection, sql, values)

    try:
        return again_after_deadlock(once)
    except pymysql.MySQLError as exc:
        _raise_if_too_large(pool, exc)
        raise


def again_after_deadlock(call: Callable[[], T]) -> T:
    """Call again when a deadlock rolled the whole transaction back, which is all that error 1213 guarantees."""
    for _ in range(_TRIES_MAX - 1):
        try:
            return call()
        except pymysql.OperationalError as exc:
            if exc.args[0] != ER.LOCK_DEADLOCK:
                raise
    return call()


def _raise_if_too_large(pool: Pool, error: pymysql.MySQLError) -> None:
    """A server may just hang up on a statement larger than max_allowed_packet; that no retry could mend."""
    size = getattr(error, "durastore_bytes", 0)
    if size < _LARGE or error.args[:1] not in ((CR.CR_SERVER_GONE_ERROR,), (CR.CR_SERVER_LOST,), (0,)):
        return
    with pool.single() as connection:
        largest = int(send(connection, "SELECT @@max_allowed_packet", {})[0].rows[0][0])
    if size > largest:
        raise pymysql.OperationalError(
            ER.NET_PACKET_TOO_LARGE, f"{size:,} bytes, and max_allowed_packet is {largest:,}"
        ) from error
