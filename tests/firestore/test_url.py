"""``firestore://``: what the URL says reaches the client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import google.auth
import grpc
import pytest
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError

import durastore
from durastore import urls
from durastore.errors import ConfigError
from durastore_firestore import Target, connect, wire
from durastore_firestore.target import parse


def target(url: str, **options: Any) -> Target:
    return parse(urls.parse(url, options))


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)


@contextmanager
def server(heard: list[tuple[str, dict[str, str]]]) -> Iterator[str]:
    """A gRPC server that answers every read with a time, and notes the database and the metadata it was sent."""

    def answer(sent: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        heard.append((sent.database, dict(context.invocation_metadata())))
        made = wire.BatchGetDocumentsResponse()
        made.missing = sent.documents[0]
        made.read_time.seconds = 1
        yield made

    handler = grpc.unary_stream_rpc_method_handler(
        answer, wire.BatchGetDocumentsRequest.FromString, wire.BatchGetDocumentsResponse.SerializeToString
    )
    made = grpc.server(futures.ThreadPoolExecutor(2))
    methods = {"BatchGetDocuments": handler}
    made.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("google.firestore.v1.Firestore", methods)])
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    yield f"127.0.0.1:{port}"
    made.stop(None)


def test_each_store_speaks_to_its_own_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores with two hosts in one process, whatever the environment says: each reaches its own, and its own database."""
    first: list[tuple[str, dict[str, str]]] = []
    second: list[tuple[str, dict[str, str]]] = []
    with server(first) as here, server(second) as there:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
        with (
            durastore.open(f"firestore://p1/db-one?emulator_host={here}") as one,
            durastore.open("firestore://p2", emulator_host=there) as two,
        ):
            assert one.backend.time() == two.backend.time() == 1_000_000
    assert [database for database, _ in first] == ["projects/p1/databases/db-one"]
    assert [database for database, _ in second] == ["projects/p2/databases/(default)"]
    assert first[0][1]["google-cloud-resource-prefix"] == "projects/p1/databases/db-one"
    assert first[0][1]["authorization"] == "Bearer owner"


def test_the_environment_names_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """``FIRESTORE_EMULATOR_HOST`` is read when the store is opened, and the user's client goes there as well."""
    heard: list[tuple[str, dict[str, str]]] = []
    with server(heard) as host:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"http://{host}")
        backend = connect(urls.parse("firestore://project"))
        monkeypatch.delenv("FIRESTORE_EMULATOR_HOST")
        backend.time()
        list(backend.client.get_all([backend.client.document("a/b")]))
        backend.close()
    assert [metadata["authorization"] for _, metadata in heard] == ["Bearer owner"] * 2


@pytest.mark.parametrize("written", ["(default)", "%28default%29", ""])
def test_the_default_database(written: str) -> None:
    """Named plainly, percent-encoded, or left out."""
    assert target(f"firestore://p/{written}?emulator_host=h:1").path == "projects/p/databases/(default)"


def test_options() -> None:
    """All of them, and what they mean."""
    made = target("firestore://my-project/named?collection=jobs&timeout=2.5&namespace=n&emulator_host=h:1")
    assert (made.project, made.database, made.collection) == ("my-project", "named", "jobs")
    assert (made.timeout, made.namespace, made.emulator_host) == (2.5, "n", "h:1")


@pytest.mark.parametrize(
    "url",
    [
        "firestore://",
        "firestore:///db",
        "firestore://p/db/more",
        "firestore://p/a%2Fb",
        "firestore://p?collection=a/b",
        "firestore://p?collection=__x__",
        "firestore://p?timeout=0",
        "firestore://p?emulator_host=8080",
        "firestore://p?colection=x",
    ],
)
def test_bad_urls(url: str) -> None:
    """An error at `open`, not at the first call."""
    with pytest.raises(ConfigError):
        target(url)


def test_bad_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says that it was the environment."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "nonsense")
    with pytest.raises(ConfigError, match="FIRESTORE_EMULATOR_HOST"):
        target("firestore://p")


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """`open` says which command to run."""

    def default(**_: Any) -> Any:
        raise DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", default)
    with pytest.raises(ConfigError, match="gcloud auth application-default login"):
        durastore.open("firestore://project")


def test_application_default_credentials_reach_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an emulator, the credentials found are those that the channel uses."""
    found = AnonymousCredentials()
    monkeypatch.setattr(google.auth, "default", lambda **_: (found, "other-project"))
    made = target("firestore://project")
    assert made.credentials is found
    assert made.project == "project"
    assert "authorization" not in dict(made.metadata)
    made.channel().close()
