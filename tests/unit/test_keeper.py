"""The keeper: claims stay alive while their holders do, and not longer."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import durastore
from durastore.claims import Claim
from durastore.clock import Clock
from durastore.contract import ClaimRequest, Grant
from durastore.keeper import Keeper
from tests.unit.virtual import StillKeeper, VirtualClock, virtual

SECOND = 1_000_000


class Renewals:
    """The far end: notes who was renewed, and answers as it is told."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.lost: set[str] = set()
        self.error: Exception | None = None

    def __call__(self, grants: Sequence[Grant]) -> list[Grant | None]:
        self.calls.append([grant.key for grant in grants])
        if self.error is not None:
            raise self.error
        return [None if grant.key in self.lost else grant for grant in grants]


def held(clock: Clock, key: str = "key", lease: float = 30.0, budget: float | None = None) -> Claim:
    return Claim(
        Grant(key, "run", "owner", f"nonce-{key}", 1, 1, round(lease * SECOND)), None, clock.monotonic(), budget
    )


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def renewals() -> Renewals:
    return Renewals()


@pytest.fixture
def keeper(renewals: Renewals, clock: VirtualClock) -> StillKeeper:
    return StillKeeper(renewals, clock)


def at(keeper: StillKeeper, clock: VirtualClock, elapsed: float) -> None:
    clock.elapsed = elapsed
    keeper.tick()


