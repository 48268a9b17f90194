"""Cloud SQL instances: what is asked of Google's connector, and what its refusals mean. Google itself is not reached here."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import aiohttp
import multidict
import pytest
import yarl
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from google.cloud.sql import connector as google

import durastore
from durastore import emulators, urls
from durastore.errors import ConfigError, StoreUnavailable
from tests.outages.ways import run

INSTANCE = "project:region:instance"


class FakeConnector:
    """Connects to a local server, as the real one would to an instance, and keeps what it was asked for."""

    made: ClassVar[list[FakeConnector]]
    connect_locally: Any

    def __init__(self, **options: Any) -> None:
        self.options, self.asked, self.closed, self.pid = options, [], False, os.getpid()
        self.made.append(self)

    def connect(self, instance: str, driver: str, **arguments: Any) -> Any:
        self.asked.append((instance, driver, arguments))
        return type(self).connect_locally()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, url: str) -> type[FakeConnector]:
    class Fake(FakeConnector):
        made: ClassVar[list[FakeConnector]] = []
        connect_locally = staticmethod(urls.connect(urls.parse(url))._pool._target.connect)

    monkeypatch.setattr(google, "Connector", Fake)
    return Fake


def test_a_run_by_way_of_the_connector(fake: type[FakeConnector], url: str, kind: str) -> None:
    """IAM login without a password, lazy refresh, the address that was asked for; one connector, closed at the end."""
    query = url.partition("?")[2]
    with durastore.open(f"cloudsql+{kind}://sa%40project.iam@{INSTANCE}/app?ip_type=private&{query}") as store:
        assert fake.made == [], "credentials are looked for when they are needed"
        assert durastore.run_agent(range(3), store.checkpoint("run"), lambda item: item).executed == 3
        assert store.checkpoint("run").transact("tx", lambda tx: 1).value == 1
    [made] = fake.made
    assert made.closed
    assert {name: made.options[name] for name in ("ip_type", "enable_iam_auth", "refresh_strategy")} == {
        "ip_type": "private",
        "enable_iam_auth": True,
        "refresh_strategy": "lazy",
    }
    instance, driver, arguments = made.asked[0]
    assert (instance, driver) == (INSTANCE, {"postgresql": "psycopg", "mysql": "pymysql"}[kind])
    assert (arguments["user"], arguments["db"]) == ("sa@project.iam", "app")
    assert "password" not in arguments


def test_with_a_password(fake: type[FakeConnector], kind: str, url: str) -> None:
    """A password in the URL means a login by password; it is in no message."""
    opened = f"cloudsql+{kind}://user:s%3Acret@{INSTANCE}/app?{url.partition('?')[2]}"
    with durastore.open(opened) as store:
        store.checkpoint("run").load()
        assert "s%3Acret" not in repr(store)
    [made] = fake.made
    assert made.options["enable_iam_auth"] is False
    assert made.asked[0][2]["password"] == ("s:cret" if kind == "postgresql" else b"s:cret")


@pytest.mark.parametrize("password", ["pä€ss😀", "a b:/?#[]@%&+'\""])
def test_any_letters_in_a_password(url: str, kind: str, password: str) -> None:
    """A password is said to the server as whoever set it said it: in UTF-8."""
    name = f"u{uuid.uuid4().hex[:12]}"
    whole = f"{name}@'%'" if kind == "mysql" else name
    said = password.replace("'", "''")
    login = f"IDENTIFIED BY '{said}'" if kind == "mysql" else f"PASSWORD '{said}'"
    tables = "durastore.*" if kind == "mysql" else "ALL TABLES IN SCHEMA public"
    run(url, f"CREATE USER {whole} {'' if kind == 'mysql' else 'LOGIN '}{login}")
    run(url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {whole}")
    theirs = url.replace("durastore:durastore@", f"{name}:{quote(password, safe='')}@")
    assert theirs != url
    with durastore.open(theirs) as store:
        assert store.checkpoint("run").run_once("key", lambda: 1).value == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="not run: there is no fork on this system")
def test_fork(fake: type[FakeConnector], kind: str, url: str) -> None:
    """A child makes a connector of its own: the parent's lives on a thread that the child does not have."""
    with durastore.open(f"cloudsql+{kind}://user@{INSTANCE}/app?{url.partition('?')[2]}") as store:
        store.checkpoint("run").load()
        child = os.fork()
        if not child:
            store.checkpoint("run").load()
            os._exit(0 if [made.pid for made in fake.made] == [os.getppid(), os.getpid()] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "address",
    [
        "instance/db",
        "user@instance/db",
        "user@project:region/db",
        "user@a:b:c:d:e/db",
        "user@project:region:instance",
        "user@::/db",
    ],
)
def test_addresses_that_are_none(kind: str, address: str) -> None:
    with pytest.raises(ConfigError, match="PROJECT:REGION:INSTANCE"):
        durastore.open(f"cloudsql+{kind}://{address}")


