"""How many requests each verb takes: DynamoDB's cost and latency, asserted from botocore's events."""

from __future__ import annotations

import pytest

import durastore
from durastore import urls
from durastore.contract import Committed, Held, StoredProgress
from durastore_dynamodb import ACTIONS, READ_ACTIONS, DynamoDBBackend, connect

from .conftest import Another
from .requests import RESULT, TABLE, granted, request
from .wiretap import Wiretap

GET, UPDATE, DELETE, TRANSACT = "GetItem", "UpdateItem", "DeleteItem", "TransactWriteItems"
QUERY, READ_MANY, WRITE_MANY = "Query", "BatchGetItem", "BatchWriteItem"

pytestmark = pytest.mark.usefixtures("unhurried")


def progress(step: int) -> StoredProgress:
    return StoredProgress("run", step, RESULT)


def test_claim_skip_and_commit(backend: DynamoDBBackend, tap: Wiretap, another: Another) -> None:
    """Granted, held, committed: one conditional `UpdateItem` each, and nothing is read. So is the commit."""
    grant = granted(backend.claim(request("key")))
    assert tap.taken() == [UPDATE]
    assert isinstance(backend.claim(request("key")), Held)
    assert tap.taken() == [UPDATE]
    backend.commit(grant, result=RESULT)
    assert tap.taken() == [UPDATE]
    fresh = another()
    fresh_tap = Wiretap().attach(fresh.client)
    assert isinstance(fresh.claim(request("key")), Committed)
    assert fresh_tap.taken() == [UPDATE]


