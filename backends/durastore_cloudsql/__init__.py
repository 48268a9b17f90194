"""PostgreSQL and MySQL, on any server or on Cloud SQL: row locks at READ COMMITTED, the server's clock.

``postgresql://USER@HOST/DB`` (psycopg 3) and ``mysql://USER@HOST/DB`` (PyMySQL: pure Python, it installs everywhere, and
Google's connector speaks through it) reach any server; a host that begins with ``%2F`` is a Unix socket.
``cloudsql+postgresql://USER@PROJECT:REGION:INSTANCE/DB`` and ``cloudsql+mysql://…`` go through the Cloud SQL Python Connector, by
IAM login unless the URL has a password.

Options: ``schema`` (on MySQL another database of the server), ``table_prefix``; ``pool_size`` (connections of each kind, default
10), ``pool_timeout`` (seconds to wait for one, default 10); ``sslmode``, ``sslrootcert`` (as libpq knows them, on MySQL too);
``iam``, ``ip_type`` (public, private, psc) for Cloud SQL; ``creator`` (a function that returns a connection of the driver; not in
a URL).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from durastore.contract import Backend
from durastore.urls import StoreURL, boolean, choice, integer, seconds, text
from durastore_cloudsql.pool import Pool, Target
from durastore_cloudsql.tables import Tables
from durastore_cloudsql.targets import target

__all__ = ["connect"]


def connect(url: StoreURL) -> Backend:
    """The backend for a URL of one of the four schemes."""
    options = url.read(
        schema=text,
        table_prefix=text,
        pool_size=_size,
        pool_timeout=seconds,
        sslmode=choice("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        sslrootcert=text,
        iam=boolean,
        ip_type=choice("public", "private", "psc"),
        creator=_function,
    )
    reached = target(url, options)
    tables = Tables(options.get("table_prefix", "durastore_"), options.get("schema"))
    sized = {"size": options.get("pool_size", 10), "timeout": options.get("pool_timeout", 10.0)}
    make = _postgresql if url.scheme.endswith("postgresql") else _mysql
    return make(url, reached, tables, sized)


def _postgresql(url: StoreURL, reached: Target, tables: Tables, sized: dict[str, Any]) -> Backend:
    from durastore_cloudsql.postgresql import PostgreSQLBackend
    from durastore_cloudsql.wire import Lines

    lines = Lines()
    pool = Pool("postgresql+psycopg", reached, beside=lines, **sized)
    return PostgreSQLBackend(pool, tables, url.namespace, url.scheme, lines)


def _mysql(url: StoreURL, reached: Target, tables: Tables, sized: dict[str, Any]) -> Backend:
    from durastore_cloudsql.mysql import MySQLBackend
    from durastore_cloudsql.packets import ready

    pool = Pool("mysql+pymysql", replace(reached, connect=ready(reached.connect)), **sized)
    return MySQLBackend(pool, tables, url.namespace, url.scheme)


def _size(value: Any) -> int:
    size = integer(value)
    if size < 1:
        raise ValueError(f"expected 1 or more, not {size}")
    return size


def _function(value: Any) -> Any:
    if not callable(value):
        raise ValueError("expected a function that returns a connection of the driver")
    return value
