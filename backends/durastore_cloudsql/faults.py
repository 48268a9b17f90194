"""What the drivers' errors mean. PostgreSQL by SQLSTATE, MySQL by number; SQLAlchemy's wrapping is taken off first."""

from __future__ import annotations

from typing import Any

import sqlalchemy.exc

from durastore.errors import ConfigError, DurastoreError, PayloadError, SchemaError, StoreUnavailable

__all__ = ["mysql", "of", "postgresql"]

_INIT = "durastore's tables are missing; run: durastore init"
_RIGHTS = "the user lacks a right; grant SELECT, INSERT, UPDATE, DELETE on durastore's tables"
_LOGIN = "the server refused the login; look at user, password and database in the URL"
_GONE = "the server cannot be reached, or ended the connection"

_BY_STATE: dict[str, tuple[type[DurastoreError], str]] = {
    "42P01": (SchemaError, _INIT),
    "3F000": (SchemaError, _INIT),
    "42703": (SchemaError, "durastore's tables are of another version; run: durastore init"),
    "42501": (ConfigError, _RIGHTS),
    "3D000": (ConfigError, "there is no such database; create it, or name another"),
    "25006": (StoreUnavailable, "the server is read-only: a standby, or one that is being moved"),
}
"""SQLSTATE to meaning, before its class."""
_BY_CLASS: dict[str, tuple[type[DurastoreError], str]] = {
    "08": (StoreUnavailable, _GONE),
    "28": (ConfigError, _LOGIN),
    "40": (StoreUnavailable, "the transaction collided with another one"),
    "53": (StoreUnavailable, "the server is out of connections, memory or disk"),
    "55": (StoreUnavailable, "something the statement needs is in use"),
    "57": (StoreUnavailable, "the server ended the statement or is shutting down"),
    "58": (StoreUnavailable, "the server's system failed"),
    "XX": (StoreUnavailable, "the server, or a pooler before it, failed"),
}
_BY_NUMBER: dict[int, tuple[type[DurastoreError], str]] = {
    1040: (StoreUnavailable, "the server is out of connections"),
    1044: (ConfigError, _RIGHTS),
    1045: (ConfigError, _LOGIN),
    1049: (ConfigError, "there is no such database; create it, or name another"),
    1053: (StoreUnavailable, "the server is shutting down"),
    1054: (SchemaError, "durastore's tables are of another version; run: durastore init"),
    1114: (StoreUnavailable, "the disk is full"),
    1021: (StoreUnavailable, "the disk is full"),
    1142: (ConfigError, _RIGHTS),
    1143: (ConfigError, _RIGHTS),
    1146: (SchemaError, _INIT),
    1153: (PayloadError, "the value is larger than max_allowed_packet; set it to 16M or more"),
    1205: (StoreUnavailable, "another transaction holds a lock for too long"),
    1213: (StoreUnavailable, "the transaction collided with another one"),
    1290: (StoreUnavailable, "the server is read-only"),
    1698: (ConfigError, _LOGIN),
    1792: (StoreUnavailable, "the server is read-only"),
    2003: (StoreUnavailable, _GONE),
    2006: (StoreUnavailable, _GONE),
    2013: (StoreUnavailable, _GONE),
    2014: (StoreUnavailable, _GONE),
}


def of(error: Exception, dialect: str) -> DurastoreError | None:
    """As `Backend.classify`."""
    return (postgresql if dialect.startswith("postgresql") else mysql)(error, dialect.partition("+")[0])


def postgresql(error: Exception, scheme: str) -> DurastoreError | None:
    """The meaning of an error on the way to PostgreSQL."""
    inner = _unwrapped(error)
    shared = _shared(inner, scheme)
    if shared is not None or not _is_of(inner, "psycopg"):
        return shared
    state = getattr(inner, "sqlstate", None)
    if state is None:
        lost = type(inner).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")
        return _unstated(inner, scheme) if lost else None
    return _made(_BY_STATE.get(state) or _BY_CLASS.get(state[:2]), inner, scheme)


def _unstated(error: Exception, scheme: str) -> DurastoreError:
    """An error of the connection itself. A login that failed has no state on the client's side, but the server's words."""
    text = str(error)
    if any(
        word in text for word in ("password authentication failed", "no pg_hba.conf", "role ", "no password supplied")
    ):
        return _new(ConfigError, _LOGIN, error, scheme)
    if "database " in text and "does not exist" in text:
        return _new(ConfigError, "there is no such database; create it, or name another", error, scheme)
    return _new(StoreUnavailable, _GONE, error, scheme)


def mysql(error: Exception, scheme: str) -> DurastoreError | None:
    """The meaning of an error on the way to MySQL or MariaDB."""
    inner = _unwrapped(error)
    shared = _shared(inner, scheme)
    if shared is not None or not _is_of(inner, "pymysql"):
        return shared
    number = inner.args[0] if inner.args and isinstance(inner.args[0], int) else 0
    if number == 0 and type(inner).__name__ in ("InterfaceError", "OperationalError", "InternalError"):
        return _new(StoreUnavailable, _GONE, inner, scheme)
    return _made(_BY_NUMBER.get(number), inner, scheme)


def _unwrapped(error: Exception) -> Exception:
    origin = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else None
    return origin if isinstance(origin, Exception) else error


def _is_of(error: Exception, module: str) -> bool:
    return type(error).__module__.partition(".")[0] == module


def _shared(error: Exception, scheme: str) -> DurastoreError | None:
    """What is not the driver's: the pool, the network, Google's connector and its credentials."""
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return _new(StoreUnavailable, "all connections of the pool are in use; raise pool_size", error, scheme)
    if isinstance(error, (ConnectionError, TimeoutError)):
        return _new(StoreUnavailable, _GONE, error, scheme)
    name = type(error).__name__
    if name == "DefaultCredentialsError":
        return _new(ConfigError, "no Google credentials; run: gcloud auth application-default login", error, scheme)
    if name == "ClientResponseError" or _is_of(error, "aiohttp"):
        status: Any = getattr(error, "status", None)
        if status == 403:
            advice = "run: gcloud services enable sqladmin.googleapis.com, and grant the caller roles/cloudsql.client"
            return _new(ConfigError, advice, error, scheme)
        if status == 404:
            return _new(ConfigError, "there is no such instance; write PROJECT:REGION:INSTANCE", error, scheme)
        return _new(StoreUnavailable, "the Cloud SQL Admin API cannot be reached", error, scheme)
    if name in ("CloudSQLIPTypeError", "AutoIAMAuthNotSupported", "IncompatibleDriverError"):
        return _new(ConfigError, "look at ip_type, iam and the driver in the URL", error, scheme)
    return None


def _made(meaning: tuple[type[DurastoreError], str] | None, error: Exception, scheme: str) -> DurastoreError | None:
    return None if meaning is None else _new(meaning[0], meaning[1], error, scheme)


def _new(kind: type[DurastoreError], meaning: str, error: Exception, scheme: str) -> DurastoreError:
    """One line. The servers' texts hold no password; a connection string, which may, is never in them."""
    text = " ".join(str(error.args[-1] if error.args else error).split())[:200]
    return kind(f"{scheme}://: {meaning} ({text})")
