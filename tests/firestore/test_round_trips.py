"""How many RPCs each verb takes: Firestore's cost and latency, asserted by an interceptor."""

from __future__ import annotations

from collections.abc import Callable

import durastore
from durastore.contract import Committed, Held, StoredProgress
from durastore_firestore import FirestoreBackend

from .requests import RESULT, granted, request
from .wiretap import Wiretap

GET, COMMIT, EACH, QUERY = "BatchGetDocuments", "Commit", "BatchWrite", "RunQuery"
Another = Callable[[], FirestoreBackend]


def progress(step: int) -> StoredProgress:
    return StoredProgress("run", step, RESULT)


def test_claim_and_commit(backend: FirestoreBackend, tap: Wiretap) -> None:
    """One RPC for an uncontended claim, one for its commit, and nothing is read."""
    grant = granted(backend.claim(request("key")))
    assert tap.taken() == [COMMIT]
    backend.commit(grant, result=RESULT)
    assert tap.taken() == [COMMIT]


def test_commit_with_progress(backend: FirestoreBackend, tap: Wiretap) -> None:
    """Result and progress land in one RPC, for a run that was loaded once."""
    backend.load("run")
    grants = [granted(backend.claim(request(f"key-{step}"))) for step in (1, 2, 3)]
    tap.taken()
    for step, grant in enumerate(grants):
        backend.commit(grant, result=RESULT, progress=progress(step))
    assert tap.taken() == [COMMIT] * 3


def test_fused_commit(backend: FirestoreBackend, tap: Wiretap) -> None:
    """Result, progress and the next claim are one RPC, step after step."""
    backend.load("run")
    grant = granted(backend.claim(request("key-0")))
    tap.taken()
    for step in range(1, 6):
        following = backend.commit(grant, result=RESULT, progress=progress(step), then=request(f"key-{step}"))
        assert following is not None
        grant = following.grant
    assert tap.taken() == [COMMIT] * 5


def test_first_progress_of_an_unknown_run_is_read_once(backend: FirestoreBackend, tap: Wiretap) -> None:
    """A run that was never loaded costs one read, once."""
    grants = [granted(backend.claim(request(f"key-{step}"))) for step in (1, 2)]
    tap.taken()
    backend.commit(grants[0], result=RESULT, progress=progress(1))
    assert tap.taken() == [GET, COMMIT]
    backend.commit(grants[1], result=RESULT, progress=progress(2))
    assert tap.taken() == [COMMIT]


def test_skip(backend: FirestoreBackend, tap: Wiretap) -> None:
    """A replayed key is one read, from the second one of its run on."""
    for key in ("a", "b", "c"):
        backend.commit(granted(backend.claim(request(key))), result=RESULT)
    tap.taken()
    assert isinstance(backend.claim(request("a")), Committed)
    assert tap.taken() == [COMMIT, GET]
    assert isinstance(backend.claim(request("b")), Committed)
    assert isinstance(backend.claim(request("c")), Committed)
    assert tap.taken() == [GET, GET]


def test_resume(backend: FirestoreBackend, tap: Wiretap, another: Another) -> None:
    """A run that is loaded and has progress expects to find its keys, so the first replayed one is one read too."""
    first = another()
    first.commit(granted(first.claim(request("a"))), result=RESULT, progress=progress(1))
    backend.load("run")
    assert isinstance(backend.claim(request("a")), Committed)
    assert tap.taken() == [GET, GET]


def test_where_a_replay_ends(backend: FirestoreBackend, tap: Wiretap) -> None:
    """The first new key after a replay costs a read more, those after it do not."""
    backend.commit(granted(backend.claim(request("old"))), result=RESULT)
    backend.claim(request("old"))
    tap.taken()
    backend.claim(request("new-1"))
    assert tap.taken() == [GET, COMMIT]
    backend.claim(request("new-2"))
    assert tap.taken() == [COMMIT]


def test_held(backend: FirestoreBackend, tap: Wiretap, another: Another) -> None:
    """Who waits for a holder pays one read for each look."""
    another().claim(request("key"))
    assert isinstance(backend.claim(request("key")), Held)
    tap.taken()
    assert isinstance(backend.claim(request("key")), Held)
    assert tap.taken() == [GET]


def test_renewals_share_a_round_trip(backend: FirestoreBackend, tap: Wiretap) -> None:
    """All live claims of a process are renewed by one RPC."""
    grants = [granted(backend.claim(request(f"key-{number}"))) for number in range(20)]
    tap.taken()
    renewed = backend.renew(grants)
    assert tap.taken() == [EACH]
    backend.commit(renewed[7] or grants[7], result=RESULT)
    assert tap.taken() == [COMMIT]


def test_give_back_load_save_and_read(backend: FirestoreBackend, tap: Wiretap) -> None:
    """One RPC each; reading hundreds of keys is one as well."""
    grant = granted(backend.claim(request("key")))
    tap.taken()
    assert backend.abandon(grant, error=None, in_doubt=False)
    assert tap.taken() == [COMMIT]
    backend.load("run")
    assert tap.taken() == [GET]
    backend.save(progress(1))
    backend.save(progress(2))
    assert tap.taken() == [COMMIT, COMMIT]
    backend.read([f"key-{number}" for number in range(300)])
    assert tap.taken() == [GET]
    backend.time()
    assert tap.taken() == [GET]


def test_transact(backend: FirestoreBackend, tap: Wiretap) -> None:
    """One read, since a committed key must not call the effect again, and one commit; no Firestore transaction."""
    grant = granted(backend.claim(request("key")))
    tap.taken()
    backend.transact(grant, lambda _: RESULT, progress=progress(1))
    assert tap.taken() == [GET, COMMIT]


def test_run_agent(store: durastore.Store, tap: Wiretap) -> None:
    """A run of N steps is N + a constant RPCs; its replay is a handful, whatever N (load, claim, read ahead, save)."""
    durastore.run_agent(range(50), store.checkpoint("run"), lambda item: item)
    assert len([call for call in tap.taken() if call != EACH]) <= 50 + 4
    ckpt = store.checkpoint("run")
    ckpt.reset()
    tap.taken()
    summary = durastore.run_agent(range(50), ckpt, lambda item: item)
    assert summary.skipped == 50
    assert len(tap.taken()) <= 5
