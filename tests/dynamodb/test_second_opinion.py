"""moto, another implementation of DynamoDB: the same answers, so that nothing here rests on one emulator's reading of the API.

moto's own faults, as measured with version 5.2: its transactions are not isolated (`durastore.emulators` puts one lock around
its server), and each copies the whole table, so that they take seconds on a table of thousands of items (hence a table of its
own here, and no races); it takes a `ClientRequestToken` again with other contents, transactions beyond 4 MB and batches beyond
25 items; and it refuses an item of exactly 400 KB.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import durastore
from durastore import urls
from durastore.contract import Committed, Held, Payload, StoredProgress
from durastore.errors import ClaimLost
from durastore_dynamodb import DynamoDBBackend, connect

from .requests import MINUTE, RESULT, granted, on_table, request
from .wiretap import Wiretap

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture(scope="module")
def table(dynamodb_moto_url: str) -> Iterator[str]:
    """A table for this file alone, so that it stays small."""
    url = on_table(dynamodb_moto_url, f"t-{uuid.uuid4().hex}")
    backend = connect(urls.parse(url))
    backend.setup()
    yield url
    client: Any = backend.client
    client.delete_table(TableName=backend.target.table)
    backend.close()


@pytest.fixture
def backend(table: str) -> Iterator[DynamoDBBackend]:
    opened = connect(urls.parse(f"{table}&namespace=t-{uuid.uuid4().hex}"))
    yield opened
    opened.close()


@pytest.fixture
def tap(backend: DynamoDBBackend) -> Wiretap:
    return Wiretap().attach(backend.client)


@pytest.fixture
def store(backend: DynamoDBBackend) -> Iterator[durastore.Store]:
    with durastore.Store(backend) as opened:
        yield opened


def test_set_up_is_repeatable(backend: DynamoDBBackend) -> None:
    """And what it made is found well."""
    backend.setup()
    assert all(finding.ok for finding in backend.check()), backend.check()


def test_claims(backend: DynamoDBBackend) -> None:
    """Granted, held, taken over, lost, committed, skipped: the failed condition brings the record on every path."""
    first = granted(backend.claim(request("key", lease=0)))
    second = granted(backend.claim(request("key")))
    assert (second.token, second.attempt) == (first.token + 1, 2)
    assert isinstance(backend.claim(request("key")), Held)
    with pytest.raises(ClaimLost):
        backend.commit(first, result=Payload(b"zombie"))
    assert backend.renew([first, second]) == [None, second]
    assert not backend.abandon(first, error=None, in_doubt=False)
    backend.commit(second, result=Payload(b"\0\xff"))
    answer = backend.claim(request("key"))
    assert isinstance(answer, Committed)
    assert answer.result == Payload(b"\0\xff")


@pytest.mark.parametrize("times", [1, 2])
def test_lost_answers(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, times: int) -> None:
    """Own success is recognised here too, in single writes and by the reasons of a cancelled transaction."""
    tap.lose(times)
    grant = granted(store.call("claim", backend.claim, request("key")))
    tap.lose(times)
    following = store.call(
        "commit", backend.commit, grant, result=RESULT, progress=StoredProgress("run", 1, RESULT), then=request("next")
    )
    assert tap.idle
    assert following is not None
    tap.lose(times)
    assert store.call("abandon", backend.abandon, following.grant, error="why", in_doubt=True)
    record, given_back = backend.read(["key", "next"])
    assert record is not None
    assert given_back is not None
    assert (record.state, given_back.state, given_back.error) == ("committed", "in_doubt", "why")


def test_progress(backend: DynamoDBBackend) -> None:
    """Never backwards, by itself and in a commit; the reasons of a cancelled transaction say which item it was."""
    backend.save(StoredProgress("run", 5, RESULT))
    assert backend.save(StoredProgress("run", 4, None)).step == 5
    grant = granted(backend.claim(request("key")))
    backend.commit(grant, result=RESULT, progress=StoredProgress("run", 3, None), then=request("next"))
    stored, (record,) = backend.load("run"), backend.read(["key"])
    assert stored is not None
    assert stored.step == 5
    assert record is not None
    assert record.state == "committed"


def test_transact(store: durastore.Store, backend: DynamoDBBackend) -> None:
    """An effect's items land with the mark, or not at all."""
    place: Any = {"pk": {"S": f"user/{uuid.uuid4().hex}"}, "sk": {"S": "-"}}
    table = backend.target.table

    def effect(tx: list[Any], item: Any = None) -> str:
        tx.append(
            {"Put": {"TableName": table, "Item": item or place, "ConditionExpression": "attribute_not_exists(pk)"}}
        )
        return "done"

    ckpt = store.checkpoint("run")
    assert ckpt.transact("key", effect) == ("done", "executed")
    assert ckpt.transact("key", effect) == ("done", "skipped")
    with pytest.raises(Exception, match="ConditionalCheckFailed"):
        ckpt.transact("other", effect)
    assert store.record("other") is not None


def test_run_agent(store: durastore.Store, tap: Wiretap) -> None:
    """A whole run, its replay, and its listings."""
    assert durastore.run_agent(range(8), store.checkpoint("run"), lambda item: item).executed == 8
    assert len(tap.taken()) == 8 + 2
    ckpt = store.checkpoint("run")
    ckpt.reset()
    assert durastore.run_agent(range(8), ckpt, lambda item: item).skipped == 8
    assert len(list(store.records(run_id="run"))) == len(list(store.records(prefix="run:"))) == 8
    assert [run.step for run in store.runs()] == [8]


def test_retention_chunks_and_sweep(store: durastore.Store, backend: DynamoDBBackend) -> None:
    """Large payloads come back, and go with their record."""
    text = "".join(map(str, range(200_000)))
    assert store.checkpoint("run", retain=60).run_once("key", lambda: text).value == text
    assert store.checkpoint("run").run_once("key", lambda: "never") == (text, "skipped")
    later = backend.time() + 2 * MINUTE
    assert backend.read(["key"], now=later) == [None]
    assert backend.sweep(now=later).records == 1
    assert backend.sweep(now=later + 24 * 60 * MINUTE).chunks == 0
