"""From a URL to a way to connect: any server by host and port, or a Cloud SQL instance through Google's connector."""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from durastore.errors import ConfigError
from durastore.urls import StoreURL
from durastore_cloudsql.pool import Connect, Target

__all__ = ["target"]

CONNECT_TIMEOUT = 10
"""Seconds to wait for a server that does not answer at all."""
ANSWER_TIMEOUT = 60
"""Seconds to wait for MySQL's answer to one round trip; without a limit, one that was lost is waited for for ever."""
_KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""The same for PostgreSQL, which can tell a slow answer from a lost one: the connection is given up after a minute of silence."""
_INSTANCE = re.compile(r"([^:/]+:){2,3}[^:/]+")
"""PROJECT:REGION:INSTANCE; a project may be DOMAIN:PROJECT."""
_TIMEOUTS = (TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError)
"""One and the same from Python 3.11 on."""
_PORTS = {"postgresql": 5432, "mysql": 3306}


def target(url: StoreURL, options: Mapping[str, Any]) -> Target:
    """The target of a URL. Raises `ConfigError` for an address that names no database."""
    kind = url.scheme.rpartition("+")[2]
    if options.get("creator") is not None:
        return Target(options["creator"])
    if url.scheme.startswith("cloudsql+"):
        instance = _Instance(url, kind, options)
        return Target(instance.connect, instance.forked, instance.close)
    for name in ("iam", "ip_type"):
        if name in options:
            raise ConfigError(f"option {name!r} is for cloudsql+{kind}:// alone")
    server = _Server.of(url, kind)
    return Target(server.postgresql(options) if kind == "postgresql" else server.mysql(options))


@dataclass(frozen=True, slots=True)
class _Server:
    """``USER:PASSWORD@HOST:PORT/DATABASE``, each part percent-encoded. A host that begins with a slash is a Unix socket."""

    user: str | None
    password: str | None
    host: str
    port: int
    database: str

    @classmethod
    def of(cls, url: StoreURL, kind: str) -> _Server:
        place, _, database = url.address.partition("/")
        login, _, address = place.rpartition("@")
        host, colon, port = address.rpartition(":")
        if not colon or port.endswith("]"):  # no port: a name, or an IPv6 address in brackets
            host, port = address, str(_PORTS[kind])
        if not database:
            raise ConfigError(f"{url} names no database; write {url.scheme}://USER@HOST/DATABASE")
        if not port.isdecimal():
            raise ConfigError(f"{url} has a bad port: {port!r}")
        user, _, password = (unquote(part) for part in login.partition(":"))
        return cls(user or None, password or None, _host(unquote(host), url), int(port), unquote(database))

    def postgresql(self, options: Mapping[str, Any]) -> Connect:
        import psycopg

        given: dict[str, Any] = {"user": self.user, "password": self.password}
        given |= {name: options[name] for name in ("sslmode", "sslrootcert") if name in options}
        known = {name: value for name, value in given.items() if value is not None}

        def connect() -> Any:
            return psycopg.connect(
                host=self.host,
                port=self.port,
                dbname=self.database,
                connect_timeout=CONNECT_TIMEOUT,
                application_name="durastore",
                **postgresql_arguments(),
                **_KEEPALIVE,
                **known,
            )

        return connect

    def mysql(self, options: Mapping[str, Any]) -> Connect:
        import pymysql

        socket: dict[str, Any] = {"unix_socket": self.host} if self.host.startswith("/") else {"host": self.host}

        def connect() -> Any:
            try:
                return pymysql.connect(
                    **socket,
                    port=self.port,
                    user=self.user,
                    password=_mysql_password(self.password),
                    database=self.database,
                    connect_timeout=CONNECT_TIMEOUT,
                    **mysql_arguments(),
                    **_mysql_tls(options),
                )
            except OSError as exc:  # of the certificates: what the network says, PyMySQL puts into an error of its own
                raise ConfigError(f"sslrootcert {options.get('sslrootcert')!r} cannot be used: {exc}") from exc

        return connect


def _host(given: str, url: StoreURL) -> str:
    host = given.strip("[]") or "localhost"
    try:
        host.encode("idna")
    except UnicodeError:
        if not host.startswith("/"):
            raise ConfigError(f"{url} has a bad host: a part of a host's name has 1 to 63 characters") from None
    return host


def postgresql_arguments() -> dict[str, Any]:
    """Psycopg prepares nothing by itself, so that a pooler in transaction mode can carry the statements."""
    return {"prepare_threshold": None, "client_encoding": "utf8"}


def mysql_arguments() -> dict[str, Any]:
    """What every connection to MySQL is made with."""
    from durastore_cloudsql.packets import CLIENT_FLAGS

    return {
        "charset": "utf8mb4",
        "client_flag": CLIENT_FLAGS,
        "read_timeout": ANSWER_TIMEOUT,
        "write_timeout": ANSWER_TIMEOUT,
    }


def _mysql_password(password: str | None) -> bytes:
    """PyMySQL would say it in Latin-1, or not at all; whoever set it did so over a connection in UTF-8."""
    return (password or "").encode()


def _mysql_tls(options: Mapping[str, Any]) -> dict[str, Any]:
    """TLS in the words of libpq, said to PyMySQL."""
    mode, root = options.get("sslmode", "prefer"), options.get("sslrootcert")
    if mode in ("allow", "prefer"):
        return {}
    if mode == "disable":
        return {"ssl_disabled": True}
    verified = mode.startswith("verify")
    return {"ssl": {"ca": root, "check_hostname": mode == "verify-full", "verify_mode": verified}}


class _Instance:
    """A Cloud SQL instance, ``USER@PROJECT:REGION:INSTANCE/DATABASE``, through a connector made when it is first needed.

    (Making one looks for credentials and starts a thread, which no forked child has.)
    """

    def __init__(self, url: StoreURL, kind: str, options: Mapping[str, Any]) -> None:
        login, at, rest = url.address.rpartition("@")
        self._instance, _, database = rest.partition("/")
        if not at or not _INSTANCE.fullmatch(self._instance) or not database:
            raise ConfigError(f"{url} is not {url.scheme}://USER@PROJECT:REGION:INSTANCE/DATABASE")
        if "sslmode" in options or "sslrootcert" in options:
            raise ConfigError("the Cloud SQL connector does TLS by itself; leave out sslmode and sslrootcert")
        user, _, password = (unquote(part) for part in login.partition(":"))
        self._iam: bool = options.get("iam", not password)
        self._ip_type: str = options.get("ip_type", "public")
        self._driver = "psycopg" if kind == "postgresql" else "pymysql"
        self._arguments = postgresql_arguments() if kind == "postgresql" else mysql_arguments()
        self._arguments |= {"user": user, "db": unquote(database)}
        if not self._iam:
            self._arguments["password"] = password if kind == "postgresql" else _mysql_password(password)
        self._make = _connector_class(url)
        self.forked()

    def forked(self) -> None:
        self._lock = threading.Lock()
        self._connector: Any = None

    def connect(self) -> Any:
        with self._lock:
            if self._connector is None:
                # Refreshing only when somebody connects is what a sandbox that is frozen between requests can do.
                self._connector = self._make(
                    ip_type=self._ip_type,
                    enable_iam_auth=self._iam,
                    refresh_strategy="lazy",
                    timeout=CONNECT_TIMEOUT,
                )
            connector = self._connector
        try:
            return connector.connect(self._instance, self._driver, **self._arguments)
        except (OSError, *_TIMEOUTS) as exc:  # as the driver says it: an effect of the application may raise these too
            raise _unreachable(self._driver, f"{self._instance}: {exc or type(exc).__name__}") from exc

    def close(self) -> None:
        if self._connector is not None:
            self._connector.close()


def _unreachable(driver: str, text: str) -> Exception:
    if driver == "psycopg":
        import psycopg

        return psycopg.OperationalError(text)
    import pymysql
    from pymysql.constants import CR

    return pymysql.OperationalError(CR.CR_CONN_HOST_ERROR, text)


def _connector_class(url: StoreURL) -> Callable[..., Any]:
    try:
        from google.cloud.sql.connector import Connector
    except ImportError as exc:
        raise ConfigError(f"{url.scheme}:// needs Google's connector; run: pip install 'durastore[cloudsql]'") from exc
    return Connector
