"""What the servers' refusals mean to the caller: one line, what to do, no password."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

import durastore
from durastore import emulators, urls
from durastore.errors import ConfigError, DurastoreError, PayloadError, SchemaError, StoreUnavailable

from .requests import RESULT, granted, request


def _meaning(
    url: str, call: Callable[[Any], Any] = lambda backend: backend.time(), **options: Any
) -> DurastoreError | None:
    """What the first error of a store's backend means."""
    backend = urls.connect(urls.parse(url, options))
    try:
        with pytest.raises(Exception, match=r"(?s).") as raised:
            call(backend)
        meaning = backend.classify(raised.value)
        assert "\n" not in str(meaning)
        assert "secret" not in str(meaning)
        return meaning
    finally:
        backend.close()


def test_wrong_password(server: emulators.Server) -> None:
    """Nothing that trying again could mend."""
    url = server.url.replace("durastore:durastore@", "durastore:secret-but-wrong@")
    meaning = _meaning(url)
    assert isinstance(meaning, ConfigError)
    assert "user, password and database" in str(meaning)


def test_no_such_user(server: emulators.Server) -> None:
    assert isinstance(_meaning(server.url.replace("durastore:durastore@", "nobody:secret@")), ConfigError)


def test_no_such_database(server: emulators.Server) -> None:
    meaning = _meaning(server.url.rpartition("/")[0] + "/nowhere")
    assert isinstance(meaning, ConfigError)
    assert "no such database" in str(meaning)


def test_nobody_listens(kind: str) -> None:
    """A server that is down is waited for, until the deadline."""
    assert isinstance(_meaning(f"{kind}://durastore:secret@127.0.0.1:9/durastore"), StoreUnavailable)


def test_no_such_host(kind: str) -> None:
    assert isinstance(_meaning(f"{kind}://durastore:secret@nowhere.invalid/durastore"), StoreUnavailable)


def test_no_tables(url: str) -> None:
    meaning = _meaning(f"{url}&table_prefix=absent_", lambda backend: backend.load("run"))
    assert isinstance(meaning, SchemaError)
    assert "durastore init" in str(meaning)


def test_no_tls_where_it_is_asked_for(server: emulators.Server) -> None:
    """`sslmode` reaches the driver: the local servers have no certificate that could be verified."""
    if "MariaDB 11" in server.version:
        pytest.skip("not run: it makes a certificate by itself")
    assert isinstance(_meaning(server.url, sslmode="require"), ConfigError)


def test_too_many_connections(server: emulators.Server, kind: str) -> None:
    """A user's limit is reached: passing."""
    role = f"r{uuid.uuid4().hex[:12]}"
    statements = {
        "postgresql": [f"CREATE ROLE {role} LOGIN PASSWORD 'secret' CONNECTION LIMIT 0"],
        "mysql": [
            f"CREATE USER {role}@'%' IDENTIFIED BY 'secret' WITH MAX_USER_CONNECTIONS 1",
            f"GRANT SELECT ON durastore.* TO {role}@'%'",
        ],
    }[kind]
    _run(server.url, *statements)
    url = server.url.replace("durastore:durastore@", f"{role}:secret@")

    def second(backend: Any) -> None:
        with backend._pool.single():
            backend.time()

    assert isinstance(_meaning(url, second), StoreUnavailable)


def test_read_only(url: str, kind: str) -> None:
    """A standby, or a server that is being moved: passing, and the doctor sees it."""
    option = {"postgresql": "SET default_transaction_read_only = on", "mysql": "SET SESSION TRANSACTION READ ONLY"}[
        kind
    ]
    plain = urls.connect(urls.parse(url))._pool._target.connect

    def creator() -> Any:
        connection = plain()
        with connection.cursor() as cursor:
            cursor.execute(option)
        connection.commit()
        return connection

    meaning = _meaning(url, lambda backend: backend.claim(request("key")), creator=creator)
    assert isinstance(meaning, StoreUnavailable)
    assert "read-only" in str(meaning)


def test_waiting_for_a_lock(mysql: str) -> None:
    """1205 rolls back a statement, not its transaction: that is ended as a whole, and the caller may try again."""
    plain = urls.connect(urls.parse(mysql))._pool._target.connect

    def creator() -> Any:
        connection = plain()
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        return connection

    with durastore.open(mysql, creator=creator) as store:
        grant = granted(store.backend.claim(request("key")))
        with store.backend._pool.transaction() as connection:
            connection.exec_driver_sql(
                f"SELECT 1 FROM durastore_records WHERE namespace = '{store.backend._namespace}' FOR UPDATE"
            ).fetchall()
            with pytest.raises(pymysql.OperationalError) as raised:
                store.backend.commit(grant, result=RESULT, then=request("next"))
            assert raised.value.args[0] == 1205
            assert isinstance(store.backend.classify(raised.value), StoreUnavailable)
            assert store.backend.read(["next"]) == [None]
        assert granted(store.backend.commit(grant, result=RESULT, then=request("next"))).key == "next"


@pytest.fixture
def small_packets(servers: Any) -> Iterator[str]:
    """A server that takes statements of 1 MiB, and hangs up on larger ones."""
    url = servers("mysql").url
    [(before,)] = _run(url, "SELECT @@GLOBAL.max_allowed_packet")
    _run(url, "SET GLOBAL max_allowed_packet = 1048576")
    yield url
    _run(url, f"SET GLOBAL max_allowed_packet = {before}")


def test_max_allowed_packet(small_packets: str) -> None:
    """Told apart from a lost connection, which would be tried again in vain; the doctor sees it beforehand."""
    meaning = _meaning(small_packets, lambda backend: backend.put_chunks("blob", [b"x" * 2**21]))
    assert isinstance(meaning, PayloadError)
    assert "max_allowed_packet" in str(meaning)
    with durastore.open(small_packets) as store:
        assert not {finding.name: finding.ok for finding in store.check()}["packets"]


def test_what_is_not_the_stores(store: durastore.Store) -> None:
    """Errors of the application are left alone, those that look like the network's too."""
    for error in (ConnectionError("x"), TimeoutError("x"), OSError("x"), ValueError("x"), RuntimeError("x")):
        assert store.backend.classify(error) is None


def test_error_texts(store: durastore.Store) -> None:
    """NUL and lone surrogates in an effect's error neither fail nor lose the rest."""
    grant = granted(store.backend.claim(request("key")))
    assert store.backend.abandon(grant, error="a\0b \ud800 ☃", in_doubt=False)
    [record] = store.backend.read(["key"])
    assert record is not None
    assert record.error is not None
    assert record.error.startswith("a")
    assert record.error.endswith("☃")


def _run(url: str, *statements: str) -> Any:
    """The rows of the last of some statements, with all rights."""
    backend = urls.connect(urls.parse(url))
    try:
        with backend._pool.single() as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        backend.close()
