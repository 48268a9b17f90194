"""Answers lost after DynamoDB applied the write, and writes that never arrive: inside one call of botocore, and across calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import durastore
from durastore.contract import Granted, Payload, StoredProgress
from durastore_dynamodb import DynamoDBBackend

from .requests import MINUTE, RESULT, TABLE, granted, request
from .wiretap import LOST, Wiretap

Disturb = Callable[[], None]


PLANS = [("lose", 1, "closed"), ("lose", 2, "timeout"), ("lose", 3, "closed"), ("drop", 2, "timeout")]


@pytest.fixture(params=PLANS, ids=lambda plan: f"{plan[0]}-{plan[1]}")
def disturb(request: pytest.FixtureRequest, tap: Wiretap) -> Disturb:
    """Once: botocore asks again inside its call. Twice: the call fails, and the store calls again. Three times: and again."""
    what, times, how = request.param
    return lambda: getattr(tap, what)(times, how)


def test_claim(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """The claim is ours, once: not a rival's, not attempted twice, with the token that was stored."""
    asked = request("key")
    disturb()
    answer = store.call("claim", backend.claim, asked)
    assert tap.idle
    assert granted(answer).nonce == asked.nonce
    assert granted(answer).attempt == 1
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.token == granted(answer).token
    store.call("commit", backend.commit, granted(answer), result=RESULT)


