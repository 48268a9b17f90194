"""The way of a statement to PostgreSQL and back by libpq's own calls: a cursor adds 50 µs, a third of a durable write.

Parameters and results are of five types: text, integers, truth values, bytes and NULL. Waiting is psycopg's: a signal, Ctrl-C
say, cancels the statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

__all__ = ["MIXED_UP", "Preparing", "Statement", "fetch"]

MIXED_UP = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)
"""What is raised, before anything was done, when a pooler changes the session under a client."""
_BINARY, _TEXT = 1, 0
_PREPARED = "durastore_prepared"
Info = MutableMapping[Any, Any]
"""What SQLAlchemy's pool keeps beside a connection, for as long as that lives."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as libpq takes it: ``$1`` instead of ``%(name)s``. Without a name it is never prepared."""

    name: bytes
    sql: bytes
    parameters: tuple[str, ...]

    @classmethod
    def of(cls, sql: str, name: str = "") -> Statement:
        parameters = tuple(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
        numbers = {parameter: f"${number}" for number, parameter in enumerate(parameters, 1)}
        text = re.sub(r"%\((\w+)\)s", lambda match: numbers[match[1]], sql)
        return cls(name.encode(), text.encode(), parameters)


class Preparing:
    """Decides for each new connection whether statements may be prepared in it; `stop` ends that for those to come.

    A pooler in transaction mode hands each transaction to another session, which knows nothing of what was prepared before.
    Poolers make up the process id that they tell their clients (it is half of a secret to cancel queries by); the server's own,
    asked for in a statement, then is another one.
    """

    def __init__(self) -> None:
        self._may = True

    def __call__(self, connection: psycopg.Connection[Any], info: Info) -> None:
        if connection.info.encoding != "utf-8":
            connection.execute("SET client_encoding TO 'UTF8'")
        info[_PREPARED] = set() if self._may and _is_direct(connection) else None

    def stop(self) -> None:
        self._may = False


def _is_direct(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] == connection.info.backend_pid


def fetch(
    connection: psycopg.Connection[Any], info: Info, statement: Statement, values: Mapping[str, Any]
) -> list[list[Any]]:
    """The rows of a statement, in autocommit. Raises psycopg's errors."""
    given = [values[name] for name in statement.parameters]
    texts = [value if value is None else _DUMP[type(value)](value) for value in given]
    formats = [_BINARY if isinstance(value, bytes) else _TEXT for value in given]
    prepared: set[bytes] | None = info[_PREPARED]
    pgconn = connection.pgconn
    if prepared is None or not statement.name:
        pgconn.send_query_params(statement.sql, texts, None, formats, _BINARY)
        return _rows(_answer(connection))
    if statement.name not in prepared:
        pgconn.send_prepare(statement.name, statement.sql)
        _answer(connection)
        prepared.add(statement.name)
    pgconn.send_query_prepared(statement.name, texts, formats, _BINARY)
    return _rows(_answer(connection))


def _answer(connection: psycopg.Connection[Any]) -> PGresult:
    result: PGresult = connection.wait(execute(connection.pgconn))[-1]
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        error = error_from_result(result)
        raise error if error.sqlstate else psycopg.OperationalError(str(error))
    return result


def _rows(result: PGresult) -> list[list[Any]]:
    columns = range(result.nfields)
    loads = [_LOAD[result.ftype(column)] for column in columns]
    value = result.get_value
    return [[_loaded(value(row, column), loads[column]) for column in columns] for row in range(result.ntuples)]


def _loaded(value: bytes | None, load: Callable[[bytes], Any]) -> Any:
    return None if value is None else load(value)


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


_DUMP: dict[type, Callable[[Any], bytes]] = {
    str: str.encode,
    int: b"%d".__mod__,
    bool: lambda value: b"t" if value else b"f",
    bytes: bytes,
}
_LOAD: dict[int, Callable[[bytes], Any]] = {
    16: lambda value: value == b"\1",  # boolean
    17: bytes,  # bytea
    20: _integer,  # bigint
    23: _integer,  # integer
    25: bytes.decode,  # text
}
"""By the numbers of PostgreSQL's built-in types, which never change."""
