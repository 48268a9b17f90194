"""The promises of `run_once` and its kin, in virtual time: who may run, what becomes of a claim, which error the caller gets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import durastore
from durastore import ClaimLost, Found, InDoubt, NotFound, Outcome, Unknown
from durastore.contract import ClaimRequest, Granted, StoredRecord
from tests.unit.virtual import Scripted, VirtualClock, virtual

SECOND = 1_000_000


def boom() -> Any:
    raise ValueError("boom")


def hold(backend: Scripted, clock: VirtualClock, key: str = "key", lease: float = 60, run: str = "other") -> Granted:
    """Somebody else's claim."""
    answer = backend.claim(ClaimRequest(key, run, "somebody", f"nonce-{key}", round(lease * SECOND)), now=clock.now())
    assert isinstance(answer, Granted)
    return answer


def stored(backend: Scripted, clock: VirtualClock, key: str = "key") -> StoredRecord | None:
    return backend.read([key], now=clock.now())[0]


# Run once


def test_run_and_replay() -> None:
    """The first call executes, later ones skip, and both get the decoded value."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    ran: list[int] = []
    first = ckpt.run_once("key", lambda: (ran.append(1), 2))
    second = ckpt.run_once("key", lambda: ran.append(1))
    assert first == Outcome([None, 2], "executed")
    assert second == Outcome([None, 2], "skipped")
    assert ran == [1]
    value, status = second
    assert (value, status) == (second.value, second.status)


def test_stats() -> None:
    """Both the run and the store count how calls ended."""
    store, _, clock = virtual()
    ckpt = store.checkpoint("run")
    ckpt.run_once("a", lambda: 1)
    ckpt.run_once("a", lambda: 1)
    hold(store.backend, clock, "b", lease=1)
    ckpt.run_once("b", lambda: 1)
    for stats in (ckpt.stats, store.stats):
        assert (stats.executed, stats.skipped, stats.awaited, stats.taken_over, stats.lost) == (2, 1, 0, 1, 0)


def test_progress_with_the_result() -> None:
    """Progress given to `run_once` lands with the result, and with a replay too."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    ckpt.run_once("a", lambda: 1, progress=(1, {"a": 1}))
    assert ckpt.load() == (1, {"a": 1})
    ckpt.run_once("a", lambda: 1, progress=(2, {"a": 2}))
    assert ckpt.load() == (2, {"a": 2})
    with pytest.raises(ValueError, match="boom"):
        ckpt.run_once("b", boom, progress=(3, {}))
    assert ckpt.load() == (2, {"a": 2})


# In doubt: the table of promises, row by row


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_raised_under_rerun(error: BaseException) -> None:
    """Given back at once, the error re-raised; the next call runs it again."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run")

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        ckpt.run_once("key", fail)
    assert raised.value is error
    assert stored(backend, clock).state == "abandoned"
    assert ckpt.run_once("key", lambda: 2) == (2, "executed")
    assert clock.slept == []


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt()], ids=repr)
def test_raised_under_halt(error: BaseException) -> None:
    """Stays in doubt, for everybody, until somebody resolves it."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run", in_doubt="halt")

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        ckpt.run_once("key", fail)
    assert stored(backend, clock).state == "in_doubt"
    ran: list[int] = []
    with pytest.raises(InDoubt, match=r"(?s)'key' is in doubt.*resolve"):
        ckpt.run_once("key", lambda: ran.append(1))
    store.resolve("key", retry=True)
    assert ckpt.run_once("key", lambda: ran.append(1)).status == "executed"
    assert ran == [1]


def test_vanished_under_rerun() -> None:
    """The lease lapses, the next caller runs it again, and waits no longer than that."""
    store, backend, clock = virtual()
    hold(backend, clock, lease=10)
    assert store.checkpoint("run").run_once("key", lambda: 2) == (2, "executed")
    assert 9.99 < clock.elapsed < 10.1
    assert store.stats.taken_over == 1


