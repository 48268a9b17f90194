"""Setting up, migrating and looking at the file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from durastore.contract import Finding
from durastore.errors import SchemaError
from durastore.sqlfiles import migrations, split
from durastore_sqlite.connections import Connections

__all__ = ["check", "migrate"]

_VERSION = "SELECT version FROM durastore_schema"
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "afs", "lustre"}
_FREE_MIN = 64 * 1024 * 1024
"""Bytes that the disk should have to spare."""


def migrate(connections: Connections) -> None:
    """Create the file and bring the schema up to date. A file that is current is only read."""
    newest = _migrations()[-1][0]
    if connections.path.exists() and _version(connections.get()) == newest:
        return
    with closing(connections.open("rwc")) as connection:
        connections.patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"))
        connections.transaction(lambda opened: _apply(opened, newest), connection)
    connections.drop()


def _apply(connection: sqlite3.Connection, newest: int) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS durastore_schema (version INTEGER NOT NULL)")
    version = _version(connection)
    if version > newest:
        raise SchemaError(
            f"the file has durastore's schema {version}, this durastore knows {newest}: upgrade durastore"
        )
    for number, script in _migrations():
        if number > version:
            for statement in split(script):
                connection.execute(statement)
    connection.execute("DELETE FROM durastore_schema")
    connection.execute("INSERT INTO durastore_schema VALUES (?)", (newest,))


@cache
def _migrations() -> list[tuple[int, str]]:
    return migrations("durastore_sqlite", "migrations")


def _version(connection: sqlite3.Connection) -> int:
    """0 when durastore has no tables here."""
    try:
        row = connection.execute(_VERSION).fetchone()
    except sqlite3.OperationalError as exc:
        if "no such table" not in str(exc):
            raise
        return 0
    return 0 if row is None else int(row[0])


def check(connections: Connections) -> Sequence[Finding]:
    """Look at schema, settings, integrity and disk. Changes nothing."""
    connection = connections.get()
    newest = _migrations()[-1][0]
    version = _version(connection)
    journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
    damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    free = shutil.disk_usage(connections.path.parent).free
    kind = _file_system(connections.path)
    writable = os.access(connections.path, os.W_OK) and os.access(connections.path.parent, os.W_OK)
    return [
        Finding("schema", version == newest, f"version {version}, this durastore has {newest}", "run: durastore init"),
        Finding("journal", journal == "wal", f"journal mode {journal}", "run: durastore init"),
        Finding("integrity", damage == "ok", f"quick check: {damage}", "restore the file from a backup"),
        Finding(
            "rights", writable, "the file and its folder are " + ("writable" if writable else "not writable"), "chmod"
        ),
        Finding("disk", free >= _FREE_MIN, f"{free // 1024**2:,} MiB free", "make room: a full disk stops every write"),
        Finding(
            "file system",
            kind not in _NETWORK,
            f"on {kind or 'an unknown file system'}",
            "SQLite's locks do not hold on network file systems: move the file to a local disk, or use another store",
        ),
    ]


def _file_system(path: Path) -> str | None:
    """The type of the file system that holds the file, where the machine tells."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return None
    holding = [(point, kind) for point, kind in mounts if path.is_relative_to(point)]
    return max(holding, key=lambda mount: len(mount[0]), default=(None, None))[1]
