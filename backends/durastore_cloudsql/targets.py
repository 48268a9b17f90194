"""From a URL to a way to connect: any server by host and port, or a Cloud SQL instance through Google's connector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from durastore.errors import ConfigError
from durastore.urls import StoreURL
from durastore_cloudsql.pool import Connect

__all__ = ["Target", "target"]

CONNECT_TIMEOUT = 10
"""Seconds to wait for a server that does not answer at all."""
ANSWER_TIMEOUT = 60
"""Seconds to wait for MySQL's answer to one round trip; without a limit, one that was lost is waited for for ever."""
_PORTS = {"postgresql": 5432, "mysql": 3306}


@dataclass(frozen=True, slots=True)
class Target:
    """How to connect, and what to do at the end."""

    connect: Connect
    close: Callable[[], None] = lambda: None


def target(url: StoreURL, options: dict[str, Any]) -> Target:
    """The target of a URL. Raises `ConfigError` for an address that names no database."""
    kind = url.scheme.rpartition("+")[2]
    if options.get("creator") is not None:
        return Target(options["creator"])
    if url.scheme.startswith("cloudsql+"):
        return _instance(url, kind, options)
    return Target(_server(url, kind))


def _server(url: StoreURL, kind: str) -> Connect:
    parts = urlsplit(f"//{url.address}")
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise ConfigError(f"{url} names no database; write {url.scheme}://USER@HOST/DATABASE")
    try:
        port = parts.port or _PORTS[kind]
    except ValueError:
        raise ConfigError(f"{url} has a bad port") from None
    given = {
        "host": unquote(parts.hostname or "localhost"),
        "port": port,
        "user": None if parts.username is None else unquote(parts.username),
        "password": None if parts.password is None else unquote(parts.password),
    }
    known = {name: value for name, value in given.items() if value is not None}
    return _postgresql(known, name) if kind == "postgresql" else _mysql(known, name)


def _postgresql(given: dict[str, Any], name: str) -> Connect:
    import psycopg

    def connect() -> Any:
        # Statements that are not prepared on the server are what a pooler in transaction mode can carry.
        return psycopg.connect(
            dbname=name, connect_timeout=CONNECT_TIMEOUT, prepare_threshold=None, application_name="durastore", **given
        )

    return connect


def _mysql(given: dict[str, Any], name: str) -> Connect:
    import pymysql

    def connect() -> Any:
        return pymysql.connect(database=name, connect_timeout=CONNECT_TIMEOUT, **mysql_arguments(), **given)

    return connect


def mysql_arguments() -> dict[str, Any]:
    """What every connection to MySQL is made with."""
    from durastore_cloudsql.packets import CLIENT_FLAGS

    return {
        "charset": "utf8mb4",
        "client_flag": CLIENT_FLAGS,
        "read_timeout": ANSWER_TIMEOUT,
        "write_timeout": ANSWER_TIMEOUT,
    }


def _instance(url: StoreURL, kind: str, options: dict[str, Any]) -> Target:
    """A Cloud SQL instance: ``USER@PROJECT:REGION:INSTANCE/DATABASE``."""
    login, at, rest = url.address.rpartition("@")
    instance, _, name = rest.partition("/")
    if not at or instance.count(":") < 2 or not name:
        raise ConfigError(f"{url} is not {url.scheme}://USER@PROJECT:REGION:INSTANCE/DATABASE")
    user, _, password = login.partition(":")
    try:
        from google.cloud.sql.connector import Connector
    except ImportError as exc:
        raise ConfigError(f"{url.scheme}:// needs Google's connector; run: pip install 'durastore[cloudsql]'") from exc
    iam = options.get("iam", not password)
    # Refreshing only when somebody connects is what a function that is frozen between requests can do.
    connector = Connector(ip_type=options.get("ip_type", "public"), refresh_strategy="lazy", enable_iam_auth=iam)
    login_with = {} if iam else {"password": unquote(password)}
    driver = "psycopg" if kind == "postgresql" else "pymysql"

    arguments = {"prepare_threshold": None} if kind == "postgresql" else mysql_arguments()

    def connect() -> Any:
        return connector.connect(instance, driver, user=unquote(user), db=unquote(name), **login_with, **arguments)

    return Target(connect, connector.close)