def test_vanished_under_halt() -> None:
    """The next caller gets `InDoubt` once the lease has lapsed; a result given by hand is everybody's."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run", in_doubt="halt")
    hold(backend, clock, lease=10)
    with pytest.raises(InDoubt, match="holder vanished"):
        ckpt.run_once("key", lambda: 2)
    assert store.resolve("key", result=[7]).state == "committed"
    assert ckpt.run_once("key", lambda: 2) == ([7], "skipped")


@pytest.mark.parametrize("how", ["vanished", "raised"])
@pytest.mark.parametrize(
    ("answer", "status", "ran"),
    [(Found([7]), "recovered", 0), (Found(None), "recovered", 0), (NotFound(), "executed", 1), (Unknown(), None, 0)],
    ids=["found", "found none", "not found", "unknown"],
)
def test_probe(how: str, answer: Any, status: str | None, ran: int) -> None:
    """The probe is asked before anything runs again, and its word decides."""
    store, backend, clock = virtual()
    asked: list[tuple[str, int, Any]] = []

    def probe(claim: durastore.Claim) -> Any:
        asked.append((claim.key, claim.attempt, durastore.current() is claim))
        assert claim.took_over is not None
        return answer

    ckpt = store.checkpoint("run", in_doubt=probe)
    count: list[int] = []
    if how == "vanished":
        hold(backend, clock, lease=0)
    else:
        with pytest.raises(ValueError, match="boom"):
            ckpt.run_once("key", boom)
    assert asked == []
    if status is None:
        with pytest.raises(InDoubt, match="probe cannot tell"):
            ckpt.run_once("key", lambda: count.append(1))
        assert stored(backend, clock).state == "in_doubt"
    else:
        outcome = ckpt.run_once("key", lambda: count.append(1))
        expected = answer.result if isinstance(answer, Found) else None
        assert outcome == (expected, status)
        assert ckpt.run_once("key", lambda: count.append(1)) == (expected, "skipped")
    assert (asked, len(count)) == ([("key", 2, True)], ran)


@pytest.mark.parametrize("answer", [None, True, "found", Found])
def test_probe_that_answers_nonsense(answer: Any) -> None:
    """Anything but the three answers runs nothing."""
    store, backend, clock = virtual()
    hold(backend, clock, lease=0)
    with pytest.raises(durastore.ConfigError, match="a probe returns"):
        store.checkpoint("run", in_doubt=lambda _claim: answer).run_once("key", boom)
    assert stored(backend, clock).state == "in_doubt"


def test_probe_that_raises() -> None:
    """The key stays in doubt, and the next caller probes again."""
    store, backend, clock = virtual()
    hold(backend, clock, lease=0)
    answers: list[Any] = [ConnectionError("far side down"), Found(3)]

    def probe(_claim: durastore.Claim) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ckpt = store.checkpoint("run", in_doubt=probe)
    with pytest.raises(ConnectionError, match="far side down"):
        ckpt.run_once("key", boom)
    assert stored(backend, clock).state == "in_doubt"
    assert ckpt.run_once("key", boom) == (3, "recovered")


# Interrupts and crashes between two calls of the store


@pytest.mark.parametrize("policy", ["rerun", "halt", "probe"])
def test_interrupted_at_every_call(policy: str) -> None:
    """An interrupt before or after any call of the store: no key is left claimed, no stored result is lost, and nothing that ran
    runs again but under rerun.
    """
    for point in range(20):
        store, backend, clock = virtual()
        ran: list[int] = []

        def effect(ran: list[int] = ran) -> int:
            ran.append(1)
            return len(ran)

        in_doubt: Any = (lambda _claim, ran=ran: Found(1) if ran else NotFound()) if policy == "probe" else policy
        ckpt = store.checkpoint("run", in_doubt=in_doubt)
        countdown = iter(range(point, -1, -1))

        def hook(_verb: str, countdown: Any = countdown) -> None:
            if next(countdown, None) == 0:
                raise KeyboardInterrupt

        backend.before = backend.after = hook
        try:
            ckpt.run_once("key", effect)
        except KeyboardInterrupt:
            interrupted = True
        else:
            interrupted = False
        backend.before = backend.after = lambda _verb: None
        record = stored(backend, clock)
        assert record is None or record.state != "claimed", f"stuck after point {point}"
        if ran:
            assert record is not None
            assert record.state == "committed", "the effect ran, so its result is stored before the interrupt goes on"
        assert ckpt.run_once("key", effect).value == 1
        assert len(ran) == 1
        if not interrupted:
            assert point >= 4, "before and after claim, before and after commit"
            return
    raise AssertionError("never came through")


def test_interrupt_in_a_takeover_keeps_the_doubt() -> None:
    """Interrupted while it takes over what a probe must look at first: still in doubt for the next."""
    store, backend, clock = virtual()
    hold(backend, clock, lease=0)
    asked: list[int] = []
    ckpt = store.checkpoint("run", in_doubt=lambda _claim: asked.append(1) or Found(9))

    def hook(verb: str) -> None:
        backend.after = lambda _verb: None
        raise KeyboardInterrupt(verb)

    backend.after = hook
    with pytest.raises(KeyboardInterrupt):
        ckpt.run_once("key", boom)
    assert stored(backend, clock).state == "in_doubt"
    assert ckpt.run_once("key", boom) == (9, "recovered")
    assert asked == [1]


# Lost answers and a store out of reach


@pytest.mark.parametrize("verb", ["claim", "commit", "abandon", "save", "load", "transact"])
@pytest.mark.parametrize("applied", [True, False], ids=["answer lost", "request lost"])
def test_lost(verb: str, *, applied: bool) -> None:
    """A call that was applied, or not, and whose answer never came, is made again, and ends as if it had come at once."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run")

    def hook(name: str) -> None:
        if name == verb and backend.calls.count(verb) == 1:
            raise ConnectionResetError("gone")

    if applied:
        backend.after = hook
    else:
        backend.before = hook
    ran: list[int] = []
    if verb == "abandon":
        with pytest.raises(ValueError, match="boom"):
            ckpt.run_once("key", boom)
        assert stored(backend, clock).state == "abandoned"
    elif verb == "transact":
        assert ckpt.transact("key", lambda tx: tx.update(row=1) or "ok") == ("ok", "executed")
        assert backend.user_data == {"row": 1}
    else:
        assert ckpt.save_progress(1, {"a": 1}) == (1, {"a": 1})
        assert ckpt.load() == (1, {"a": 1})
        assert ckpt.run_once("key", lambda: ran.append(1) or 5) == (5, "executed")
        assert ran == [1]
    assert backend.calls.count(verb) == 2
    assert clock.elapsed < 1


