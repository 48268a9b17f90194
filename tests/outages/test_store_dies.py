"""The store is gone for longer than a lease, in each phase of a step, and comes back.

Proved with servers that are killed and keep their data: PostgreSQL and MySQL (or MariaDB in its place). SQLite has no server:
another transaction keeps its file. For Firestore and DynamoDB the line is cut, and every request throttled; how Google's and
Amazon's servers recover from a crash of their own is theirs to prove.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore.conformance.receiver import Receiver
from durastore.errors import InDoubt, StoreUnavailable
from tests.conformance.broken import Wrapper

from .conftest import Ground
from .ways import LEASE, Outage

pytestmark = pytest.mark.timeout(120)
STEPS, VICTIM = 4, 2
VERBS = ("claim", "renew", "abandon", "load", "save", "read", "commit", "put_chunks", "get_chunks", "time")


class Falling(Wrapper):
    """A backend whose store falls when it gets to a phase, once."""

    def __init__(self, backend: Any, phase: str, fall: Callable[[], None]) -> None:
        super().__init__(backend)
        self._phase, self._fall = phase, fall

    def reached(self, phase: str) -> bool:
        if phase != self._phase:
            return False
        self._phase = ""
        self._fall()
        return True

    def claim(self, *args: Any, **kwargs: Any) -> Any:
        self.reached("before the claim")
        return self._backend.claim(*args, **kwargs)

    def commit(self, grant: Any, **kwargs: Any) -> Any:
        if not grant.key.endswith(str(VICTIM)):
            return self._backend.commit(grant, **kwargs)
        self.reached("before the commit")
        answer = self._backend.commit(grant, **kwargs)
        if self.reached("commit unanswered"):
            return self._backend.commit(grant, **kwargs)  # fails as the store does, and is asked for again
        self.reached("after the commit")
        return answer


PHASES = ["before the claim", "in the effect", "before the commit", "commit unanswered", "after the commit"]


@pytest.mark.parametrize("phase", PHASES)
def test_goes_on_by_itself(ground: Ground, phase: str) -> None:
    """Nothing is lost, nothing runs twice although nobody may run anything again, and nobody has to lend a hand."""
    goes_on(ground, phase)


def goes_on(ground: Ground, phase: str, wrap: Callable[[Any], Any] = Wrapper) -> None:
    """A run whose store, behind a wrapper, falls in a phase of the victim."""
    outage, calls = Outage(ground.way), list[int]()

    def step(item: int) -> int:
        calls.append(item)
        if item == VICTIM and falling.reached("in the effect"):
            outage.wait()
        return item * 10

    with outage, durastore.open(ground.url) as store:
        ckpt = store.checkpoint("run", lease=LEASE, in_doubt="halt")
        durastore.run_agent(range(VICTIM), ckpt, step)
        falling = Falling(wrap(store.backend), phase, outage.begin)
        store.backend = falling
        summary = durastore.run_agent(range(STEPS), ckpt, step)
        outage.wait()
    assert outage.begun
    assert calls == list(range(STEPS))
    assert summary.executed == STEPS - VICTIM
    with durastore.open(ground.direct) as store:
        found = {record.key: record.result for record in store.records(run_id="run")}
        assert set(found.values()) == {item * 10 for item in range(STEPS)}
        assert store.checkpoint("run").load()[0] == STEPS


MODES = ["rerun", "halt", "probe"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("phase", ["before the claim", "before the commit", "commit unanswered"])
def test_gives_up_at_its_deadline(ground: Ground, phase: str, mode: str, tmp_path: Path) -> None:
    """Gone for longer than a call waits: one clear line; whoever comes when it is back keeps the promise of its mode."""
    gives_up(ground, phase, mode, tmp_path)


def gives_up(ground: Ground, phase: str, mode: str, folder: Path, wrap: Callable[[Any], Any] = Wrapper) -> None:
    """A call whose store, behind a wrapper, falls in a phase and stays away until the call has failed."""
    receiver, opened = Receiver(folder / "outside"), ground.way()
    policy: Any = mode
    if mode == "probe":

        def policy(claim: Any) -> Any:
            return durastore.Found("sent") if receiver.asked(claim.key, claim.token) else durastore.NotFound()

    def effect() -> str:
        claim = durastore.current()
        assert claim is not None
        receiver.deliver(claim.key, claim.token, fence=False)
        return "sent"

    key = f"key {VICTIM}"
    with durastore.open(ground.url) as store:
        store.deadlines = dict.fromkeys(VERBS, 0.3)
        ckpt = store.checkpoint("run", lease=LEASE, in_doubt=policy)
        assert ckpt.run_once("earlier", lambda: 1).status == "executed"
        store.backend = Falling(wrap(store.backend), phase, opened.__enter__)
        try:
            with pytest.raises(StoreUnavailable) as raised:
                ckpt.run_once(key, effect)
        finally:
            opened.__exit__(None, None, None)
    said = str(raised.value)
    assert "did not take a" in said
    assert "\n" not in said
    assert ":durastore@" not in said
    with durastore.open(ground.direct) as store:
        store.backend = wrap(store.backend)
        ckpt = store.checkpoint("run", lease=LEASE, in_doubt=policy, wait=30)
        assert ckpt.run_once("earlier", lambda: 2) == (1, "skipped")
        if mode == "halt" and phase == "before the commit":
            with pytest.raises(InDoubt):
                ckpt.run_once(key, effect)
        else:
            assert ckpt.run_once(key, effect).value == "sent"
    twice = mode == "rerun" and phase == "before the commit"
    assert len(receiver.box(key).tokens) == (2 if twice else 1)
