"""ZOMBIE: a process that stands still past its lease in some phase, is replaced, and goes on. By the store's own clock.

All phases freeze side by side, so that they wait for one lease together. A store that no other process can open has zombies
that are threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from durastore import urls
from durastore.clock import Clock
from durastore.conformance.harness import Harness
from durastore.conformance.marks import clause
from durastore.conformance.nursery import Nursery
from durastore.conformance.skewed import SetBack, stand_still
from durastore.conformance.surface import run_agent, surfaced
from durastore.conformance.virtual import StillKeeper
from durastore.contract import Backend, StoredRecord
from durastore.errors import ClaimLost
from durastore.store import Store

__all__ = ["PHASES", "ZombieClauses"]

PHASES = ("after claim", "in effect", "before commit", "after commit")
STEPS = 3
LEASE = 0.6
WAIT = 60.0
"""Seconds; how long a rightful holder waits for a lease to lapse, at most."""
Stop = Callable[[Clock], None]


@dataclass(frozen=True)
class Zombie:
    """A run of three steps that stands still in its first. Goes to other processes."""

    url: str
    run_id: str
    phase: str
    said: Path
    set_back: bool

    def __call__(self) -> None:
        """Live it, in this process."""
        store = Store(urls.connect(urls.parse(self.url)), clock=self.clock())
        self.live(store, stand_still)

    def clock(self) -> Clock:
        """A clock that forgets the time it stood still, or one that does not."""
        return SetBack() if self.set_back else Clock()

    def live(self, store: Store, stop: Stop) -> None:
        """Run, and write down how it ended and what it began."""
        began: list[int] = []
        freeze = _Once(lambda: stop(store.clock))

        def effect(item: int) -> str:
            began.append(item)
            freeze(self.phase == "in effect")
            return "zombie"

        store.backend = _Freezing(store.backend, self.phase, freeze)
        try:
            ckpt = surfaced(store).checkpoint(self.run_id, lease=LEASE, wait=0)
            run_agent(iter(range(STEPS)), ckpt, effect, save_every=1)
            how = "finished"
        except ClaimLost:
            how = "ClaimLost"
        self.said.write_text(f"{how} {began}")


class _Once:
    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop, self._done = stop, False

    def __call__(self, now: bool) -> None:
        if now and not self._done:
            self._done = True
            self._stop()


class _Freezing:
    """A backend whose caller stands still once, around its first claim or commit."""

    def __init__(self, backend: Backend, phase: str, freeze: _Once) -> None:
        self._backend, self._phase, self._freeze = backend, phase, freeze

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if name not in ("claim", "commit"):
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            self._freeze(self._phase == f"before {name}")
            answer = found(*args, **kwargs)
            self._freeze(self._phase == f"after {name}")
            return answer

        return verb


@contextmanager
def _frozen(harness: Harness, zombies: Sequence[Zombie]) -> Iterator[Callable[[], None]]:
    """All of them stand still; calling lets them go on and waits for their end."""
    with _threads(harness, zombies) if harness.url is None else _processes(zombies) as go_on:
        yield go_on


@contextmanager
def _processes(zombies: Sequence[Zombie]) -> Iterator[Callable[[], None]]:
    with Nursery() as nursery:
        children = [nursery.start(zombie) for zombie in zombies]
        assert [nursery.wait(child) for child in children] == [None] * len(children), "each stands still in its phase"

        def go_on() -> None:
            for child in children:
                nursery.go_on(child)
            assert [nursery.wait(child) for child in children] == [0] * len(children), "see the captured output"

        yield go_on


@contextmanager
def _threads(harness: Harness, zombies: Sequence[Zombie]) -> Iterator[Callable[[], None]]:
    gate = threading.Event()
    running = [_Thread(harness, zombie, gate) for zombie in zombies]
    for one in running:
        assert one.still.wait(WAIT), "each stands still in its phase"

    def go_on() -> None:
        gate.set()
        for one in running:
            one.thread.join(WAIT)

    yield go_on


class _Thread:
    def __init__(self, harness: Harness, zombie: Zombie, gate: threading.Event) -> None:
        self.still = threading.Event()
        self._gate = gate
        store = Store(harness.open(), clock=zombie.clock())
        store.keeper = StillKeeper(store._renew, store.clock)
        self.thread = threading.Thread(target=partial(zombie.live, store, self._stand_still))
        self.thread.start()

    def _stand_still(self, clock: Clock) -> None:
        began = clock.monotonic()
        self.still.set()
        self._gate.wait(WAIT)
        if isinstance(clock, SetBack):
            clock.behind = clock.monotonic() - began


def _contents(store: Store, run_id: str) -> tuple[Sequence[StoredRecord | None], Any]:
    """Records to the last field; progress as the run sees it, for who finished may save the same again."""
    records = store.backend.read([f"{run_id}:step:{step}" for step in range(STEPS)])
    return list(records), store.checkpoint(run_id).load()


def _outlived(harness: Harness, *, set_back: bool) -> None:
    with TemporaryDirectory(prefix="durastore-") as folder:
        zombies = [
            Zombie(harness.url or "", f"{phase} {set_back}", phase, Path(folder) / phase, set_back) for phase in PHASES
        ]
        store = surfaced(Store(harness.open()))
        with _frozen(harness, zombies) as go_on:
            before = [_replaced(store, zombie) for zombie in zombies]
            go_on()
        for zombie, contents in zip(zombies, before, strict=True):
            assert _contents(store, zombie.run_id) == contents, f"{zombie.phase}: a zombie changed something"
            _hold(store, zombie)


def _replaced(store: Store, zombie: Zombie) -> Any:
    """The rightful holder's whole run, by another client, as soon as the zombie's lease has lapsed."""
    summary = run_agent(
        iter(range(STEPS)), store.checkpoint(zombie.run_id, wait=WAIT), lambda _: "rightful", save_every=1
    )
    assert summary.processed == STEPS - (zombie.phase == "after commit") or summary.processed == STEPS
    return _contents(store, zombie.run_id)


def _hold(store: Store, zombie: Zombie) -> None:
    """Result and end of one zombie. One that had committed before it froze may finish, for the rest is done."""
    how, _, began = zombie.said.read_text().partition(" ")
    results = [store.record(f"{zombie.run_id}:step:{step}") for step in range(STEPS)]
    values = [record and record.result for record in results]
    if zombie.phase == "after commit":
        assert values == ["zombie", "rightful", "rightful"], zombie.phase
        assert began in ("[0]", "[0, 1]"), f"{zombie.phase}: a later step was run"
        assert began == "[0]" or zombie.set_back, f"{zombie.phase}: it asks before it begins"
        return
    assert (values, how) == (["rightful"] * STEPS, "ClaimLost"), zombie.phase
    may_begin = ("[]", "[0]") if zombie.set_back else ("[]",)
    assert began in (may_begin if zombie.phase == "after claim" else ("[0]",)), f"{zombie.phase}: a later step was run"


class ZombieClauses:
    """One test for each ZOMBIE clause."""

    @clause("ZOMBIE-1")
    def test_zombie_1_frozen(self, harness: Harness) -> None:
        """Frozen after its claim, in its effect, before and after its commit."""
        _outlived(harness, set_back=False)

    @clause("ZOMBIE-2")
    def test_zombie_2_clocks_set_back(self, harness: Harness) -> None:
        """The same for a process that does not know that time went by. An effect that it was about to begin, it may begin."""
        _outlived(harness, set_back=True)