def test_lost_takeover_answer_is_probed() -> None:
    """The grant of a takeover whose answer was lost still says what it took over, so that the probe is asked."""
    store, backend, clock = virtual()
    hold(backend, clock, lease=0)

    def hook(_verb: str) -> None:
        backend.after = lambda _verb: None
        raise ConnectionResetError("gone")

    backend.after = hook
    ckpt = store.checkpoint("run", in_doubt=lambda _claim: Found("there"))
    assert ckpt.run_once("key", boom) == ("there", "recovered")


@pytest.mark.parametrize(("verb", "limit"), [("claim", 10), ("commit", 60)])
def test_out_of_reach(verb: str, limit: float) -> None:
    """A store that stays away is tried until the verb's deadline, commit's being the longest; the error says where, how long."""
    store, backend, clock = virtual()

    def hook(name: str) -> None:
        if name == verb:
            raise ConnectionRefusedError("no route")

    backend.before = hook
    with pytest.raises(
        durastore.StoreUnavailable, match=rf"memory:// did not take a {verb} within {limit:g} s: no route"
    ) as raised:
        store.checkpoint("run").run_once("key", lambda: 1)
    assert limit * 0.5 < clock.elapsed <= limit
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    assert "\n" not in str(raised.value)


def test_comes_back() -> None:
    """A store that comes back within the deadline: the run goes on by itself."""
    store, backend, clock = virtual()

    def hook(name: str) -> None:
        if name == "commit" and clock.elapsed < 30:
            raise ConnectionRefusedError("restarting")

    backend.before = hook
    assert store.checkpoint("run", lease=300).run_once("key", lambda: 1) == (1, "executed")
    assert 30 <= clock.elapsed < 32


def test_unknown_errors_pass() -> None:
    """An error that is not the store's is raised as it is, and tried once."""
    store, backend, _ = virtual()

    def hook(_name: str) -> None:
        raise ZeroDivisionError("a bug")

    backend.before = hook
    with pytest.raises(ZeroDivisionError):
        store.checkpoint("run").load()
    assert backend.calls == ["load"]


# Losing a claim


