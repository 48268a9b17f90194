"""Rivals: processes and threads on few keys, decided by conditional commits alone."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import durastore
from durastore.contract import Committed, Granted, StoredProgress
from durastore.errors import ClaimLost
from durastore_firestore import FirestoreBackend

from .requests import RESULT, granted, request
from .wiretap import Wiretap

PROCESSES = 6
KEYS = 12
Another = Callable[[], FirestoreBackend]


def _race(url: str, name: str, start: Any, results: Any) -> None:
    with durastore.open(url) as store:
        ckpt = store.checkpoint("run", wait=60)
        start.wait()
        results.put((name, [ckpt.run_once(f"key-{number}", lambda: name) for number in range(KEYS)]))


def test_processes_execute_each_key_once(url: str) -> None:
    """Six processes race for twelve keys: each is executed by one, and all six see the same result."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(PROCESSES), context.Queue()
    workers = [
        context.Process(target=_race, args=(url, f"w{number}", start, results), daemon=True)
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    outcomes = dict(results.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    for number in range(KEYS):
        seen = {name: outcome[number] for name, outcome in outcomes.items()}
        assert len({outcome.value for outcome in seen.values()}) == 1
        executed = [name for name, outcome in seen.items() if outcome.status == "executed"]
        assert executed == [next(iter(seen.values())).value]


def test_takeovers_have_one_winner(backend: FirestoreBackend, another: Another, tap: Wiretap) -> None:
    """Threads that all find the same lapsed claim: one gets it, with the next token; no transaction is ever begun."""
    first = granted(backend.claim(request("key", lease=0)))
    rivals = [another() for _ in range(5)]
    answers: list[Any] = []
    barrier = threading.Barrier(len(rivals))

    def claim(rival: FirestoreBackend) -> None:
        barrier.wait()
        answers.append(rival.claim(request("key")))

    threads = [threading.Thread(target=claim, args=(rival,)) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [answer for answer in answers if isinstance(answer, Granted)]
    assert len(winners) == 1
    assert winners[0].grant.token == first.token + 1
    assert set(tap.taken()) <= {"Commit", "BatchGetDocuments"}


def test_takeover_does_not_overwrite_a_commit_made_in_between(
    backend: FirestoreBackend, another: Another, tap: Wiretap
) -> None:
    """A rival read "expired" and paused; the holder committed meanwhile. The rival gets the result."""
    holder = another()
    grant = granted(holder.claim(request("key", lease=0)))
    backend.claim(request("key", takeover=False))  # from now on this run reads first
    tap.before_commit(lambda: holder.commit(grant, result=RESULT) and None)
    answer = backend.claim(request("key"))
    assert isinstance(answer, Committed)
    assert answer.result == RESULT


def test_a_replaced_holder_changes_nothing(backend: FirestoreBackend, another: Another, tap: Wiretap) -> None:
    """A holder that slept through a takeover writes on condition of what it was granted, and all of that fails."""
    backend.load("run")
    grant = granted(backend.claim(request("key", lease=0)))
    rival = granted(another().claim(request("key")))
    (before,) = backend.read(["key"])
    assert backend.renew([grant]) == [None]
    assert not backend.abandon(grant, error="late", in_doubt=False)
    with pytest.raises(ClaimLost):
        backend.commit(grant, result=RESULT, progress=StoredProgress("run", 1, RESULT), then=request("next"))
    assert backend.load("run") is None
    assert backend.read(["key", "next"]) == [before, None]
    assert before is not None
    assert before.nonce == rival.nonce


def test_own_renewals_never_fail_own_commits(backend: FirestoreBackend, tap: Wiretap) -> None:
    """A renewal between the grant and its commit makes the version stale; the commit lands all the same."""
    grant = granted(backend.claim(request("key")))
    tap.before_commit(lambda: backend.renew([grant]) and None)
    backend.commit(grant, result=RESULT, progress=StoredProgress("run", 1, RESULT), then=request("next"))
    record, following = backend.read(["key", "next"])
    assert record is not None
    assert record.state == "committed"
    assert following is not None
    assert following.state == "claimed"


def test_progress_never_moves_back(backend: FirestoreBackend, another: Another, tap: Wiretap) -> None:
    """Progress saved by somebody else since we looked is not overwritten by a lower step, neither alone nor in a commit."""
    backend.load("run")
    grant = granted(backend.claim(request("key")))
    ahead = StoredProgress("run", 9, RESULT)
    tap.before_commit(lambda: another().save(ahead) and None)
    assert backend.save(StoredProgress("run", 1, RESULT)).step == 9
    backend.load("run")
    tap.before_commit(lambda: another().save(StoredProgress("run", 12, RESULT)) and None)
    backend.commit(grant, result=RESULT, progress=StoredProgress("run", 10, RESULT))
    stored = backend.load("run")
    assert stored is not None
    assert stored.step == 12
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.state == "committed"


def test_a_lower_step_of_our_own(backend: FirestoreBackend) -> None:
    """Nor does a lower step move it back that comes from the process which saved the higher one."""
    backend.save(StoredProgress("run", 9, RESULT))
    assert backend.save(StoredProgress("run", 1, None)).step == 9
    backend.commit(granted(backend.claim(request("key"))), result=RESULT, progress=StoredProgress("run", 8, None))
    stored = backend.load("run")
    assert stored is not None
    assert (stored.step, stored.state) == (9, RESULT)


def test_an_incarnation_is_the_one_that_is_stored(backend: FirestoreBackend, another: Another) -> None:
    """The first number is the time of its write, known only afterwards: all see the same, and saves keep it."""
    first = backend.incarnate("run")
    for client in (backend, another()):
        stored = client.load("run")
        assert stored is not None
        assert stored.incarnation == first
        assert client.save(StoredProgress("run", 1, RESULT)).incarnation == first
    assert backend.incarnate("run") == first + 1


def test_the_next_key_may_be_the_same_one(backend: FirestoreBackend) -> None:
    """Then it is committed, not claimed anew."""
    grant = granted(backend.claim(request("key")))
    assert backend.commit(grant, result=RESULT, then=request("key")) is None
    assert isinstance(backend.claim(request("key")), Committed)


def test_incarnations_differ(another: Another) -> None:
    """Threads that draw at once never draw the same number, and numbers grow across a deletion of the run."""
    drawn: list[int] = []
    clients = [another() for _ in range(4)]

    def draw(client: FirestoreBackend) -> None:
        drawn.extend(client.incarnate("run") for _ in range(5))

    threads = [threading.Thread(target=draw, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(Counter(drawn).values()) == 1
    assert len(drawn) == 20
    assert clients[0].delete_run("run")
    assert clients[0].incarnate("run") > max(drawn)
