"""What ``durastore doctor`` asks a server: version, schema, rights, and the settings that the promises hang on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durastore.contract import Finding
from durastore_cloudsql import schema
from durastore_cloudsql.pool import Pool
from durastore_cloudsql.tables import Tables

__all__ = ["mysql", "postgresql"]

PACKET_MIN = 4 * 1024 * 1024
"""Bytes that MySQL must take in one statement: a chunk, a state and their escapes."""


def postgresql(pool: Pool, tables: Tables) -> Sequence[Finding]:
    """Look at a PostgreSQL server. Changes nothing."""
    version = _one(pool, "SHOW server_version")
    encoding = _one(pool, "SHOW server_encoding")
    durable = _one(pool, "SHOW synchronous_commit")
    standby = _one(pool, "SELECT pg_is_in_recovery()")
    idle = _one(pool, "SHOW idle_in_transaction_session_timeout")
    found = [
        Finding(
            "server", ok=True, detail=f"PostgreSQL {version}, at most {_one(pool, 'SHOW max_connections')} connections"
        ),
        _schema(pool, tables, "postgresql"),
        Finding("writable", not standby, "a standby" if standby else "a primary", "name the primary in the URL"),
        Finding(
            "encoding",
            encoding == "UTF8",
            f"encoding {encoding}",
            "keys are UTF-8: make a database with ENCODING 'UTF8'",
        ),
        Finding(
            "durability",
            durable != "off",
            f"synchronous_commit is {durable}",
            "what is committed may be lost when the server crashes; set synchronous_commit = on",
        ),
        Finding(
            "idle transactions",
            ok=True,
            detail=f"idle_in_transaction_session_timeout is {idle} (10min is a good value)",
        ),
    ]
    return [*found, *_rights(pool, tables)]


def _rights(pool: Pool, tables: Tables) -> list[Finding]:
    lacking = []
    for table in ("records", "runs", "chunks"):
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            asked = {"table": tables.name(table), "right": right}
            rows = pool.execute("SELECT has_table_privilege(to_regclass(%(table)s), %(right)s)", asked)
            if rows[0][0] is False:  # None: there is no such table
                lacking.append(f"{right} on {tables.name(table)}")
    detail = f"lacks {', '.join(lacking)}" if lacking else "rows can be read and written"
    return [Finding("rights", not lacking, detail, "grant them to the user of the URL")]


def mysql(pool: Pool, tables: Tables) -> Sequence[Finding]:
    """Look at a MySQL or MariaDB server. Changes nothing."""
    version = _one(pool, "SELECT VERSION()")
    flush = _one(pool, "SELECT @@innodb_flush_log_at_trx_commit")
    packet = int(_one(pool, "SELECT @@max_allowed_packet"))
    read_only = bool(_one(pool, "SELECT @@read_only"))
    kind = "MariaDB" if "MariaDB" in str(version) else "MySQL"
    return [
        Finding(
            "server", ok=True, detail=f"{kind} {version}, at most {_one(pool, 'SELECT @@max_connections')} connections"
        ),
        _schema(pool, tables, "mysql"),
        Finding("writable", not read_only, "read-only" if read_only else "takes writes", "name the primary in the URL"),
        Finding(
            "durability",
            int(flush) == 1,
            f"innodb_flush_log_at_trx_commit is {flush}",
            "what is committed may be lost when the server crashes; set it to 1",
        ),
        Finding("packets", packet >= PACKET_MIN, f"max_allowed_packet is {packet // 1024:,} KiB", "set it to 16M"),
    ]


def _schema(pool: Pool, tables: Tables, kind: str) -> Finding:
    found, last = schema.version(pool, tables), schema.newest(kind)
    return Finding("schema", found == last, f"version {found}, this durastore has {last}", "run: durastore init")


def _one(pool: Pool, sql: str) -> Any:
    return pool.execute(sql, {})[0][0]
