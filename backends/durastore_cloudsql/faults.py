"""What the drivers' errors mean. PostgreSQL by SQLSTATE, MySQL by number; SQLAlchemy's wrapping is taken off first."""

from __future__ import annotations

from typing import Any, TypeAlias

import sqlalchemy.exc

from durastore.errors import ConfigError, DurastoreError, PayloadError, SchemaError, StoreUnavailable

__all__ = ["mysql", "of", "postgresql"]

Meaning: TypeAlias = "tuple[type[DurastoreError], str]"
TEXT_MAX = 200
"""Characters of a server's own words in a message."""

_INIT = "durastore's tables are missing; run: durastore init --url …, with the same schema and table_prefix"
_OTHER = "durastore's tables are of another version; run: durastore init --url …"
_RIGHTS = "the user lacks a right; grant SELECT, INSERT, UPDATE, DELETE on durastore's tables"
_LOGIN = "the server refused the login; look at user, password and database in the URL"
_DATABASE = "there is no such database; create it, or name another"
_GONE = "the server cannot be reached, or ended the connection"
_COLLIDED = "the transaction collided with another one"
_READ_ONLY = "the server is read-only: a standby, or one that is being moved"
_STOPPED = "the server ended the statement or is shutting down"
_FULL = "the server is out of connections, memory or disk"
_IDLE = "the server ended a transaction that was idle for too long; keep effects short, or raise its timeout"
_ENCODING = "the database cannot hold the text; make one with ENCODING 'UTF8'"
_TLS = "there is no TLS connection as the URL asks for; look at sslmode and sslrootcert"
_PACKET = "the value is larger than max_allowed_packet; set it to 16M or more"
_GOOGLE_RIGHTS = (
    "grant roles/cloudsql.client, for IAM login roles/cloudsql.instanceUser too; and run: "
    "gcloud services enable sqladmin.googleapis.com"
)

_BY_STATE: dict[str, Meaning] = {
    "0A000": (StoreUnavailable, "the schema changed under a session; the next one sees it"),
    "22021": (ConfigError, _ENCODING),
    "22P05": (ConfigError, _ENCODING),
    "25006": (StoreUnavailable, _READ_ONLY),
    "25P03": (StoreUnavailable, _IDLE),
    "25P04": (StoreUnavailable, _IDLE),
    "26000": (StoreUnavailable, "a pooler changed the session"),
    "3D000": (ConfigError, _DATABASE),
    "3F000": (SchemaError, _INIT),
    "42501": (ConfigError, _RIGHTS),
    "42703": (SchemaError, _OTHER),
    "42883": (SchemaError, _OTHER),
    "42P01": (SchemaError, _INIT),
}
"""SQLSTATE to meaning, before its class."""
_BY_CLASS: dict[str, Meaning] = {
    "08": (StoreUnavailable, _GONE),
    "28": (ConfigError, _LOGIN),
    "40": (StoreUnavailable, _COLLIDED),
    "53": (StoreUnavailable, _FULL),
    "55": (StoreUnavailable, "something the statement needs is in use"),
    "57": (StoreUnavailable, _STOPPED),
    "58": (StoreUnavailable, "the server's system failed"),
    "XX": (StoreUnavailable, "the server, or a pooler before it, failed"),
}
_BY_WORDS: tuple[tuple[tuple[str, ...], Meaning], ...] = (
    (("too many connections",), (StoreUnavailable, _FULL)),
    (
        ("password authentication failed", "no pg_hba.conf", "no password supplied", "no such user"),
        (ConfigError, _LOGIN),
    ),
    (("permission denied for",), (ConfigError, _RIGHTS)),
    (("no such database", 'FATAL:  database "'), (ConfigError, _DATABASE)),
    (('FATAL:  role "',), (ConfigError, _LOGIN)),
    (("SSL was required", "certificate verify failed", "root certificate"), (ConfigError, _TLS)),
)
"""A connection that was refused has no SQLSTATE on the client's side, only the server's words."""
_BY_NUMBER: dict[int, Meaning] = {
    **dict.fromkeys((1020, 1213, 1637), (StoreUnavailable, _COLLIDED)),
    **dict.fromkeys((1021, 1030, 1037, 1040, 1041, 1114, 1203, 1206, 1226), (StoreUnavailable, _FULL)),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370), (ConfigError, _RIGHTS)),
    **dict.fromkeys((1045, 1129, 1130, 1251, 1524, 1698, 2059, 2061), (ConfigError, _LOGIN)),
    **dict.fromkeys((1047, 1053, 1317, 1927, 1969, 3024), (StoreUnavailable, _STOPPED)),
    **dict.fromkeys((1054, 1305), (SchemaError, _OTHER)),
    **dict.fromkeys(
        (1158, 1159, 1160, 1161, 2002, 2003, 2005, 2006, 2012, 2013, 2014, 2055), (StoreUnavailable, _GONE)
    ),
    **dict.fromkeys((1290, 1792, 1836), (StoreUnavailable, _READ_ONLY)),
    1049: (ConfigError, _DATABASE),
    1146: (SchemaError, _INIT),
    1153: (PayloadError, _PACKET),
    1205: (StoreUnavailable, "another transaction holds a lock for too long"),
    2026: (ConfigError, _TLS),
}
"""The number of a MySQL or MariaDB error, the client's own included, to meaning."""
_BY_NAME: dict[str, Meaning] = {
    "AutoIAMAuthNotSupported": (ConfigError, "the instance takes no IAM login; set cloudsql.iam_authentication=on"),
    "CloudSQLIPTypeError": (ConfigError, "the instance has no such address; set ip_type=public, private or psc"),
    "DefaultCredentialsError": (ConfigError, "no Google credentials; run: gcloud auth application-default login"),
    "DnsResolutionError": (ConfigError, "there is no such instance; write PROJECT:REGION:INSTANCE"),
    "RefreshError": (ConfigError, "the Google credentials have expired; run: gcloud auth application-default login"),
}
"""What Google's connector and its credentials raise."""
_BY_STATUS: dict[int, Meaning] = {
    401: (ConfigError, "Google refused the credentials; run: gcloud auth application-default login"),
    403: (ConfigError, _GOOGLE_RIGHTS),
    404: (ConfigError, "there is no such instance; write PROJECT:REGION:INSTANCE"),
}
"""What the Cloud SQL Admin API answers."""