@pytest.mark.parametrize("address", ["", "host", "host/", "user@host:port/db", "user@host:99x/db"])
def test_server_addresses_that_are_none(kind: str, address: str) -> None:
    with pytest.raises(ConfigError):
        durastore.open(f"{kind}://{address}")


def test_options_for_the_other_kind(kind: str) -> None:
    """What would be without effect is refused."""
    with pytest.raises(ConfigError, match="iam"):
        durastore.open(f"{kind}://user@host/db?iam=true")
    with pytest.raises(ConfigError, match="sslmode"):
        durastore.open(f"cloudsql+{kind}://user@{INSTANCE}/db?sslmode=require")
    with pytest.raises(ConfigError, match="ip_type"):
        durastore.open(f"cloudsql+{kind}://user@{INSTANCE}/db?ip_type=secret")
    with pytest.raises(ConfigError, match="pool_size"):
        durastore.open(f"{kind}://user@host/db?pool_size=0")


def test_no_credentials(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real connector, on a machine without credentials: the doctor says what to run."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with durastore.open(f"cloudsql+{kind}://user@{INSTANCE}/db") as store:
        [finding] = store.check()
    assert not finding.ok
    assert "gcloud auth application-default login" in finding.detail


def _answer(status: int) -> Exception:
    asked = yarl.URL("https://sqladmin.googleapis.com/sql/v1beta4/projects/project/instances/instance/connectSettings")
    info = aiohttp.RequestInfo(asked, "GET", multidict.CIMultiDictProxy(multidict.CIMultiDict()), asked)
    return aiohttp.ClientResponseError(info, (), status=status, message="refused")


@pytest.mark.parametrize(
    ("error", "kind_of_error", "words"),
    [
        (_answer(403), ConfigError, "roles/cloudsql.client"),
        (_answer(403), ConfigError, "sqladmin.googleapis.com"),
        (_answer(404), ConfigError, "no such instance"),
        (_answer(401), ConfigError, "credentials"),
        (_answer(503), StoreUnavailable, "Admin API"),
        (DefaultCredentialsError("none"), ConfigError, "application-default login"),
        (RefreshError("expired"), ConfigError, "application-default login"),
        (google.exceptions.CloudSQLIPTypeError("none"), ConfigError, "ip_type"),
        (google.exceptions.AutoIAMAuthNotSupported("none"), ConfigError, "cloudsql.iam_authentication"),
        (OSError("unreachable"), StoreUnavailable, "cannot be reached"),
        (TimeoutError(), StoreUnavailable, "cannot be reached"),
    ],
)
def test_refusals(fake: type[FakeConnector], kind: str, error: Exception, kind_of_error: type, words: str) -> None:
    """Credentials, API, role, address: the message says what is missing and what to run."""

    def refuse() -> Any:
        raise error

    fake.connect_locally = staticmethod(refuse)
    with durastore.open(f"cloudsql+{kind}://user@{INSTANCE}/db") as store:
        store.deadlines["time"] = 0.1
        with pytest.raises(Exception, match=r".*") as raised:
            store.backend.time()
        meaning = store.backend.classify(raised.value)
        assert isinstance(meaning, kind_of_error), meaning
        assert words in str(meaning)
        assert "\n" not in str(meaning)


def test_a_creator(server: emulators.Server, url: str, kind: str) -> None:
    """Whoever makes connections in a way of his own passes a function; the scheme says which driver."""
    made: list[Any] = []
    plain = urls.connect(urls.parse(url))._pool._target.connect

    def creator() -> Any:
        made.append(1)
        return plain()

    with durastore.open(f"cloudsql+{kind}://anything?{url.partition('?')[2]}", creator=creator) as store:
        assert store.checkpoint("run").run_once("key", lambda: 1).value == 1
    assert made
    with pytest.raises(ConfigError, match="creator"):
        durastore.open(server.url, creator="no function")


def test_a_creator_for_mysql(mysql: str) -> None:
    """A connection that takes one statement at a time is refused with what it needs."""
    import pymysql

    def creator() -> Any:
        from urllib.parse import urlsplit

        parts = urlsplit(mysql)
        return pymysql.connect(
            host=parts.hostname, port=parts.port or 0, user="durastore", password="durastore", database="durastore"
        )

    with durastore.open(mysql, creator=creator) as store, pytest.raises(ConfigError, match="MULTI_STATEMENTS"):
        store.checkpoint("run").load()


def test_a_socket(servers: Any, tmp_path: Path) -> None:
    """A host that begins with a slash is a socket's place, in the letters in which it was written."""
    from durastore_cloudsql.targets import target

    folder = tmp_path / "Upper"
    folder.mkdir()
    url = urls.parse(f"postgresql://user@{str(folder).replace('/', '%2F')}/db")
    with pytest.raises(Exception, match="Upper"):
        target(url, {}).connect()
