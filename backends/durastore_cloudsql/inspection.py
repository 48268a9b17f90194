"""What ``durastore doctor`` asks a server: version, schema, rights, and the settings that the promises hang on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from durastore.contract import Finding
from durastore.errors import ConfigError, SchemaError
from durastore_cloudsql import faults, schema
from durastore_cloudsql.pool import Pool
from durastore_cloudsql.tables import Tables

__all__ = ["mysql", "postgresql"]

PACKET_MIN = 4 * 1024 * 1024
"""Bytes that MySQL must take in one statement: a chunk, a state and their escapes."""
_POSTGRESQL_MIN = 12
_MYSQL_MIN, _MARIADB_MIN = (8, 0, 1), (10, 6)
"""The first with SKIP LOCKED."""
_TABLES = {
    "records": "namespace, `key`, run_id, state, token, attempt, nonce, owner, incarnation, created_at, updated_at",
    "runs": "namespace, run_id, step, incarnation, updated_at",
    "chunks": "namespace, `blob`, number, data, written_at",
}
"""The tables, and which of their columns must be given."""
_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_FUNCTIONS = ("claim", "commit", "done")
_NO_OPS = (
    "SELECT 1 FROM {table} LIMIT 0",
    "INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} LIMIT 0",
    "UPDATE {table} SET namespace = namespace WHERE 1 = 0",
    "DELETE FROM {table} WHERE 1 = 0",
)
"""One for each of `_RIGHTS`; MySQL looks at the right before it finds that there is nothing to do."""


def postgresql(pool: Pool, tables: Tables) -> Sequence[Finding]:
    """Look at a PostgreSQL server. Changes nothing."""
    names = (
        "server_version",
        "max_connections",
        "server_encoding",
        "synchronous_commit",
        "default_transaction_isolation",
        "default_transaction_read_only",
        "idle_in_transaction_session_timeout",
    )
    shown = {name: str(_one(pool, f"SHOW {name}")) for name in names}
    found = [_server(shown), _schema(pool, tables, "postgresql"), _writable(pool, shown)]
    return [*found, *_settings(shown), _postgresql_rights(pool, tables)]


def _server(shown: dict[str, str]) -> Finding:
    major = int(re.match(r"\d+", shown["server_version"])[0])  # type: ignore[index]  # versions begin with a number
    detail = f"PostgreSQL {shown['server_version']}, at most {shown['max_connections']} connections"
    return Finding("server", major >= _POSTGRESQL_MIN, detail, f"upgrade to PostgreSQL {_POSTGRESQL_MIN} or later")


def _writable(pool: Pool, shown: dict[str, str]) -> Finding:
    standby = _one(pool, "SELECT pg_is_in_recovery()")
    closed = shown["default_transaction_read_only"] == "on"
    detail = "a standby" if standby else "transactions are read-only by default" if closed else "a primary"
    return Finding(
        "writable", not (standby or closed), detail, "name the primary; set default_transaction_read_only = off"
    )


def _settings(shown: dict[str, str]) -> list[Finding]:
    encoding, durable = shown["server_encoding"], shown["synchronous_commit"]
    isolation, idle = shown["default_transaction_isolation"], shown["idle_in_transaction_session_timeout"]
    return [
        Finding("encoding", encoding == "UTF8", encoding, "keys are UTF-8: make a database with ENCODING 'UTF8'"),
        Finding(
            "durability",
            durable != "off",
            f"synchronous_commit is {durable}",
            "what is committed may be lost when the server crashes; set synchronous_commit = on",
        ),
        Finding(
            "isolation",
            isolation == "read committed",
            f"{isolation} by default",
            "right all the same, but contended claims are tried again for nothing; ALTER ROLE … SET "
            "default_transaction_isolation = 'read committed'",
        ),
        Finding(
            "idle transactions", ok=True, detail=f"ended after {idle} (0: never); effects of transact() end before"
        ),
    ]


def _postgresql_rights(pool: Pool, tables: Tables) -> Finding:
    lacking = []
    for table in _TABLES:
        for right in _RIGHTS:
            asked = {"table": tables.name(table), "right": right}
            if pool.execute("SELECT has_table_privilege(to_regclass(%(table)s), %(right)s)", asked)[0][0] is False:
                lacking.append(f"{right} on {tables.name(table)}")
    for function in _FUNCTIONS:
        asked = {"function": tables.name(function)}
        if pool.execute("SELECT has_function_privilege(to_regproc(%(function)s), 'EXECUTE')", asked)[0][0] is False:
            lacking.append(f"EXECUTE on {tables.name(function)}")
    return _rights(lacking)


def _rights(lacking: list[str]) -> Finding:
    detail = f"lacks {', '.join(lacking)}" if lacking else "rows can be read and written"
    return Finding("rights", not lacking, detail, "grant them to the user of the URL")


def mysql(pool: Pool, tables: Tables) -> Sequence[Finding]:
    """Look at a MySQL or MariaDB server. Changes nothing."""
    version = str(_one(pool, "SELECT VERSION()"))
    flush = int(_one(pool, "SELECT @@innodb_flush_log_at_trx_commit"))
    packet = int(_one(pool, "SELECT @@max_allowed_packet"))
    read_only = bool(_one(pool, "SELECT @@read_only"))
    most = _one(pool, "SELECT @@max_connections")
    return [
        _mysql_server(version, most),
        _schema(pool, tables, "mysql"),
        Finding("writable", not read_only, "read-only" if read_only else "takes writes", "name the primary in the URL"),
        Finding(
            "durability",
            flush == 1,
            f"innodb_flush_log_at_trx_commit is {flush}",
            "what is committed may be lost when the server crashes; set it to 1",
        ),
        Finding("packets", packet >= PACKET_MIN, f"max_allowed_packet is {packet // 1024:,} KiB", "set it to 16M"),
        _mysql_rights(pool, tables),
    ]


def _mysql_server(version: str, most: Any) -> Finding:
    maria = "MariaDB" in version
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    least = _MARIADB_MIN if maria else _MYSQL_MIN
    detail = f"{'MariaDB' if maria else 'MySQL'} {version}, at most {most} connections"
    return Finding("server", number >= least, detail, f"upgrade to {'.'.join(map(str, least))} or later")


def _mysql_rights(pool: Pool, tables: Tables) -> Finding:
    lacking = []
    for table, columns in _TABLES.items():
        for right, statement in zip(_RIGHTS, _NO_OPS, strict=True):
            if _is_refused(pool, statement.format(table=tables.name(table), columns=columns)):
                lacking.append(f"{right} on {tables.name(table)}")
    return _rights(lacking)


def _is_refused(pool: Pool, statement: str) -> bool:
    try:
        pool.execute(statement, {})
    except Exception as exc:
        meaning = faults.of(exc, pool.dialect)
        if meaning is None:
            raise
        return isinstance(meaning, ConfigError) and not isinstance(meaning, SchemaError)
    return False


def _schema(pool: Pool, tables: Tables, kind: str) -> Finding:
    found, last = schema.version(pool, tables), schema.newest(kind)
    return Finding(
        "schema", found == last, f"version {found}, this durastore has {last}", "run: durastore init --url …"
    )


def _one(pool: Pool, sql: str) -> Any:
    return pool.execute(sql, {})[0][0]