def of(error: Exception, dialect: str) -> DurastoreError | None:
    """As `Backend.classify`."""
    return (postgresql if dialect.startswith("postgresql") else mysql)(error, dialect.partition("+")[0])


def postgresql(error: Exception, scheme: str) -> DurastoreError | None:
    """The meaning of an error on the way to PostgreSQL."""
    inner = _unwrapped(error)
    if not _is_of(inner, "psycopg"):
        return _made(_elsewhere(inner), inner, scheme)
    state = getattr(inner, "sqlstate", None)
    if state is not None:
        return _made(_BY_STATE.get(state) or _BY_CLASS.get(state[:2]), inner, scheme)
    lost = type(inner).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")
    return _made(_by_words(str(inner)), inner, scheme) if lost else None


def _by_words(text: str) -> Meaning:
    for words, meaning in _BY_WORDS:
        if any(word in text for word in words):
            return meaning
    return StoreUnavailable, _GONE


def mysql(error: Exception, scheme: str) -> DurastoreError | None:
    """The meaning of an error on the way to MySQL or MariaDB."""
    inner = _unwrapped(error)
    if isinstance(inner, RuntimeError) and "cryptography" in str(inner):
        return _made((ConfigError, "this login needs a package; run: pip install 'pymysql[rsa]'"), inner, scheme)
    if not _is_of(inner, "pymysql"):
        return _made(_elsewhere(inner), inner, scheme)
    number = inner.args[0] if inner.args and isinstance(inner.args[0], int) else 0
    if number == 0 and type(inner).__name__ in ("InterfaceError", "OperationalError", "InternalError"):
        return _made((StoreUnavailable, _GONE), inner, scheme)
    return _made(_BY_NUMBER.get(number), inner, scheme)


def _unwrapped(error: Exception) -> Exception:
    origin = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else None
    return origin if isinstance(origin, Exception) else error


def _is_of(error: Exception, *modules: str) -> bool:
    return type(error).__module__.partition(".")[0] in modules


def _elsewhere(error: Exception) -> Meaning | None:
    """What is not the driver's: the pool, Google's connector and its credentials."""
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return StoreUnavailable, "all connections of the pool are in use; raise pool_size"
    if not _is_of(error, "google", "aiohttp"):
        return None
    status: Any = getattr(error, "status", None)
    by_google = _BY_NAME.get(type(error).__name__) or _BY_STATUS.get(status)
    return by_google or (StoreUnavailable, "the Cloud SQL Admin API cannot be reached")


def _made(meaning: Meaning | None, error: Exception, scheme: str) -> DurastoreError | None:
    """One line. The servers' texts hold no password; a connection string, which may, is never in them."""
    if meaning is None:
        return None
    kind, words = meaning
    said = error.args[-1] if _is_of(error, "pymysql") and error.args else error
    text = " ".join(str(said).split())[:TEXT_MAX]
    return kind(f"{scheme}://: {words} ({text})")
