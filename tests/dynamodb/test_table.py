"""The table: set-up, what `doctor` and `open` find out, rights that are missing, and replicas."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import durastore
from durastore import urls
from durastore.contract import Finding
from durastore.errors import ConfigError, SchemaError
from durastore_dynamodb import DynamoDBBackend, connect, table_definition
from durastore_dynamodb.api import Api
from durastore_dynamodb.target import parse

from .requests import RESULT, granted, on_table, request
from .wiretap import Wiretap

DENIED = "AccessDeniedException"


@pytest.fixture
def fresh(dynamodb_url: str) -> Iterator[str]:
    """The URL of a table that is not there yet."""
    name = f"t-{uuid.uuid4().hex}"
    yield on_table(dynamodb_url, name)
    backend = connect(urls.parse(dynamodb_url))
    client: Any = backend.client
    if name in client.list_tables()["TableNames"]:
        client.delete_table(TableName=name)
    backend.close()


def denying(monkeypatch: pytest.MonkeyPatch, *operations: str) -> list[str]:
    """A role that may not call these; what it called is returned."""
    called: list[str] = []
    send = Wiretap._follow

    def follow(self: Wiretap, request: Any, what: str, detail: Any) -> Any:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        called.append(operation)
        return self._refusal(request, DENIED, 400, {}) if operation in operations else send(self, request, what, detail)

    monkeypatch.setattr(Wiretap, "_follow", follow)
    tapped(monkeypatch)
    return called


def tapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client from now on is watched before its first request."""
    made = Api.__init__

    def watched(self: Api, *args: Any) -> None:
        made(self, *args)
        Wiretap().attach(self.client)

    monkeypatch.setattr(Api, "__init__", watched)


def describing(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None]) -> None:
    """`DescribeTable` answers otherwise."""
    send = Api._send

    def changed(self: Api, operation: str, arguments: dict[str, Any]) -> Any:
        answer = send(self, operation, arguments)
        if operation == "describe_table":
            change(answer["Table"])
        return answer

    monkeypatch.setattr(Api, "_send", changed)


def by_name(backend: DynamoDBBackend) -> dict[str, Finding]:
    return {finding.name: finding for finding in backend.check()}


def test_no_table(fresh: str) -> None:
    """`open` does not create it; a verb says what to run, and so does `doctor`."""
    with durastore.open(fresh) as store:
        with pytest.raises(SchemaError, match="durastore init, or apply terraform/dynamodb"):
            store.checkpoint("run").run_once("key", lambda: 1)
        assert any("durastore init" in finding.detail for finding in store.check() if not finding.ok)
        (table,) = store.backend.check()
        assert not table.ok
        assert "durastore init" in table.advice


def test_set_up_by_url(fresh: str) -> None:
    """``?create=true`` makes the table, its indexes and its TTL; twice is fine."""
    for _ in range(2):
        with durastore.open(f"{fresh}&create=true") as store:
            assert store.checkpoint("run").run_once("key", lambda: 1).value == 1
            assert all(finding.ok for finding in store.check()), store.check()


def test_set_up_makes_what_the_definition_says(fresh: str) -> None:
    """What Terraform is compared with is what `setup` makes."""
    with durastore.open(f"{fresh}&create=true") as store:
        backend: Any = store.backend
        wanted = table_definition(backend.target.table)
        found = backend.client.describe_table(TableName=backend.target.table)["Table"]
    order: Any = {"key": str}
    assert sorted(found["KeySchema"], **order) == sorted(wanted["KeySchema"], **order)
    assert sorted(found["AttributeDefinitions"], **order) == sorted(wanted["AttributeDefinitions"], **order)
    indexes = {index["IndexName"]: index for index in found["GlobalSecondaryIndexes"]}
    for index in wanted["GlobalSecondaryIndexes"]:
        assert indexes[index["IndexName"]]["KeySchema"] == index["KeySchema"]
        assert indexes[index["IndexName"]]["Projection"]["ProjectionType"] == "KEYS_ONLY"