def test_at_a_third(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """A claim is renewed at a third of its lease, counted from before it was asked for, and at each third from then on."""
    claim = held(clock)
    keeper.add(claim)
    at(keeper, clock, 9.9)
    assert renewals.calls == []
    for elapsed in (10.0, 19.9, 20.0, 29.9, 30.0):
        at(keeper, clock, elapsed)
    assert renewals.calls == [["key"]] * 3
    assert not claim.lost.is_set()


def test_all_that_is_due_in_one_call(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """Claims that are due together are renewed together; the others wait for their own time."""
    claims = [held(clock, "a"), held(clock, "b"), held(clock, "long", 300)]
    for claim in claims:
        keeper.add(claim)
    at(keeper, clock, 10)
    assert [sorted(call) for call in renewals.calls] == [["a", "b"]]


def test_dropped(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """What was given back or committed is renewed no more; dropping twice does nothing."""
    claim = held(clock)
    keeper.add(claim)
    keeper.drop(claim)
    keeper.drop(claim)
    at(keeper, clock, 10)
    assert renewals.calls == []


def test_lost(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """A renewal that finds the claim lost tells its holder, and leaves it alone from then on; its siblings go on."""
    gone, kept = held(clock, "gone"), held(clock, "kept")
    keeper.add(gone)
    keeper.add(kept)
    renewals.lost = {"gone"}
    at(keeper, clock, 10)
    assert gone.lost.is_set()
    assert not kept.lost.is_set()
    at(keeper, clock, 20)
    assert renewals.calls[-1] == ["kept"]


def test_out_of_reach_is_not_lost(
    keeper: StillKeeper, clock: VirtualClock, renewals: Renewals, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewal that fails is no loss: it is logged, tried again soon, and back to its rhythm when the store is back."""
    claim = held(clock)
    keeper.add(claim)
    renewals.error = ConnectionError("no route")
    with caplog.at_level(logging.WARNING, "durastore"):
        at(keeper, clock, 10)
    assert "could not renew 1 claims, trying again: no route" in caplog.text
    at(keeper, clock, 10.9)
    assert len(renewals.calls) == 1
    at(keeper, clock, 11)
    renewals.error = None
    at(keeper, clock, 12)
    assert len(renewals.calls) == 3
    assert not claim.lost.is_set()
    at(keeper, clock, 21.9)
    assert len(renewals.calls) == 3
    at(keeper, clock, 22)
    assert len(renewals.calls) == 4


@pytest.mark.parametrize(("lease", "pause"), [(1.0, 0.1), (30.0, 1.0), (300.0, 1.0)])
def test_tries_again_in_time(
    keeper: StillKeeper, clock: VirtualClock, renewals: Renewals, lease: float, pause: float
) -> None:
    """A failed renewal is tried again several times within what is left of the lease, and once a second at least."""
    claim = held(clock, lease=lease)
    keeper.add(claim)
    renewals.error = ConnectionError("no route")
    at(keeper, clock, lease / 3)
    at(keeper, clock, lease / 3 + pause * 0.99)
    assert len(renewals.calls) == 1
    at(keeper, clock, lease / 3 + pause * 1.01)
    assert len(renewals.calls) == 2
    assert pause <= lease / 10


def test_budget(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """A hung effect is kept alive as long as its budget says; then its lease ends the story, without a false "lost"."""
    claim = held(clock, budget=25)
    keeper.add(claim)
    for elapsed in (10, 20, 25, 30, 40):
        at(keeper, clock, elapsed)
    assert len(renewals.calls) == 2
    assert not claim.lost.is_set()


def test_budget_is_found_out_by_others() -> None:
    """An effect past its budget is taken over once its lease has lapsed; within it, it is not."""
    store, backend, clock = virtual()
    rival, _, _ = virtual(clock, backend._space)
    keeper: Any = store.keeper

    def effect() -> str:
        for _ in range(6):  # 30 s at a time of 5, renewed all along
            clock.elapsed += 5
            keeper.tick()
        with pytest.raises(durastore.AwaitTimeout):
            rival.checkpoint("rival").run_once("key", lambda: "rival", wait=0)
        for _ in range(10):
            clock.elapsed += 5
            keeper.tick()
        assert rival.checkpoint("rival").run_once("key", lambda: "rival") == ("rival", "executed")
        return "hung"

    with pytest.raises(durastore.ClaimLost):
        store.checkpoint("run", lease=15, budget=32).run_once("key", effect)


def test_not_while_it_commits(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """Renewal and commit of one claim never overlap: a claim under commit is looked at again shortly, others are not delayed."""
    claim, other = held(clock), held(clock, "other")
    keeper.add(claim)
    keeper.add(other)
    with claim.lock:
        at(keeper, clock, 10)
        assert renewals.calls == [["other"]]
    at(keeper, clock, 11)
    assert renewals.calls == [["other"], ["key"]]


def test_renewed_grant_is_kept(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """What the store answered (a new version to commit by) is what the holder goes on with."""
    claim = held(clock)
    keeper.add(claim)
    answer = Grant("key", "run", "owner", "nonce-key", 1, 1, 30 * SECOND, version=7)
    keeper._renew = lambda _grants: [answer]
    at(keeper, clock, 10)
    assert claim.grant is answer


def test_garbage(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """A claim that nobody holds any more is not kept alive: its lease ends the story."""
    claim: Claim | None = held(clock)
    assert claim is not None
    keeper.add(claim)
    claim = None
    gc.collect()
    at(keeper, clock, 10)
    assert renewals.calls == []
    assert keeper._due == {}


def test_interrupted_holder_is_not_kept() -> None:
    """An interrupt that tears a holder out between its grant and its effect: nobody renews, the lease lapses, another runs it."""
    store, backend, clock = virtual()

    def torn(_verb: str) -> None:
        backend.after = lambda _verb: None
        raise MemoryError("torn out")

    backend.after = torn
    with pytest.raises(MemoryError):
        store.checkpoint("run", lease=10).run_once("key", lambda: 1)
    gc.collect()
    keeper: Any = store.keeper
    for _ in range(4):
        clock.elapsed += 3
        keeper.tick()
    assert store.checkpoint("run").run_once("key", lambda: 2, wait=0) == (2, "executed")


def test_no_lease(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """A lease of 0 has lapsed already: renewing it would be for nothing."""
    claim = held(clock, lease=0)
    keeper.add(claim)
    at(keeper, clock, 10)
    assert renewals.calls == []


def test_forked(keeper: StillKeeper, clock: VirtualClock, renewals: Renewals) -> None:
    """A child keeps none of its parent's claims alive, and can keep its own."""
    parents = held(clock)
    keeper.add(parents)
    keeper.forked()
    own = held(clock, "own")
    keeper.add(own)
    at(keeper, clock, 10)
    assert renewals.calls == [["own"]]


# The thread, in real time: events decide, deadlines are only there to end a broken test


class Signalling(Renewals):
    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self, grants: Sequence[Grant]) -> list[Grant | None]:
        self.thread = threading.current_thread()
        answer = super().__call__(grants)
        self.seen.set()
        return answer


def test_one_thread_when_needed() -> None:
    """No thread before the first claim, one for all claims, none after `close`."""
    renewals = Signalling()
    keeper = Keeper(renewals, Clock())
    assert keeper._thread is None
    claims = [held(Clock(), f"key-{number}", 0.09) for number in range(20)]
    for claim in claims:
        keeper.add(claim)
    assert renewals.seen.wait(30)
    assert renewals.thread is keeper._thread is not threading.current_thread()
    keeper.close()
    assert not renewals.thread.is_alive()
    keeper.add(claims[0])  # a late holder's last words
    keeper.close()


def test_wakes_for_a_shorter_lease() -> None:
    """While it sleeps for an hour's lease, a claim with a short one comes and is renewed in its time."""
    renewals = Signalling()
    keeper = Keeper(renewals, Clock())
    long, short = held(Clock(), "long", 3600), held(Clock(), "short", 0.3)
    keeper.add(long)
    keeper.add(short)
    assert renewals.seen.wait(30)
    assert renewals.calls[0] == ["short"]
    keeper.close()


def test_closed_by_its_own_thread() -> None:
    """A store that is closed from within a renewal does not wait for itself."""
    closed = threading.Event()

    def renew(grants: Sequence[Grant]) -> list[Grant | None]:
        keeper.close()
        closed.set()
        return list(grants)

    keeper = Keeper(renew, Clock())
    claim = held(Clock(), lease=0.03)
    keeper.add(claim)
    assert closed.wait(30)
    assert keeper._thread is not None
    keeper._thread.join(30)
    assert not keeper._thread.is_alive()


def test_long_effect_on_a_short_lease() -> None:
    """An effect that outlasts its lease many times is not taken over, and commits."""
    with durastore.open("memory://") as store:
        backend: Any = store.backend
        renewed = threading.Semaphore(0)
        renew = backend.renew

        def counted(grants: Sequence[Grant], **kwargs: Any) -> Any:
            answer = renew(grants, **kwargs)
            renewed.release()
            return answer

        backend.renew = counted

        def effect() -> str:
            for _ in range(6):  # two leases
                assert renewed.acquire(timeout=30)
            return "done"

        assert store.checkpoint("run", lease=0.3).run_once("key", effect) == ("done", "executed")
        assert store.stats.lost == 0


# A holder that stood still before its effect began


def test_frozen_before_its_effect() -> None:
    """Replaced while it stood still between grant and effect: it asks before it begins, and runs nothing."""
    store, backend, clock = virtual()

    def freeze(verb: str) -> None:
        backend.after = lambda _verb: None
        clock.elapsed += 11
        backend.claim(ClaimRequest("key", "rival", "rival", "rival's", 60 * SECOND), now=clock.now())

    backend.after = freeze
    ran: list[int] = []
    with pytest.raises(durastore.ClaimLost, match=r"'key'.*before its effect began"):
        store.checkpoint("run", lease=10).run_once("key", lambda: ran.append(1))
    assert ran == []
    assert backend.read(["key"], now=clock.now())[0].owner == "rival"
    assert store.stats.lost == 1


def test_frozen_but_not_replaced() -> None:
    """Nobody came while it stood still: its claim is renewed, and its effect runs."""
    store, backend, clock = virtual()

    def freeze(_verb: str) -> None:
        backend.after = lambda _verb: None
        clock.elapsed += 11

    backend.after = freeze

    def effect() -> str:
        assert store.record("key").lease_left == 10
        return "done"

    assert store.checkpoint("run", lease=10).run_once("key", effect) == ("done", "executed")
    assert backend.calls == ["claim", "renew", "read", "commit"]


def test_frozen_and_out_of_reach() -> None:
    """It cannot ask whether the claim is still its own: it runs nothing."""
    store, backend, clock = virtual()

    def freeze(_verb: str) -> None:
        backend.after = lambda _verb: None
        clock.elapsed += 11

    def away(verb: str) -> None:
        if verb in ("renew", "abandon"):
            raise ConnectionError("no route")

    backend.after, backend.before = freeze, away
    ran: list[int] = []
    with pytest.raises(durastore.StoreUnavailable):
        store.checkpoint("run", lease=10).run_once("key", lambda: ran.append(1))
    assert ran == []
    backend.before = lambda _verb: None
    assert store.checkpoint("run").run_once("key", lambda: 2, wait=0) == (2, "executed")