def test_replaced_holder() -> None:
    """Somebody takes over while the effect runs: `ClaimLost`, and neither result nor progress nor the new claim changes."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run", lease=10)
    ckpt.save_progress(1, {"mine": 1})

    def effect() -> str:
        clock.elapsed += 11
        hold(backend, clock, run="rival")
        return "late"

    with pytest.raises(ClaimLost, match=r"'key'.*is lost.*'somebody'"):
        ckpt.run_once("key", effect, progress=(2, {"mine": 2}))
    record = stored(backend, clock)
    assert (record.owner, record.state, record.result) == ("somebody", "claimed", None)
    assert ckpt.load() == (1, {"mine": 1})
    assert ckpt.stats.lost == 1


def test_replaced_by_a_commit() -> None:
    """The rival finished first: still `ClaimLost`, never the rival's value as one's own."""
    store, backend, clock = virtual()
    other, _, _ = virtual(clock, backend._space)

    def effect() -> str:
        clock.elapsed += 11
        assert other.checkpoint("run").run_once("key", lambda: "rival") == ("rival", "executed")
        return "late"

    with pytest.raises(ClaimLost):
        store.checkpoint("run", lease=10).run_once("key", effect)
    assert store.checkpoint("run").run_once("key", boom) == ("rival", "skipped")


def test_lapsed_but_not_replaced() -> None:
    """A holder whose lease lapsed while nobody came may still commit."""
    store, _, clock = virtual()

    def effect() -> str:
        clock.elapsed += 100
        return "late"

    assert store.checkpoint("run", lease=10).run_once("key", effect) == ("late", "executed")


def test_raised_after_the_claim_was_lost() -> None:
    """The effect's own error is what the caller sees, and the new holder's claim stays."""
    store, backend, clock = virtual()

    def effect() -> None:
        clock.elapsed += 11
        hold(backend, clock)
        raise ValueError("boom")

    ckpt = store.checkpoint("run", lease=10)
    with pytest.raises(ValueError, match="boom"):
        ckpt.run_once("key", effect)
    assert stored(backend, clock).owner == "somebody"
    assert ckpt.stats.lost == 1


def test_resolved_under_a_sleeping_holder() -> None:
    """A holder that wakes after its key was resolved by hand does not take the given result for its own."""
    store, _, clock = virtual()

    def effect() -> str:
        clock.elapsed += 100
        store.resolve("key", result="by hand")
        return "mine"

    with pytest.raises(ClaimLost):
        store.checkpoint("run").run_once("key", effect)
    assert store.record("key").result == "by hand"


# Waiting


def test_awaited() -> None:
    """Another holder finishes while we wait: its result, seen promptly."""
    store, backend, clock = virtual()
    other, _, _ = virtual(VirtualClock(), backend._space)
    other.clock = clock
    granted = hold(backend, clock, lease=20)

    def during() -> None:
        if clock.elapsed > 5:
            clock.during = lambda: None
            backend.commit(granted.grant, result=store.pack("theirs").payload, now=clock.now())

    clock.during = during
    assert store.checkpoint("run").run_once("key", boom) == ("theirs", "awaited")
    assert 5 < clock.elapsed < 6


def test_await_timeout() -> None:
    """A live holder is waited for as long as asked, and the error names it and what to do."""
    store, backend, clock = virtual()
    hold(backend, clock)
    message = r"'key' is held by 'somebody' \(run 'other', attempt 1, lease left .*not done within 3 s"
    with pytest.raises(durastore.AwaitTimeout, match=message) as raised:
        store.checkpoint("run", wait=3).run_once("key", boom)
    assert isinstance(raised.value, TimeoutError)
    assert 2.99 < clock.elapsed < 3.1


def test_no_wait() -> None:
    """`wait=0` looks once."""
    store, backend, clock = virtual()
    hold(backend, clock)
    with pytest.raises(durastore.AwaitTimeout):
        store.checkpoint("run").run_once("key", boom, wait=0)
    assert clock.slept == []


def test_polls_back_off() -> None:
    """A long wait polls more and more rarely, never more than twice a second, and without a rhythm."""
    store, backend, clock = virtual()
    hold(backend, clock, lease=300)
    with pytest.raises(durastore.AwaitTimeout):
        store.checkpoint("run", wait=100).run_once("key", boom)
    assert max(clock.slept) <= 0.5
    assert 100 / 0.5 <= len(clock.slept) <= 500
    assert len(set(clock.slept)) > len(clock.slept) / 2


def test_waiting_for_oneself() -> None:
    """An effect that asks for its own key is told at once, instead of waiting for itself."""
    store, _, clock = virtual()
    ckpt = store.checkpoint("run")
    with pytest.raises(durastore.AwaitTimeout, match="by the very effect that asks"):
        ckpt.run_once("key", lambda: ckpt.run_once("key", boom))
    assert clock.slept == []


# Attempts, supersede, retention, fingerprints


def test_max_attempts() -> None:
    """A step that keeps killing its sandbox stops, and says how often it was tried; more attempts let it go on."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run", max_attempts=3, lease=1)
    for attempt in (1, 2, 3):
        answer = backend.claim(ClaimRequest("key", "run", "dead", f"n{attempt}", SECOND), now=clock.now())
        assert isinstance(answer, Granted)
        clock.elapsed += 2
    with pytest.raises(durastore.TooManyAttempts, match=r"'key' was tried 3 times.*max_attempts is 3"):
        ckpt.run_once("key", boom)
    assert stored(backend, clock).state == "in_doubt"
    assert ckpt.run_once("key", lambda: 1, max_attempts=9).status == "executed"


