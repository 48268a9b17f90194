"""SQLite: one file on a local disk, any number of processes of one machine. The standard library's `sqlite3`, nothing else.

WAL and ``synchronous=FULL``: durable on return. The clock is the machine's, which all users of the file share; whoever sets it
back delays takeovers by as much, whoever sets it forward brings them on, and no more than a lease is at stake.
"""

from __future__ import annotations

from pathlib import Path

from durastore.errors import ConfigError
from durastore.urls import StoreURL, seconds
from durastore_sqlite.backend import SQLiteBackend

__all__ = ["SQLiteBackend", "connect"]


def connect(url: StoreURL) -> SQLiteBackend:
    """Open ``sqlite:///relative.db`` or ``sqlite:////absolute.db``. Option: ``busy_timeout``, seconds to wait for the lock."""
    options = url.read(busy_timeout=seconds)
    name = url.path.removeprefix("/")
    if not url.address.startswith("/") or not name or name == ":memory:":
        raise ConfigError(
            f"{url} names no file; write sqlite:///relative.db or sqlite:////absolute.db (for a store in memory: memory://)"
        )
    path = Path(name if not name.startswith("//") else f"/{name.lstrip('/')}").absolute()  # in a URI, // begins a host
    try:
        found = path.parent.is_dir()
        path.exists()  # raises for a name that is too long, or a folder that may not be looked into
    except OSError as exc:
        raise ConfigError(f"{str(path)!r} cannot be used: {exc.strerror}") from exc
    if not found:
        raise ConfigError(f"the folder {str(path.parent)!r} does not exist; make it, or name another file")
    return SQLiteBackend(path, url.namespace, **options)
