"""Answers that get lost after Firestore applied the write, and writes that Firestore refuses for a moment."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

import durastore
from durastore.contract import Granted, Payload, StoredProgress
from durastore_firestore import FirestoreBackend

from .requests import RESULT, granted, request
from .wiretap import Refused, Wiretap

CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
lost = pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)


@pytest.fixture(params=["lost", "refused"])
def disturb(request: pytest.FixtureRequest, tap: Wiretap) -> Callable[[grpc.StatusCode], None]:
    """Lose the next write's answer, or the write itself: the caller cannot tell."""
    return tap.lose if request.param == "lost" else tap.refuse


Disturb = Callable[[grpc.StatusCode], None]


@lost
def test_claim(store: durastore.Store, backend: FirestoreBackend, disturb: Disturb, code: grpc.StatusCode) -> None:
    """The claim is ours, once: not a rival's, not attempted twice."""
    asked = request("key")
    disturb(code)
    answer = store.call("claim", backend.claim, asked)
    assert granted(answer).nonce == asked.nonce
    assert granted(answer).attempt == 1
    store.call("commit", backend.commit, granted(answer), result=RESULT)


@lost
def test_claim_by_reading_first(
    store: durastore.Store, backend: FirestoreBackend, disturb: Disturb, code: grpc.StatusCode
) -> None:
    """A takeover whose answer was lost is still ours, with the token that was granted."""
    first = granted(backend.claim(request("key", lease=0)))
    asked = request("key")
    backend.claim(request("key", takeover=False))  # from now on this run reads first
    disturb(code)
    answer = store.call("claim", backend.claim, asked)
    assert isinstance(answer, Granted)
    assert answer.grant.token == first.token + 1
    assert answer.took_over is not None


@lost
def test_commit(store: durastore.Store, backend: FirestoreBackend, disturb: Disturb, code: grpc.StatusCode) -> None:
    """The commit is a success, and the next claim that it made is ours."""
    grant = granted(backend.claim(request("key")))
    disturb(code)
    progress, then = StoredProgress("run", 3, RESULT), request("next")
    following = store.call("commit", backend.commit, grant, result=RESULT, progress=progress, then=then)
    assert following is not None
    assert following.grant.nonce == then.nonce
    record, claimed = backend.read(["key", "next"])
    assert record is not None
    assert (record.state, record.result) == ("committed", RESULT)
    assert claimed is not None
    assert claimed.token == following.grant.token
    stored = backend.load("run")
    assert stored is not None
    assert stored.step == 3


@lost
def test_renew(backend: FirestoreBackend, disturb: Disturb, code: grpc.StatusCode) -> None:
    """A renewal whose answer was lost is no lost claim: it is renewed again, and commits."""
    grant = granted(backend.claim(request("key")))
    disturb(code)
    with pytest.raises(Refused):
        backend.renew([grant])
    (renewed,) = backend.renew([grant])
    assert renewed is not None
    backend.commit(renewed, result=RESULT)


@lost
def test_commit_after_a_lost_renewal(backend: FirestoreBackend, tap: Wiretap, code: grpc.StatusCode) -> None:
    """The holder's version is stale by its own doing, so the commit reads, sees its nonce, and lands."""
    grant = granted(backend.claim(request("key")))
    tap.lose(code)
    with pytest.raises(Refused):
        backend.renew([grant])
    backend.commit(grant, result=RESULT)
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.state == "committed"


@lost
def test_abandon(store: durastore.Store, backend: FirestoreBackend, disturb: Disturb, code: grpc.StatusCode) -> None:
    """Given back once, and the answer says so."""
    grant = granted(backend.claim(request("key")))
    disturb(code)
    assert store.call("abandon", backend.abandon, grant, error="why", in_doubt=True)
    (record,) = backend.read(["key"])
    assert record is not None
    assert (record.state, record.error, record.token) == ("in_doubt", "why", grant.token)


@lost
def test_transact(store: durastore.Store, backend: FirestoreBackend, disturb: Disturb, code: grpc.StatusCode) -> None:
    """What the effect wrote is there once, with the mark; an effect that had landed is not called again."""
    counter = backend.client.document(f"user-data/{request('x').nonce}")
    calls: list[int] = []

    def effect(tx: object) -> Payload:
        from google.cloud.firestore import Increment, WriteBatch

        assert isinstance(tx, WriteBatch)
        calls.append(1)
        tx.set(counter, {"count": Increment(1)}, merge=True)
        return RESULT

    grant = granted(backend.claim(request("key")))
    disturb(code)
    assert store.call("transact", backend.transact, grant, effect) == RESULT
    assert counter.get().to_dict() == {"count": 1}


@lost
def test_save_and_resolve(
    store: durastore.Store, backend: FirestoreBackend, disturb: Disturb, code: grpc.StatusCode
) -> None:
    """Both are repeated until they are answered, and say what is stored."""
    disturb(code)
    stored = store.call("save", backend.save, StoredProgress("run", 2, RESULT))
    assert (stored.step, stored.state) == (2, RESULT)
    backend.claim(request("key", lease=0))
    (seen,) = backend.read(["key"])
    assert seen is not None
    disturb(code)
    assert store.call("resolve", backend.resolve, seen, nonce="settled", result=RESULT)
    (record,) = backend.read(["key"])
    assert record is not None
    assert (record.state, record.nonce) == ("committed", "settled")


@lost
def test_chunks(store: durastore.Store, backend: FirestoreBackend, disturb: Disturb, code: grpc.StatusCode) -> None:
    """Chunks written twice are there once."""
    chunks = [bytes([number]) * 300_000 for number in range(15)]
    disturb(code)
    store.call("put_chunks", backend.put_chunks, "blob", chunks)
    assert backend.get_chunks("blob") == chunks


def test_contention_is_settled_inside_the_verb(backend: FirestoreBackend, tap: Wiretap) -> None:
    """`ABORTED` (another write was under way) is decided anew from what is there."""
    tap.refuse(grpc.StatusCode.ABORTED, times=3)
    grant = granted(backend.claim(request("key")))
    tap.refuse(grpc.StatusCode.ABORTED, times=3)
    backend.commit(grant, result=RESULT, progress=StoredProgress("run", 1, RESULT))
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.state == "committed"


def test_effect_runs_once_when_every_answer_is_lost(store: durastore.Store, tap: Wiretap) -> None:
    """The whole protocol, with the answer of each write lost once: executed once, replayed alike."""
    calls: list[str] = []
    ckpt = store.checkpoint("run")
    for number in range(5):
        tap.lose(CODES[number % 2])
        outcome = ckpt.run_once(f"key-{number}", lambda: (calls.append("x"), tap.lose(CODES[0]), "done")[2])
        assert outcome == ("done", "executed")
    assert len(calls) == 5
    assert [ckpt.run_once(f"key-{number}", lambda: "never").status for number in range(5)] == ["skipped"] * 5