def test_supersede() -> None:
    """A new incarnation takes over its own run's live claims at once; an older one never takes them back."""
    store, backend, clock = virtual()
    first = store.checkpoint("run", supersede=True)
    got: list[Any] = []

    def effect() -> str:
        second = store.checkpoint("run", supersede=True)
        got.append(second.run_once("key", lambda: "second"))
        return "first"

    with pytest.raises(ClaimLost):
        first.run_once("key", effect)
    assert got == [("second", "executed")]
    assert clock.slept == []
    hold(backend, clock, "theirs", run="other")
    with pytest.raises(durastore.AwaitTimeout):
        store.checkpoint("run", supersede=True).run_once("theirs", boom, wait=0)


def test_superseded_under_halt() -> None:
    """Superseding does not make a halting key run twice: the old holder may have had its effect."""
    store, backend, clock = virtual()
    hold(backend, clock, run="run")
    with pytest.raises(InDoubt):
        store.checkpoint("run", supersede=True, in_doubt="halt").run_once("key", boom)


def test_retention() -> None:
    """A result past its retention is absent at once, and the token goes on growing."""
    store, _, clock = virtual()
    ckpt = store.checkpoint("run", retain=10)
    tokens: list[int] = []
    effect = lambda: tokens.append(durastore.current().token)  # noqa: E731
    ckpt.run_once("key", effect)
    clock.elapsed += 9.9
    assert ckpt.run_once("key", effect).status == "skipped"
    clock.elapsed += 0.2
    assert store.record("key") is None
    assert ckpt.run_once("key", effect).status == "executed"
    assert tokens[1] > tokens[0]
    assert store.record("key").attempt == 1


def test_fingerprint() -> None:
    """The same key for other inputs is an error, not another's result; without a fingerprint nothing is compared."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    ckpt.run_once("key", lambda: 1, fingerprint={"a": 1, "b": 2})
    assert ckpt.run_once("key", boom, fingerprint={"b": 2, "a": 1}) == (1, "skipped")
    assert ckpt.run_once("key", boom).status == "skipped"
    with pytest.raises(durastore.FingerprintMismatch, match=r"'key' was committed .* for other inputs"):
        ckpt.run_once("key", boom, fingerprint="else")
    with pytest.raises(ValueError, match="boom"):
        ckpt.run_once("given back", boom, fingerprint="one")
    assert ckpt.run_once("given back", lambda: 2, fingerprint="other").status == "executed"


# Results that cannot be kept


def test_result_lost() -> None:
    """A result that cannot be encoded is found after the effect ran: the effect is not repeated, now or later."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run", in_doubt="halt")
    ran: list[int] = []
    with pytest.raises(durastore.PayloadError, match="was done and will not be repeated, but its result is lost"):
        ckpt.run_once("key", lambda: ran.append(1) or object(), progress=(1, {}))
    assert stored(backend, clock).state == "committed"
    assert ckpt.load().step == 1
    with pytest.raises(durastore.PayloadError, match="its result was lost"):
        ckpt.run_once("key", lambda: ran.append(1))
    assert ran == [1]
    store.resolve("key", result="found in the books", force=True)
    assert ckpt.run_once("key", boom).value == "found in the books"


