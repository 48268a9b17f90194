"""Effects that write through Firestore itself: their writes and the committed mark land together."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, NotFound
from google.cloud import firestore

import durastore
from durastore.contract import StoredProgress
from durastore.errors import ClaimLost, ConfigError
from durastore_firestore import FirestoreBackend

from .requests import RESULT, granted, request
from .wiretap import Wiretap


@pytest.fixture
def reference(backend: FirestoreBackend) -> firestore.DocumentReference:
    made: firestore.DocumentReference = backend.client.document(f"user-data/{uuid.uuid4().hex}")
    return made


def test_writes_land_with_the_mark(store: durastore.Store, reference: firestore.DocumentReference) -> None:
    """set, update and delete through the batch; the value is the outcome's; a replay writes nothing."""
    doomed = reference.parent.document()
    doomed.set({"a": 1})

    def effect(tx: firestore.WriteBatch) -> int:
        tx.set(reference, {"orders": 1, "at": firestore.SERVER_TIMESTAMP})
        tx.update(reference, {"orders": firestore.Increment(1)})
        tx.delete(doomed)
        return 17

    ckpt = store.checkpoint("run")
    assert ckpt.transact("key", effect) == (17, "executed")
    assert ckpt.transact("key", effect) == (17, "skipped")
    stored = reference.get().to_dict()
    assert stored is not None
    assert stored["orders"] == 2
    assert not doomed.get().exists


def test_another_client_of_the_same_database(
    store: durastore.Store, emulator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References need not come from ``tx.client``."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator)
    client = firestore.Client(project="demo-durastore")
    reference = client.collection("user-data").document()
    store.checkpoint("run").transact("key", lambda tx: tx.create(reference, {"a": 1}))
    assert reference.get().to_dict() == {"a": 1}
    client.close()


def test_an_effect_that_raises(store: durastore.Store, reference: firestore.DocumentReference) -> None:
    """Nothing it wrote remains, and the next call runs it again."""

    def effect(tx: firestore.WriteBatch) -> None:
        tx.set(reference, {"a": 1})
        raise OSError("far side")

    ckpt = store.checkpoint("run")
    with pytest.raises(OSError, match="far side"):
        ckpt.transact("key", effect)
    assert not reference.get().exists
    assert ckpt.transact("key", lambda tx: tx.set(reference, {"a": 2})).status == "executed"
    assert reference.get().to_dict() == {"a": 2}


@pytest.mark.parametrize("leave", ["commit", "with"])
def test_the_batch_is_not_the_effects_to_commit(
    store: durastore.Store, reference: firestore.DocumentReference, leave: str
) -> None:
    """`commit` is refused with the reason; leaving a ``with`` block commits nothing early."""

    def commits(tx: firestore.WriteBatch) -> None:
        tx.set(reference, {"a": 1})
        tx.commit()

    def uses_with(tx: firestore.WriteBatch) -> bool:
        with tx:
            tx.set(reference, {"a": 1})
        return bool(reference.get().exists)

    ckpt = store.checkpoint("run")
    if leave == "commit":
        with pytest.raises(ConfigError, match="do not commit the batch"):
            ckpt.transact("key", commits)
        assert not reference.get().exists
    else:
        assert ckpt.transact("key", uses_with).value is False
        assert reference.get().exists


def test_conditions_of_the_effects_own(backend: FirestoreBackend, reference: firestore.DocumentReference) -> None:
    """They fail as the official client fails, at once, and leave the claim to its holder."""
    grant = granted(backend.claim(request("key")))
    calls: list[int] = []

    def creates(tx: firestore.WriteBatch) -> Any:
        calls.append(1)
        tx.create(reference, {"a": 1})
        return RESULT

    reference.set({"a": 0})
    with pytest.raises(AlreadyExists):
        backend.transact(grant, creates)
    with pytest.raises(NotFound):
        backend.transact(grant, lambda tx: (tx.update(reference.parent.document(), {"a": 1}), RESULT)[1])
    assert len(calls) == 1
    reference.delete()
    assert backend.transact(grant, creates) == RESULT


def test_a_renewal_meanwhile(backend: FirestoreBackend, tap: Wiretap, reference: firestore.DocumentReference) -> None:
    """The holder's own renewal makes it call the effect again, with an empty batch; its writes land once."""
    grant = granted(backend.claim(request("key")))
    calls: list[int] = []

    def effect(tx: firestore.WriteBatch) -> Any:
        calls.append(len(tx))
        tx.set(reference, {"count": firestore.Increment(1)}, merge=True)
        if len(calls) == 1:
            backend.renew([grant])
        return RESULT

    backend.transact(grant, effect, progress=StoredProgress("run", 1, RESULT))
    assert calls == [0, 0]
    assert reference.get().to_dict() == {"count": 1}


def test_a_claim_lost_meanwhile(backend: FirestoreBackend, reference: firestore.DocumentReference) -> None:
    """A rival took over during the effect: nothing that it wrote remains."""
    grant = granted(backend.claim(request("key", lease=0)))

    def effect(tx: firestore.WriteBatch) -> Any:
        tx.set(reference, {"a": 1})
        backend.claim(request("key"))
        return RESULT

    with pytest.raises(ClaimLost):
        backend.transact(grant, effect)
    assert not reference.get().exists


def test_repeated_after_a_commit(backend: FirestoreBackend) -> None:
    """The effect is not called again."""
    grant = granted(backend.claim(request("key")))
    backend.transact(grant, lambda _: RESULT)
    assert backend.transact(grant, lambda _: pytest.fail("called again")) == RESULT
