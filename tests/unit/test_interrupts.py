"""Ctrl-C anywhere: KeyboardInterrupt raised as the n-th function is entered or generator resumed, which is where Python looks for
signals, for n = 1, 2, … until a call comes through. Whatever was torn: no lock stays taken, no key stays claimed longer than its
lease, nothing counts as done that was not, and nothing that is stored is done again.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

import durastore
from durastore import Found, InDoubt, NotFound
from tests.unit.virtual import Scripted, VirtualClock, virtual

CALLS_MAX = 1000
LEASE = 30.0


class Torn:
    """Raises as the n-th function is entered in this thread."""

    def __init__(self, target: int, error: type[BaseException]) -> None:
        self.left = target
        self.in_store = False
        """A call of the store happens or it does not: inside, nothing is torn."""
        self._error = error

    def enter(self, _verb: str) -> None:
        self.in_store = True

    def leave(self, _verb: str) -> None:
        self.in_store = False

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> None:
        resumed = sys.version_info < (3, 11) and frame.f_lasti >= 0  # 3.10 would end a generator without its `finally`
        if event == "call" and not self.in_store and not resumed:
            self.left -= 1
            if self.left == 0:
                raise self._error

    @property
    def passed(self) -> bool:
        return self.left <= 0


def torn(backend: Scripted, call: Callable[[], object], target: int, error: type[BaseException]) -> bool:
    """Call, torn at the `target`-th function; whether it came that far."""
    hook, before = Torn(target, error), sys.gettrace()
    backend.before, backend.after = hook.enter, hook.leave
    try:
        sys.settrace(hook)
        call()
    except error:
        pass
    finally:
        sys.settrace(before)
        backend.before = backend.after = lambda _verb: None
    return hook.passed


@pytest.fixture(autouse=True)
def _quick_collections() -> Iterator[None]:
    """What the test session holds is not looked through each time that a test collects its garbage."""
    gc.freeze()
    yield
    gc.unfreeze()


class Case:
    """A store, a world that counts, and one way to run a key."""

    def __init__(self, policy: str) -> None:
        self.store, self.backend, self.clock = virtual()
        self.ran: list[str] = []
        self.policy = policy
        in_doubt: Any = self.probe if policy == "probe" else policy
        self.ckpt = self.store.checkpoint("run", lease=LEASE, in_doubt=in_doubt)

    def probe(self, claim: durastore.Claim) -> Any:
        return Found(f"did {claim.key}") if claim.key in self.ran else NotFound()

    def effect(self, key: str) -> str:
        self.ran.append(key)
        return f"did {key}"

    def lapse(self) -> None:
        """Whoever was torn out is gone; a keeper that still renewed for it would be found out here."""
        gc.collect()
        keeper: Any = self.store.keeper
        for _ in range(12):
            self.clock.elapsed += LEASE / 4
            keeper.tick()

    def locks_are_free(self) -> None:
        assert self.store.keeper._condition.acquire(blocking=False)
        self.store.keeper._condition.release()
        gc.collect()
        assert durastore.current() is None


def once(case: Case) -> None:
    case.ckpt.run_once("a", lambda: case.effect("a"), progress=(1, {}))


def by_hand(case: Case) -> None:
    with case.ckpt.claim("a") as claim:
        if claim.outcome is None:
            claim.commit(case.effect("a"), progress=(1, {}))
        else:
            case.ckpt.save_progress(1, {})


def agent(case: Case) -> None:
    durastore.run_agent(["a", "b"], case.ckpt, case.effect, key=str)


def generator(case: Case) -> None:
    durastore.run_agent(iter(["a", "b"]), case.ckpt, case.effect, key=str)


WAYS = {
    "once": (once, ["a"]),
    "by hand": (by_hand, ["a"]),
    "agent": (agent, ["a", "b"]),
    "generator": (generator, ["a", "b"]),
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("policy", ["rerun", "halt", "probe"])
@pytest.mark.parametrize("way", WAYS)
def test_torn_anywhere(way: str, policy: str, error: type[BaseException]) -> None:
    """The promises of each mode hold wherever the interrupt falls."""
    call, keys = WAYS[way]
    for target in range(1, CALLS_MAX):
        case = Case(policy)
        reached = torn(case.backend, lambda case=case: call(case), target, error)
        case.locks_are_free()
        before = {key: case.ran.count(key) for key in keys}
        done = {record.key for record in case.store.records(state="committed")}
        assert all(before[key] == 1 for key in done), f"a false done at call {target}"
        assert max(before.values()) <= 1, f"twice in one run at call {target}"
        case.lapse()
        finish(case, call, keys)
        for key in keys:
            again = policy == "rerun" and key not in done
            assert case.ran.count(key) <= (2 if again else 1), f"{key} ran again after call {target}"
            assert case.store.record(key).result == f"did {key}"
        assert case.ckpt.load().step == len(keys)
        if not reached:
            assert target > 50
            return
    raise AssertionError("never came through")


def finish(case: Case, call: Callable[[Case], None], keys: list[str]) -> None:
    """Run again, settling what is in doubt by what really happened."""
    for _ in range(len(keys) + 1):
        try:
            call(case)
        except InDoubt:
            [record] = case.store.records(state="in_doubt")
            if record.key in case.ran:
                case.store.resolve(record.key, result=f"did {record.key}")
            else:
                case.store.resolve(record.key, retry=True)
        else:
            return
    raise AssertionError("never settled")


def test_torn_in_a_transaction() -> None:
    """What a transaction wrote is there exactly when its mark is, and once."""
    for target in range(1, CALLS_MAX):
        store, backend, clock = virtual()
        ckpt = store.checkpoint("run", lease=LEASE)
        insert = partial(ckpt.transact, "key", lambda tx: tx.update(row=1))
        reached = torn(backend, insert, target, KeyboardInterrupt)
        record = store.record("key")
        assert (record is not None and record.state == "committed") == (backend.user_data == {"row": 1})
        ran = settle_transaction(ckpt, backend, clock)
        assert ran == (0 if record is not None and record.state == "committed" else 1)
        if not reached:
            return
    raise AssertionError("never came through")


def settle_transaction(ckpt: durastore.Checkpoint, backend: Scripted, clock: VirtualClock) -> int:
    gc.collect()
    clock.elapsed += 2 * LEASE
    ran: list[int] = []
    ckpt.transact("key", lambda tx: ran.append(1) or tx.update(row=1))
    assert backend.user_data == {"row": 1}
    return len(ran)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_key_of_an_interrupted_commit(when: str) -> None:
    """A commit that claims the next key in the same write, interrupted before or after: it lands, and the key is free."""
    case = Case("rerun")
    errors = [KeyboardInterrupt]

    def interrupt(verb: str) -> None:
        if verb == "commit" and errors:
            raise errors.pop()

    setattr(case.backend, when, interrupt)
    with pytest.raises(KeyboardInterrupt):
        agent(case)
    assert [record.state for record in map(case.store.record, "ab") if record] == ["committed", "abandoned"]
    assert case.ran == ["a"]
    agent(case)
    assert case.ran == ["a", "b"]


def test_a_transaction_that_landed_is_not_lost() -> None:
    """An interrupt right after the store took it: committed, and nobody counts a loss."""
    case = Case("rerun")

    def interrupt(verb: str) -> None:
        if verb == "transact":
            raise KeyboardInterrupt

    case.backend.after = interrupt
    with pytest.raises(KeyboardInterrupt):
        case.ckpt.transact("a", lambda _: case.effect("a"))
    record = case.store.record("a")
    assert record is not None
    assert (record.state, case.store.stats.lost, case.ran) == ("committed", 0, ["a"])