def test_state_that_cannot_be_encoded() -> None:
    """A state is checked before the effect runs."""
    store, _, _ = virtual()
    with pytest.raises(durastore.PayloadError):
        store.checkpoint("run").run_once("key", boom, progress=(1, {"bad": object()}))


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"lease": -1},
        {"wait": float("inf")},
        {"retain": -0.1},
        {"in_doubt": "maybe"},
        {"max_attempts": 0},
        {"budget": float("nan")},
    ],
    ids=str,
)
def test_bad_options(options: dict[str, Any]) -> None:
    """An option that makes no sense is refused at once, on the run and on the key, and names itself."""
    store, _, _ = virtual()
    with pytest.raises(durastore.ConfigError, match=next(iter(options))):
        store.checkpoint("run", **options)
    with pytest.raises(durastore.ConfigError, match=next(iter(options))):
        store.checkpoint("run").run_once("key", boom, **options)


@pytest.mark.parametrize("step", [-1, 1.5, True, "1", 2**63])
def test_bad_steps(step: Any) -> None:
    """A step is a whole number that every store can hold."""
    store, _, _ = virtual()
    with pytest.raises(durastore.ConfigError, match="step"):
        store.checkpoint("run").save_progress(step, {})


# By hand, by decorator, in a transaction


def test_claim_by_hand() -> None:
    """The three phases by hand; left without a commit the key is given back, or stays in doubt."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run")
    with ckpt.claim("key") as claim:
        assert claim.outcome is None
        assert durastore.current() is claim.live
        assert claim.commit({"a": 1}, progress=(4, {})) == ({"a": 1}, "executed")
    assert ckpt.load().step == 4
    with ckpt.claim("key") as claim:
        assert claim.outcome == ({"a": 1}, "skipped")
        with pytest.raises(durastore.ConfigError, match="done already"):
            claim.commit(2)
    for policy, state in (("rerun", "abandoned"), ("halt", "in_doubt")):
        with ckpt.claim(policy, in_doubt=policy):
            pass
        assert stored(backend, clock, policy).state == state


def test_once() -> None:
    """The decorator names keys from arguments, however they are passed, and returns the value."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    ran: list[Any] = []

    @ckpt.once(key="charge:{order}:{amount}")
    def charge(order: int, amount: int = 5) -> int:
        """Charge it."""
        ran.append((order, amount))
        return order * amount

    assert [charge(1), charge(order=1, amount=5), charge(2)] == [5, 5, 10]
    assert ran == [(1, 5), (2, 5)]
    assert (charge.__name__, charge.__doc__) == ("charge", "Charge it.")
    assert store.record("charge:1:5").result == 5

    @ckpt.once(key=lambda order: f"f:{order}", in_doubt="halt")
    def other(order: int) -> int:
        return order

    assert [other(3), other(3)] == [3, 3]

    @ckpt.once(key="{nothing}")
    def wrong(order: int) -> int:
        return order

    with pytest.raises(durastore.InvalidKey, match=r"'nothing'.*wrong\(\)"):
        wrong(1)


def test_transact() -> None:
    """What the effect wrote and the mark land together; when it raises, neither does."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run", in_doubt="halt")
    with pytest.raises(ValueError, match="boom"):
        ckpt.transact("key", lambda tx: tx.update(row=1) or boom())
    assert backend.user_data == {}
    assert stored(backend, clock).state == "abandoned"
    assert ckpt.transact("key", lambda tx: tx.update(row=2) or durastore.current().key, progress=(1, {})) == (
        "key",
        "executed",
    )
    assert backend.user_data == {"row": 2}
    assert ckpt.transact("key", boom) == ("key", "skipped")
    assert ckpt.load().step == 1


def test_transact_takes_over_under_halt() -> None:
    """A transaction whose holder vanished wrote nothing, so that halting would be for nothing."""
    store, backend, clock = virtual()
    hold(backend, clock, lease=0)
    assert store.checkpoint("run", in_doubt="halt").transact("key", lambda _tx: 1) == (1, "executed")


def test_transact_lost() -> None:
    """Replaced while the effect ran: nothing that it wrote remains."""
    store, backend, _ = virtual()
    ckpt = store.checkpoint("run", lease=10)

    def effect(tx: dict[str, int]) -> None:
        tx["row"] = 1
        backend._space.records["key"] = replace(backend._space.records["key"], nonce="other", owner="somebody")

    with pytest.raises(ClaimLost):
        ckpt.transact("key", effect)
    assert backend.user_data == {}
    assert ckpt.stats.lost == 1


# The current claim


def test_current() -> None:
    """Inside an effect its claim, nested ones the innermost, outside none; other threads see none of it."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    seen: list[Any] = []

    def inner() -> None:
        seen.append(durastore.current().key)

    def outer() -> None:
        seen.append(durastore.current().key)
        ckpt.run_once("inner", inner)
        seen.append(durastore.current().key)
        thread = threading.Thread(target=lambda: seen.append(durastore.current()))
        thread.start()
        thread.join()

    ckpt.run_once("outer", outer)
    assert seen == ["outer", "inner", "outer", None]
    assert durastore.current() is None