def test_somebody_elses_table(fresh: str) -> None:
    """A table with other keys is not touched, and named in the error."""
    backend = connect(urls.parse(fresh))
    client: Any = backend.client
    client.create_table(
        TableName=backend.target.table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    with pytest.raises(SchemaError, match="not durastore's"):
        backend.setup()
    assert "keys are not pk and sk" in by_name(backend)["indexes"].detail
    with durastore.Store(backend) as store, pytest.raises(SchemaError, match="not durastore's"):
        store.checkpoint("run").run_once("key", lambda: 1)


# Rights


def test_a_role_without_describe_table(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens and works; `doctor` says what it could not look at."""
    denying(monkeypatch, "DescribeTable", "DescribeTimeToLive")
    with durastore.open(url) as store:
        assert store.checkpoint("run").run_once("key", lambda: 1).value == 1
        bad = [finding for finding in store.check() if not finding.ok]
        assert [finding.name for finding in bad] == ["description"]
        assert "dynamodb:DescribeTable" in bad[0].advice


def test_a_role_without_create_table(fresh: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In production Terraform makes the table: nothing but `setup` of a missing one needs the right, and says so."""
    called = denying(monkeypatch, "CreateTable", "UpdateTimeToLive")
    with durastore.open(url) as store:
        store.setup()
        assert store.checkpoint("run").run_once("key", lambda: 1).value == 1
    assert "CreateTable" not in called
    with durastore.open(fresh) as store, pytest.raises(ConfigError, match=DENIED):
        store.setup()


@pytest.mark.parametrize(("operation", "finding"), [("GetItem", "read"), ("UpdateItem", "write")])
def test_doctor_finds_missing_rights(url: str, monkeypatch: pytest.MonkeyPatch, operation: str, finding: str) -> None:
    """A role that may not read, or not write, is found out without writing."""
    denying(monkeypatch, operation)
    backend = connect(urls.parse(url))
    bad = [found for found in by_name(backend).values() if not found.ok]
    assert [found.name for found in bad] == [finding]
    assert "durastore_dynamodb.ACTIONS" in bad[0].advice
    assert not list(backend.scan().items)
    backend.close()


def test_doctor_writes_nothing(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Its one write stands on a condition that cannot hold."""
    assert all(finding.ok for finding in backend.check())
    assert not list(backend.scan().items)
    assert backend._api.get(backend._names.payload("never")) is None


# Replicas


def test_replicas_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in several regions cannot keep the promise: `open` says so, and no verb of another client writes."""

    def replicated(table: dict[str, Any]) -> None:
        table["Replicas"] = [{"RegionName": "eu-west-1", "ReplicaStatus": "ACTIVE"}]

    describing(monkeypatch, replicated)
    with pytest.raises(ConfigError, match="the last writer wins"):
        durastore.open(url)


def test_a_look_that_was_throttled_is_made_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control plane that has no time does not stop the work, and the replicas are found as soon as it has."""
    backend = DynamoDBBackend(parse(urls.parse(url)))
    tap = Wiretap().attach(backend.client)
    tap.refuse("ThrottlingException", times=2)  # botocore asks twice
    granted(backend.claim(request("key")))
    assert tap.taken() == ["DescribeTable", "DescribeTable", "UpdateItem"], "no more looks for the moment"
    backend._api._look_due = 0.0

    def replicated(table: dict[str, Any]) -> None:
        table["Replicas"] = [{"RegionName": "eu-west-1"}]

    describing(monkeypatch, replicated)
    with pytest.raises(ConfigError, match="the last writer wins"):
        backend.claim(request("other"))
    backend.close()


def test_doctor_sees_replicas(backend: DynamoDBBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that were added after opening."""

    def replicated(table: dict[str, Any]) -> None:
        table["Replicas"] = [{"RegionName": "eu-west-1"}, {"RegionName": "us-east-1"}]

    describing(monkeypatch, replicated)
    found = by_name(backend)["regions"]
    assert not found.ok
    assert "eu-west-1, us-east-1" in found.detail
    assert "without replicas" in found.advice


def test_doctor_sees_a_missing_index_and_ttl(backend: DynamoDBBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a table by hand forgot."""
    describing(monkeypatch, lambda table: table["GlobalSecondaryIndexes"].pop())
    monkeypatch.setattr("durastore_dynamodb.schema._ttl", lambda _: False)
    found = by_name(backend)
    assert not found["indexes"].ok
    assert "missing" in found["indexes"].detail
    assert not found["ttl"].ok
    assert "sweep() alone" in found["ttl"].advice


def test_replicas_are_found_when_the_store_was_out_of_reach_at_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`open` cannot look: the first verb does, before it writes anything."""
    tapped(monkeypatch)
    backend = DynamoDBBackend(parse(urls.parse(url)))

    def replicated(table: dict[str, Any]) -> None:
        table["Replicas"] = [{"RegionName": "eu-west-1"}]

    describing(monkeypatch, replicated)
    with pytest.raises(ConfigError, match="the last writer wins"):
        backend.claim(request("key"))
    backend.close()
    monkeypatch.undo()
    again = connect(urls.parse(url))
    again.commit(granted(again.claim(request("key"))), result=RESULT)
    again.close()
