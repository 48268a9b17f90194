"""What goes wrong with a database, and what the message tells people to run."""

from __future__ import annotations

import socket
import time

import grpc
import pytest
from google.api_core.exceptions import AlreadyExists, NotFound, ServiceUnavailable
from google.auth.exceptions import RefreshError, TransportError

import durastore
from durastore import urls
from durastore.errors import ConfigError, DurastoreError, PayloadError, SchemaError, StoreUnavailable
from durastore_firestore import FirestoreBackend, connect
from durastore_firestore.target import parse

from .requests import RESULT, granted, request
from .wiretap import Refused, Wiretap

Code = grpc.StatusCode
TARGET = urls.parse("firestore://my-project/my-db?emulator_host=127.0.0.1:1")


@pytest.mark.parametrize(
    ("code", "details", "meaning", "advice"),
    [
        (Code.UNAVAILABLE, "failed to connect to all addresses", StoreUnavailable, "failed to connect"),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", StoreUnavailable, "DEADLINE_EXCEEDED"),
        (Code.ABORTED, "Too much contention on these documents.", StoreUnavailable, "contention"),
        (Code.INTERNAL, "internal", StoreUnavailable, "INTERNAL"),
        (Code.RESOURCE_EXHAUSTED, "Quota exceeded.", StoreUnavailable, "Quota"),
        (Code.RESOURCE_EXHAUSTED, "gRPC message exceeds maximum size 4194304: 5", PayloadError, "10 MiB"),
        (Code.INVALID_ARGUMENT, 'The value of property "data" is longer than 1048487 bytes.', PayloadError, "1 MiB"),
        (
            Code.UNAVAILABLE,
            "Getting metadata from plugin failed with error: ('invalid_grant: Bad Request', …)",
            ConfigError,
            "gcloud auth application-default login",
        ),
        (
            Code.PERMISSION_DENIED,
            "Cloud Firestore API has not been used in project my-project before or it is disabled.",
            ConfigError,
            "gcloud services enable firestore.googleapis.com --project=my-project",
        ),
        (Code.PERMISSION_DENIED, "Missing or insufficient permissions.", ConfigError, "roles/datastore.user"),
        (Code.UNAUTHENTICATED, "Request had invalid credentials.", ConfigError, "application-default login"),
        (
            Code.NOT_FOUND,
            "The database my-db does not exist for project my-project",
            SchemaError,
            "gcloud firestore databases create --database='my-db'",
        ),
        (
            Code.FAILED_PRECONDITION,
            "The Cloud Firestore API is not available for Firestore in Datastore Mode database",
            ConfigError,
            "Datastore mode",
        ),
        (
            Code.FAILED_PRECONDITION,
            "The query requires an index. You can create it here: https://…",
            SchemaError,
            "gcloud firestore indexes composite create",
        ),
    ],
)
def test_classify(code: grpc.StatusCode, details: str, meaning: type[DurastoreError], advice: str) -> None:
    """Passing errors are tried again; the others are final, on one line, with what to run."""
    error = connect(TARGET).classify(Refused(code, details))
    assert type(error) is meaning
    assert advice in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (RefreshError("invalid_grant"), ConfigError),
        (TransportError("no route"), StoreUnavailable),
        (ServiceUnavailable("from a read of the effect's own"), StoreUnavailable),
        (NotFound("a document of the effect's own"), None),
        (AlreadyExists("a document of the effect's own"), None),
        (ValueError("not the store's"), None),
    ],
)
def test_classify_what_is_not_an_rpc(error: Exception, meaning: type[DurastoreError] | None) -> None:
    """Credentials fail outside RPCs; a user's own exceptions are passed on."""
    found = connect(TARGET).classify(error)
    assert (None if found is None else type(found)) is meaning


def test_nobody_listens() -> None:
    """A refused connection is reported within the deadline, not after minutes."""
    store = durastore.Store(connect(TARGET))
    store.deadlines = dict.fromkeys(("claim", "load"), 0.3)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.checkpoint("run").load()
    assert time.monotonic() - began < 10
    store.close()


def test_a_host_that_never_answers() -> None:
    """An RPC has a timeout although the connection stands."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        backend = connect(urls.parse(f"firestore://p?emulator_host={host}&timeout=0.3"))
        with pytest.raises(grpc.RpcError) as caught:
            backend.load("run")
        assert isinstance(backend.classify(caught.value), StoreUnavailable)
        backend.close()


def test_check(backend: FirestoreBackend) -> None:
    """`doctor` sees the database and the indexes; on an emulator all is well."""
    findings = backend.check()
    assert all(finding.ok for finding in findings)
    assert [finding.name for finding in findings] == [
        "database",
        "read",
        "write",
        "index run_id + key",
        "index state + key",
    ]
    backend.setup()


def test_check_sees_a_right_to_read_alone(backend: FirestoreBackend, tap: Wiretap) -> None:
    """An account that may not write is found out without writing, and the role to give is named."""
    tap.refuse(Code.PERMISSION_DENIED)
    (denied,) = [finding for finding in backend.check() if not finding.ok]
    assert denied.name == "write"
    assert "roles/datastore.user" in denied.advice
    assert not backend.scan_runs().items


def test_check_says_what_is_missing(url: str) -> None:
    """A missing index is a finding with the command to run, and no exception."""

    class NoIndex(Wiretap):
        def intercept_unary_stream(self, continuation: object, details: object, request: object) -> object:
            if getattr(details, "method", "").endswith("RunQuery"):
                raise Refused(Code.FAILED_PRECONDITION, "The query requires an index.")
            return super().intercept_unary_stream(continuation, details, request)

    backend = FirestoreBackend(parse(urls.parse(url)), interceptors=[NoIndex()])
    missing = [finding for finding in backend.check() if not finding.ok]
    assert len(missing) == 2
    assert all("gcloud firestore indexes composite create" in finding.advice for finding in missing)
    backend.close()


def test_a_database_that_is_not_there(url: str, tap: Wiretap) -> None:
    """Every verb reports the missing database, also those that take NOT_FOUND for a rival's deletion at first."""

    class Gone(Wiretap):
        def intercept_unary_stream(self, *_: object) -> object:
            raise Refused(Code.NOT_FOUND, "The database x does not exist for project p")

        def intercept_unary_unary(self, *_: object) -> object:
            raise Refused(Code.NOT_FOUND, "The database x does not exist for project p")

    backend = FirestoreBackend(parse(urls.parse(url)), interceptors=[Gone()])
    store = durastore.Store(backend)
    with pytest.raises(SchemaError, match="databases create"):
        store.setup()
    with pytest.raises(SchemaError, match="databases create"):
        store.checkpoint("run").run_once("key", lambda: 1)
    assert not next(finding for finding in backend.check() if finding.name == "read").ok
    store.close()


def test_too_large_a_transaction(store: durastore.Store, backend: FirestoreBackend) -> None:
    """What the effect writes beyond Firestore's limit is refused for good; the claim stands."""
    grant = granted(backend.claim(request("key")))
    reference = backend.client.document("user-data/large")

    def effect(tx: object) -> object:
        for number in range(6):
            tx.set(backend.client.document(f"user-data/large-{number}"), {"data": b"x" * 1_000_000})  # type: ignore[attr-defined]
        return RESULT

    with pytest.raises(PayloadError):
        store.call("transact", backend.transact, grant, effect)
    assert not reference.get().exists
    backend.commit(grant, result=RESULT)