def test_one_condition_is_the_claim(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """The request asks for the old item with its failure, so that no look is needed."""
    backend.claim(request("key"))
    (sent,) = tap.requests()
    assert sent.body["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert sent.body["ConditionExpression"] == "attribute_not_exists(#pk)"


def test_takeover(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """What was given back, or whose lease has lapsed, is found by one request and taken by a second, on condition."""
    backend.claim(request("lapsed", lease=0))
    backend.abandon(granted(backend.claim(request("back"))), error="why", in_doubt=False)
    tap.taken()
    for key in ("lapsed", "back"):
        granted(backend.claim(request(key)))
        first, second = tap.requests()
        assert (first.operation, second.operation) == (UPDATE, UPDATE)
        assert "#nonce = :nonce AND #state = :state" in second.body["ConditionExpression"]


def test_commit_with_progress(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Result and progress land in one transaction of two items."""
    grants = [granted(backend.claim(request(f"key-{step}"))) for step in (1, 2)]
    tap.taken()
    for step, grant in enumerate(grants):
        backend.commit(grant, result=RESULT, progress=progress(step))
    sent = tap.requests()
    assert [one.operation for one in sent] == [TRANSACT, TRANSACT]
    assert [len(one.body["TransactItems"]) for one in sent] == [2, 2]


def steps(backend: DynamoDBBackend, tap: Wiretap, *, with_progress: bool) -> list[str]:
    """Three steps of a sequential loop, each claimed by the commit before it."""
    grant = granted(backend.claim(request("key-0")))
    tap.taken()
    for step in range(1, 4):
        saved = progress(step) if with_progress else None
        following = backend.commit(grant, result=RESULT, progress=saved, then=request(f"key-{step}"))
        assert following is not None
        grant = following.grant
    return tap.taken()


def test_fused_where_the_commit_is_a_transaction_anyway(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """With progress: result, progress and the next claim are one request. Without: two plain updates, which cost less."""
    assert steps(backend, tap, with_progress=True) == [TRANSACT] * 3


def test_not_fused_where_it_would_make_a_transaction(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """A commit without progress is a plain update, and so is the claim after it."""
    assert steps(backend, tap, with_progress=False) == [UPDATE, UPDATE] * 3


@pytest.mark.parametrize(
    ("fuse", "with_progress", "expected"),
    [
        ("true", True, [TRANSACT] * 3),
        ("true", False, [TRANSACT] * 3),
        ("false", True, [TRANSACT, UPDATE] * 3),
        ("false", False, [UPDATE, UPDATE] * 3),
    ],
)
def test_fuse_by_option(url: str, fuse: str, with_progress: bool, expected: list[str]) -> None:
    """``?fuse=`` decides for commits with and without progress alike."""
    backend = connect(urls.parse(f"{url}&fuse={fuse}"))
    try:
        assert steps(backend, Wiretap().attach(backend.client), with_progress=with_progress) == expected
    finally:
        backend.close()


def test_a_next_key_that_is_not_free(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """The commit lands alone; the claim says by itself why it was not granted."""
    backend.claim(request("taken"))
    grant = granted(backend.claim(request("key")))
    tap.taken()
    assert backend.commit(grant, result=RESULT, progress=progress(1), then=request("taken")) is None
    assert tap.taken() == [TRANSACT, TRANSACT, UPDATE]
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.state == "committed"


def test_renewals(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """One conditional update for each claim: batches have no conditions, so that they would bring the dead to life."""
    grants = [granted(backend.claim(request(f"key-{number}"))) for number in range(20)]
    tap.taken()
    assert all(backend.renew(grants))
    assert tap.taken() == [UPDATE] * 20


def test_give_back_load_save_read_and_time(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """One request each; reading hundreds of keys is one for each hundred."""
    grant = granted(backend.claim(request("key")))
    tap.taken()
    assert backend.abandon(grant, error=None, in_doubt=False)
    backend.save(progress(1))
    backend.save(progress(2))
    assert tap.taken() == [UPDATE] * 3
    backend.load("run")
    backend.time()
    assert tap.taken() == [GET] * 2
    backend.read(["key"])
    backend.read([f"key-{number}" for number in range(250)])
    assert tap.taken() == [GET, *[READ_MANY] * 3]


def test_reads_that_decide_are_consistent(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Whatever is read of records, runs and payloads is read with `ConsistentRead`."""
    backend.load("run")
    backend.read(["a"])
    backend.read(["a", "b"])
    backend.get_chunks("blob")
    for sent in tap.requests():
        asked = sent.body["RequestItems"][TABLE] if sent.operation == READ_MANY else sent.body
        assert asked["ConsistentRead"] is True, sent


def test_transact(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """One read, since a committed key must not call the effect again, and one transaction."""
    grant = granted(backend.claim(request("key")))
    tap.taken()
    backend.transact(grant, lambda tx: tx.append(_put("x")) or RESULT, progress=progress(1))
    assert tap.taken() == [GET, TRANSACT]


def _put(name: str) -> dict[str, object]:
    return {"Put": {"TableName": TABLE, "Item": {"pk": {"S": f"user/{name}"}, "sk": {"S": "-"}}}}


def test_run_once(store: durastore.Store, tap: Wiretap) -> None:
    """Two requests when it is executed, one when it is skipped."""
    ckpt = store.checkpoint("run")
    assert ckpt.run_once("key", lambda: 1).status == "executed"
    assert tap.taken() == [UPDATE, UPDATE]
    assert ckpt.run_once("key", lambda: 2).status == "skipped"
    assert tap.taken() == [UPDATE]


def test_run_agent(store: durastore.Store, tap: Wiretap) -> None:
    """A run of N steps is N + 2 requests: load, the first claim, one for each step. Its replay is a handful, whatever N."""
    durastore.run_agent(range(50), store.checkpoint("run"), lambda item: item)
    assert tap.taken() == [GET, UPDATE, *[TRANSACT] * 49, TRANSACT]
    ckpt = store.checkpoint("run")
    ckpt.reset()
    tap.taken()
    assert durastore.run_agent(range(50), ckpt, lambda item: item).skipped == 50
    assert len(tap.taken()) <= 5


def test_nothing_is_scanned_and_every_action_is_granted(store: durastore.Store, tap: Wiretap) -> None:
    """A session that uses everything calls no more and no less than `ACTIONS`; looking keeps to `READ_ACTIONS`."""
    ckpt = store.checkpoint("run", retain=0.0)
    durastore.run_agent(range(3), ckpt, lambda item: item)
    ckpt.run_once("large", lambda: _noise(300_000))
    store.sweep()
    store.checkpoint("other").run_once("kept", lambda: _noise(300_000))
    ckpt.save_progress(9, {})
    ckpt.save_progress(1, {})
    claim = granted(store.backend.claim(request("late", run_id="run")))
    store.backend.commit(claim, result=RESULT, progress=StoredProgress("run", 0, RESULT))
    changed = {_action(sent.operation) for sent in tap.requests()}
    items = list(store.records()) + list(store.records(run_id="other")) + list(store.records(state="claimed"))
    assert items
    assert list(store.runs())
    assert store.record("kept") is not None
    assert len(_values(store)) == 1
    looked = {_action(sent.operation) for sent in tap.requests()}
    assert looked <= set(READ_ACTIONS)
    store.forget("kept")
    store.forget_run("run")
    changed |= {_action(sent.operation) for sent in tap.requests()} | looked
    condition_check = {"dynamodb:ConditionCheckItem"}  # what a transaction holds is an action of its own
    assert {"dynamodb:Scan"}.isdisjoint(changed)
    assert changed - {"dynamodb:TransactWriteItems"} | condition_check == set(ACTIONS)


def _values(store: durastore.Store) -> list[object]:
    return [record.result for record in store.records(prefix="kept")]


def _action(operation: str) -> str:
    return f"dynamodb:{operation}"


def _noise(size: int) -> str:
    """Text that does not compress."""
    import random

    return random.Random(7).randbytes(size // 2).hex()
