"""Setting up and migrating, by any number of processes at once: they take turns by a lock of the database."""

from __future__ import annotations

from typing import Any

from durastore.errors import SchemaError
from durastore.sqlfiles import migrations, split
from durastore_cloudsql import faults
from durastore_cloudsql.pool import Pool
from durastore_cloudsql.tables import Tables

__all__ = ["migrate", "newest", "version"]

_LOCK = 0x64757261  # "dura": the number of the advisory lock


def newest(kind: str) -> int:
    """The schema that this durastore knows."""
    return _migrations(Tables(), kind)[-1][0]


def version(pool: Pool, tables: Tables) -> int:
    """The schema that the database has, 0 for none. Only reads, so that rights on rows are enough once it is current."""
    try:
        rows = pool.execute(f"SELECT MAX(version) FROM {tables.name('version')}", {})
    except Exception as exc:
        if isinstance(faults.of(exc, pool.dialect), SchemaError):
            return 0
        raise
    return rows[0][0] or 0


def migrate(pool: Pool, tables: Tables, kind: str) -> None:
    """Bring the database to the newest schema."""
    last = newest(kind)
    found = version(pool, tables)
    if found > last:
        raise SchemaError(
            f"the database has durastore's schema {found}, this durastore knows {last}: upgrade durastore"
        )
    if found == last:
        return
    with pool.transaction() as connection:
        _take_turn(connection, kind)
        try:
            _apply(connection, tables, kind)
        finally:
            if (
                kind == "mysql"
            ):  # its statements of definition commit by themselves, and its lock belongs to the session
                connection.exec_driver_sql("SELECT RELEASE_LOCK('durastore')")


def _take_turn(connection: Any, kind: str) -> None:
    if kind == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    else:
        connection.exec_driver_sql("SELECT GET_LOCK('durastore', 60)")


def _apply(connection: Any, tables: Tables, kind: str) -> None:
    if tables.schema is not None and kind == "postgresql":
        connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {tables.schema}")
    name = tables.name("version")
    connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {name} (version INTEGER NOT NULL)")
    found = connection.exec_driver_sql(f"SELECT MAX(version) FROM {name}").scalar_one() or 0
    for number, script in _migrations(tables, kind):
        if number > found:
            _run_script(connection, script, kind)
            connection.exec_driver_sql(f"INSERT INTO {name} VALUES ({number})")


def _run_script(connection: Any, script: str, kind: str) -> None:
    """PostgreSQL takes a script as a whole, bodies of functions and all; MySQL one statement at a time."""
    if kind == "postgresql":
        connection.connection.driver_connection.execute(script)
        return
    for statement in split(script):
        connection.exec_driver_sql(statement)


def _migrations(tables: Tables, kind: str) -> list[tuple[int, str]]:
    return migrations("durastore_cloudsql", f"migrations/{kind}", tables.words)
