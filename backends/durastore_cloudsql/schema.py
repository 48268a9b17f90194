"""Setting up and migrating, by any number of processes at once: they take turns by a lock of the database."""

from __future__ import annotations

from typing import Any

from durastore.errors import SchemaError, StoreUnavailable
from durastore.sqlfiles import migrations, split
from durastore_cloudsql import faults
from durastore_cloudsql.pool import Pool
from durastore_cloudsql.tables import Tables

__all__ = ["migrate", "newest", "version"]

_LOCK = 0x64757261  # "dura": the number of PostgreSQL's advisory lock
_TURN_MAX = 60
"""Seconds that MySQL lets a process wait for its turn."""


def newest(kind: str) -> int:
    """The schema that this durastore knows."""
    return _migrations(Tables(), kind)[-1][0]


def version(pool: Pool, tables: Tables) -> int:
    """The schema that the database has, 0 for none. Only reads, so that rights on rows are enough once it is current."""
    try:
        rows = pool.execute(_version_query(tables), {})
    except Exception as exc:
        if isinstance(faults.of(exc, pool.dialect), SchemaError):
            return 0
        raise
    return rows[0][0] or 0


def migrate(pool: Pool, tables: Tables, kind: str) -> None:
    """Bring the database to the newest schema. Raises `SchemaError` when it is newer than this durastore."""
    last = newest(kind)
    found = version(pool, tables)
    if found > last:
        raise SchemaError(
            f"the database has durastore's schema {found}, this durastore knows {last}: upgrade durastore"
        )
    if found == last:
        return
    with pool.transaction() as connection:
        if kind == "postgresql":
            _migrate_postgresql(connection, tables)
        else:
            _migrate_mysql(connection, tables)


def _migrate_postgresql(connection: Any, tables: Tables) -> None:
    """In one transaction, lock and all; each script goes as a whole, for the bodies of functions hold semicolons."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    if tables.schema is not None:
        there = connection.exec_driver_sql("SELECT to_regnamespace(%(name)s)", {"name": tables.schema}).scalar_one()
        if there is None:  # creating one "if not exists" asks for the right to create it even if it does
            connection.exec_driver_sql(f"CREATE SCHEMA {tables.schema}")
    for number, script in _outstanding(connection, tables, "postgresql"):
        connection.connection.driver_connection.execute(script)
        connection.exec_driver_sql(_version_insert(tables, number))


def _migrate_mysql(connection: Any, tables: Tables) -> None:
    """Statements of definition commit by themselves and can be run again; the lock belongs to the session."""
    if connection.exec_driver_sql(f"SELECT GET_LOCK('durastore', {_TURN_MAX})").scalar_one() != 1:
        raise StoreUnavailable(f"another process has been setting up for {_TURN_MAX} s")
    try:
        for number, script in _outstanding(connection, tables, "mysql"):
            for statement in split(script):
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql(_version_insert(tables, number))
            connection.exec_driver_sql("COMMIT")  # before the next in turn looks
    finally:
        connection.exec_driver_sql("SELECT RELEASE_LOCK('durastore')")


def _outstanding(connection: Any, tables: Tables, kind: str) -> list[tuple[int, str]]:
    connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {tables.name('version')} (version INTEGER NOT NULL)")
    found = connection.exec_driver_sql(_version_query(tables)).scalar_one() or 0
    return [(number, script) for number, script in _migrations(tables, kind) if number > found]


def _version_query(tables: Tables) -> str:
    return f"SELECT MAX(version) FROM {tables.name('version')}"  # noqa: S608  a checked name


def _version_insert(tables: Tables, number: int) -> str:
    return f"INSERT INTO {tables.name('version')} VALUES ({number})"  # noqa: S608  a checked name


def _migrations(tables: Tables, kind: str) -> list[tuple[int, str]]:
    return migrations("durastore_cloudsql", f"migrations/{kind}", tables.words)