def test_fencing_token_grows() -> None:
    """Each grant of a key has a greater token, across failures, takeovers and `forget`."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run")
    tokens: list[int] = []

    def effect() -> None:
        claim = durastore.current()
        tokens.append(claim.token)
        raise ValueError("boom")

    for _ in range(3):
        with pytest.raises(ValueError, match="boom"):
            ckpt.run_once("key", effect)
    clock.elapsed += 1
    store.forget("key")
    tokens.append(hold(backend, clock, lease=0).grant.token)
    with pytest.raises(ValueError, match="boom"):
        ckpt.run_once("key", effect)
    assert tokens == sorted(set(tokens))


# Looking and settling


def test_looking_changes_nothing() -> None:
    """No listing takes over, recovers or writes."""
    store, backend, clock = virtual()
    hold(backend, clock, lease=0)
    before = dict(backend._space.records)
    assert store.record("key").state == "in_doubt"
    assert [record.key for record in store.records(state="in_doubt")] == ["key"]
    assert list(store.runs()) == []
    assert backend._space.records == before


def test_resolve_and_forget_spare_the_living() -> None:
    """A live claim is neither resolved nor forgotten unless forced; a committed key is not resolved again."""
    store, backend, clock = virtual()
    hold(backend, clock)
    for settle in (
        lambda: store.resolve("key", retry=True),
        lambda: store.forget("key"),
        lambda: store.forget_run("other"),
    ):
        with pytest.raises(InDoubt, match="somebody"):
            settle()
    assert store.resolve("key", result=1, force=True).result == 1
    with pytest.raises(InDoubt, match="is committed"):
        store.resolve("key", result=2)
    assert store.forget("key")
    assert not store.forget("key")
    with pytest.raises(durastore.ConfigError, match="no key 'key'"):
        store.resolve("key", retry=True)


@pytest.mark.parametrize("settle", ["resolve", "forget"])
def test_settling_re_checks(settle: str) -> None:
    """A record that changed between the look and the write is looked at again, not settled blindly."""
    store, backend, clock = virtual()
    granted = hold(backend, clock, lease=1)
    clock.elapsed += 2

    def hook(verb: str) -> None:
        if verb in ("resolve", "delete"):
            backend.before = lambda _verb: None
            backend.renew([granted.grant], now=clock.now())

    backend.before = hook
    action: Callable[[], Any] = (
        (lambda: store.resolve("key", retry=True)) if settle == "resolve" else (lambda: store.forget("key"))
    )
    with pytest.raises(InDoubt):
        action()
    assert stored(backend, clock).state == "claimed"


@pytest.mark.parametrize("how", [{}, {"result": 1, "retry": True}])
def test_resolve_takes_one_way(how: dict[str, Any]) -> None:
    """Either a result or a retry."""
    store, _, _ = virtual()
    with pytest.raises(durastore.ConfigError, match="either"):
        store.resolve("key", **how)


def test_forget_run_and_reset() -> None:
    """`reset` clears the map and keeps the cargo; `forget_run` removes both."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    ckpt.run_once("a", lambda: 1, progress=(1, {}))
    ckpt.reset()
    assert ckpt.load() == (0, {})
    assert ckpt.run_once("a", boom).status == "skipped"
    ckpt.save_progress(5, {})
    assert store.forget_run("run") == 1
    assert ckpt.load() == (0, {})
    assert store.record("a") is None