def test_takeover(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """A takeover whose answer was lost is still ours, with the next token, and says what it took over."""
    first = granted(backend.claim(request("key", lease=0)))
    tap.let_through()  # the look that finds the lapsed claim
    disturb()
    answer = store.call("claim", backend.claim, request("key"))
    assert tap.idle
    assert isinstance(answer, Granted)
    assert answer.grant.token == first.token + 1
    assert answer.took_over is not None


def test_renew(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """A renewal whose answer was lost is no lost claim."""
    grant = granted(backend.claim(request("key")))
    disturb()
    (renewed,) = store.call("renew", backend.renew, [grant])
    assert tap.idle
    assert renewed == grant
    backend.commit(grant, result=RESULT)


def test_a_lost_renewal_is_not_a_lost_claim_to_the_holder(store: durastore.Store, tap: Wiretap) -> None:
    """The keeper's renewal fails for want of an answer, however long: the effect goes on, and its commit lands."""
    tap.only = "UpdateItem"
    ckpt = store.checkpoint("run", lease=0.6)

    def effect() -> str:
        tap.lose(2)
        claim = durastore.current()
        assert claim is not None
        assert not claim.lost.wait(1.0)
        return "done"

    assert ckpt.run_once("key", effect) == ("done", "executed")
    assert tap.idle


def test_commit(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """The commit is a success."""
    grant = granted(backend.claim(request("key")))
    disturb()
    store.call("commit", backend.commit, grant, result=RESULT, retain=MINUTE)
    assert tap.idle
    (record,) = backend.read(["key"])
    assert record is not None
    assert (record.state, record.result) == ("committed", RESULT)


def test_commit_with_progress(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """Both landed, once, and a save that came later stays."""
    grant = granted(backend.claim(request("key")))
    disturb()
    store.call("commit", backend.commit, grant, result=RESULT, progress=StoredProgress("run", 3, RESULT))
    assert tap.idle
    assert backend.save(StoredProgress("run", 4, RESULT)).step == 4
    store.call("commit", backend.commit, grant, result=Payload(b"other"), progress=StoredProgress("run", 3, RESULT))
    (record,), stored = backend.read(["key"]), backend.load("run")
    assert record is not None
    assert (record.state, record.result) == ("committed", RESULT)
    assert stored is not None
    assert stored.step == 4


def test_fused(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """Result, progress and the next claim landed, and the next claim is ours."""
    grant, then = granted(backend.claim(request("key"))), request("next")
    disturb()
    following = store.call(
        "commit", backend.commit, grant, result=RESULT, progress=StoredProgress("run", 3, RESULT), then=then
    )
    assert tap.idle
    assert following is not None
    assert following.grant.nonce == then.nonce
    record, claimed = backend.read(["key", "next"])
    assert record is not None
    assert record.state == "committed"
    assert claimed is not None
    assert (claimed.token, claimed.attempt) == (following.grant.token, 1)
    backend.commit(following.grant, result=RESULT)


def test_abandon(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """Given back once, and the answer says so."""
    grant = granted(backend.claim(request("key")))
    disturb()
    assert store.call("abandon", backend.abandon, grant, error="why", in_doubt=True)
    assert tap.idle
    (record,) = backend.read(["key"])
    assert record is not None
    assert (record.state, record.error, record.token) == ("in_doubt", "why", grant.token)


def test_save(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """What is stored is what was saved; a large state, written by a transaction, too."""
    disturb()
    assert store.call("save", backend.save, StoredProgress("run", 2, RESULT)).step == 2
    assert tap.idle
    large = store.pack("x" * 300_000 + _noise()).payload
    disturb()
    assert store.call("save", backend.save, StoredProgress("run", 3, large)).state == large
    assert tap.idle
    assert backend.load("run") == store.call("save", backend.save, StoredProgress("run", 1, RESULT))


def test_incarnate(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """Numbers may be skipped, never given twice."""
    drawn = []
    for _ in range(3):
        disturb()
        drawn.append(store.call("incarnate", backend.incarnate, "run"))
        assert tap.idle
    assert drawn == sorted(set(drawn))


def test_transact(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """What the effect wrote is there once, with the mark; an effect that had landed is not called again."""
    place = {"pk": {"S": f"user/{request('x').nonce}"}, "sk": {"S": "-"}}
    count = {
        "TableName": TABLE,
        "Key": place,
        "UpdateExpression": "ADD written :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    calls: list[int] = []

    def effect(tx: list[Any]) -> Payload:
        calls.append(1)
        tx.append({"Update": count})
        return RESULT

    grant = granted(backend.claim(request("key")))
    tap.only = "TransactWriteItems"
    disturb()
    progress = StoredProgress("run", 1, RESULT)
    assert store.call("transact", backend.transact, grant, effect, progress=progress) == RESULT
    assert tap.pending <= 1, "the second call sees that it had landed, and sends nothing more"
    item = backend.client.get_item(TableName=TABLE, Key=place, ConsistentRead=True)["Item"]
    assert item["written"] == {"N": "1"}
    assert len(calls) <= 2


def test_one_token_for_one_transaction(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """When botocore asks again, it names the same transaction, so that DynamoDB applies it once."""
    grant = granted(backend.claim(request("key")))
    tap.requests()
    tap.lose()
    backend.commit(grant, result=RESULT, progress=StoredProgress("run", 1, RESULT))
    first, second = [sent for sent in tap.requests() if sent.operation == "TransactWriteItems"]
    assert first.body["ClientRequestToken"] == second.body["ClientRequestToken"]


def test_resolve(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """Settled once, and the answer says so."""
    backend.claim(request("key", lease=0))
    (seen,) = backend.read(["key"])
    assert seen is not None
    tap.only = "UpdateItem"
    disturb()
    assert store.call("resolve", backend.resolve, seen, nonce="settled", result=RESULT)
    assert tap.pending <= 1, "the second call sees that it had landed, and sends nothing more"
    (record,) = backend.read(["key"])
    assert record is not None
    assert (record.state, record.nonce) == ("committed", "settled")


@pytest.mark.parametrize(("made", "operation"), [(None, "UpdateItem"), (1, "DeleteItem")], ids=["young", "old"])
@pytest.mark.parametrize("plan", [("lose", 1), ("drop", 1), ("drop", 2)])
def test_delete(
    store: durastore.Store,
    backend: DynamoDBBackend,
    tap: Wiretap,
    plan: tuple[str, int],
    made: int | None,
    operation: str,
) -> None:
    """A key and a run that are gone by our own doing count as removed, whether they leave a number behind or not."""
    backend.incarnate("run", now=made)
    grant = granted(backend.claim(request("key"), now=made))
    backend.commit(grant, result=RESULT, progress=StoredProgress("run", 1, RESULT), now=made)
    (seen,) = backend.read(["key"])
    assert seen is not None
    tap.only = operation
    getattr(tap, plan[0])(plan[1])
    assert store.call("delete", backend.delete, seen)
    getattr(tap, plan[0])(plan[1])
    assert store.call("delete_run", backend.delete_run, "run")
    assert tap.idle
    assert backend.read(["key"]) == [None]
    assert backend.load("run") is None


def test_delete_whose_call_failed(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap) -> None:
    """When the whole call failed, nobody knows who removed it: False, and it is gone."""
    backend.commit(granted(backend.claim(request("key"))), result=RESULT)
    (seen,) = backend.read(["key"])
    assert seen is not None
    tap.only = "UpdateItem"
    tap.lose(2)
    assert not store.call("delete", backend.delete, seen)
    assert backend.read(["key"]) == [None]


def test_chunks(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """Chunks written twice are there once."""
    chunks = [bytes([number]) * 300_000 for number in range(10)]
    disturb()
    store.call("put_chunks", backend.put_chunks, "blob", chunks)
    assert tap.idle
    assert backend.get_chunks("blob") == chunks


def test_sweep(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, disturb: Disturb) -> None:
    """All that is due goes, nothing else."""
    for number in range(3):
        backend.commit(granted(backend.claim(request(f"due-{number}"), now=1)), result=RESULT, retain=0, now=1)
        backend.commit(granted(backend.claim(request(f"kept-{number}"))), result=RESULT)
    tap.only = "DeleteItem"
    disturb()
    removed = store.sweep()
    assert tap.idle
    assert removed.records <= 3
    found = backend.client.query(
        TableName=TABLE,
        IndexName="by_run",
        KeyConditionExpression="#run = :run",
        ExpressionAttributeNames={"#run": "run"},
        ExpressionAttributeValues={":run": {"S": backend._names.run_of("run")}},
    )["Items"]
    assert sorted(item["sk"]["S"] for item in found) == [f"kept-{number}" for number in range(3)]


def test_effects_run_once_when_every_answer_is_lost(store: durastore.Store, tap: Wiretap) -> None:
    """The whole protocol, with the answers of each write lost: executed once each, replayed alike."""
    calls: list[str] = []
    ckpt = store.checkpoint("run")
    for number in range(5):
        for _ in range(4):
            tap.lose(number % 3, list(LOST)[number % 2])
        outcome = ckpt.run_once(f"key-{number}", lambda: calls.append("x") or "done")  # type: ignore[func-returns-value]
        assert outcome == ("done", "executed")
    assert len(calls) == 5
    assert [ckpt.run_once(f"key-{number}", lambda: "never").status for number in range(5)] == ["skipped"] * 5


def test_run_agent_when_answers_are_lost(store: durastore.Store, tap: Wiretap) -> None:
    """Fused steps, every third answer lost: each effect runs once."""
    calls: list[int] = []

    def effect(item: int) -> int:
        calls.append(item)
        if item % 3 == 0:
            tap.lose(1 + item % 2)
        return item

    summary = durastore.run_agent(range(20), store.checkpoint("run"), effect)
    assert (summary.executed, calls) == (20, list(range(20)))


def _noise() -> str:
    import random

    return random.Random(7).randbytes(200_000).hex()
