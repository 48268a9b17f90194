"""SIGKILL at every point between two calls of the store, between two SQL statements, and around each effect. Enumerated: the n-th
point for n = 1, 2, … until the run ends by itself. What was delivered is counted outside; the resumed run keeps the promise of
its mode to the letter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import Found, InDoubt, NotFound
from tests.crash.killing import Points, ended, forked
from tests.crash.world import HOUR, World, template

STEPS = ("one", "two", "three")
LARGE = random.Random(1).randbytes(150_000).hex()
"""Does not fit inline, nor when compressed."""
ALL = (*STEPS, "hand", "claim")
POINTS_MAX = 400
Mode = str


def value_of(key: str) -> Any:
    return LARGE if key == "two" else {"did": key, "n": 2**60}


class Run:
    """One incarnation of a run in one mode."""

    def __init__(self, world: World, mode: Mode, store: durastore.Store, point: Callable[[], None], *, supersede: bool):
        self.world = world
        self.mode = mode
        self.point = point
        self.probed: list[str] = []
        self.statuses: dict[str, str] = {}
        policy: Any = {"probe": self.probe, "transact": "rerun"}.get(mode, mode)
        self.ckpt = store.checkpoint("run", in_doubt=policy, supersede=supersede)

    def probe(self, claim: durastore.Claim) -> Any:
        self.probed.append(claim.key)
        return Found(value_of(claim.key)) if self.world.outside.count()[claim.key] else NotFound()

    def effect(self, key: str) -> Any:
        self.point()
        self.world.outside.deliver(key)
        self.point()
        return value_of(key)

    def row(self, key: str, tx: Any) -> Any:
        self.point()
        tx.execute("INSERT INTO rows VALUES (?)", (key,))
        self.point()
        return value_of(key)

    def all(self) -> None:
        """Steps of `run_agent`, one key with progress, one by hand, and a last save."""
        if self.mode == "transact":
            for step, key in enumerate(ALL):
                self.note(
                    key, self.ckpt.transact(key, partial(self.row, key), progress=(step + 1, {"processed": step + 1}))
                )
        else:
            note = lambda step, outcome: self.note(STEPS[step], outcome)  # noqa: E731
            durastore.run_agent(STEPS, self.ckpt, self.effect, key=str, on_step=note)
            self.note("hand", self.ckpt.run_once("hand", partial(self.effect, "hand"), progress=(4, {"processed": 4})))
            self.by_hand()
        self.ckpt.save_progress(9, {"end": True})

    def by_hand(self) -> None:
        with self.ckpt.claim("claim") as claim:
            outcome = claim.outcome or claim.commit(self.effect("claim"), progress=(5, {"processed": 5}))
            self.note("claim", outcome)

    def one(self) -> None:
        """A single key."""
        if self.mode == "transact":
            self.note("one", self.ckpt.transact("one", partial(self.row, "one")))
        else:
            self.note("one", self.ckpt.run_once("one", partial(self.effect, "one")))

    def note(self, key: str, outcome: durastore.Outcome[Any]) -> None:
        assert outcome.value == value_of(key), "a replay differs from the first run"
        self.statuses[key] = outcome.status


def killed(
    world: World, mode: Mode, target: int, script: str = "all", *, elapsed: float = 0.0, statements: bool = False
) -> bool:
    """Run until the n-th point; whether it was reached."""

    def work() -> None:
        points = Points(target)
        with world.open(points, elapsed=elapsed, statements=statements) as store:
            getattr(Run(world, mode, store, points, supersede=False), script)()

    return died(forked(work))


class Seen:
    """What a dead run left: which keys are committed, which were delivered."""

    def __init__(self, world: World, mode: Mode, store: durastore.Store) -> None:
        self.delivered = world.rows() if mode == "transact" else world.outside.count()
        self.states = {record.key: record.state for record in store.records()}
        self.committed = {key for key, state in self.states.items() if state == "committed"}


def resume(world: World, mode: Mode, *, supersede: bool, elapsed: float = HOUR, script: str = "all") -> None:
    """Look at what the dead run left, resume it, and hold it to its promise."""
    with world.open(elapsed=elapsed) as store:
        before = Seen(world, mode, store)
        assert all(before.delivered[key] >= 1 for key in before.committed), "committed without its effect"
        if mode == "transact":
            assert set(before.delivered) == before.committed, "the row and the mark are not one"
        progress = store.checkpoint("run").load()
        if script == "all" and mode != "halt" and progress.step <= len(ALL):
            assert progress.step == len(before.committed), "the result and its progress are not one"
        run = Run(world, mode, store, lambda: None, supersede=supersede)
        if mode == "halt":
            settle(world, store, run, before, script, force=supersede)
        else:
            getattr(run, script)()
        check(world, mode, store, run, before, ALL if script == "all" else ("one",))
        if script == "all":
            assert run.ckpt.load() == (9, {"end": True})


def settle(world: World, store: durastore.Store, run: Run, before: Seen, script: str, *, force: bool) -> None:
    """Under *halt* a key whose holder vanished runs for nobody, until somebody who looked outside says how it stands: with
    `force` where its lease has not lapsed yet.
    """
    doubtful = {key for key, state in before.states.items() if state != "committed"}
    assert len(doubtful) <= 1
    for key in doubtful:
        for _ in range(2):
            with pytest.raises(InDoubt, match=repr(key)):
                getattr(run, script)()
        assert world.outside.count()[key] == before.delivered[key]
        if before.delivered[key]:
            store.resolve(key, result=value_of(key), force=force)
        else:
            store.resolve(key, retry=True, force=force)
    getattr(run, script)()


def check(world: World, mode: Mode, store: durastore.Store, run: Run, before: Seen, keys: tuple[str, ...]) -> None:
    after = Seen(world, mode, store)
    assert after.committed == set(after.states) == set(keys)
    assert {record.key: record.result for record in store.records()} == {key: value_of(key) for key in keys}
    doubtful = {key for key in before.delivered if key not in before.committed}
    again = doubtful if mode == "rerun" else set()
    assert after.delivered == Counter(keys) + before.delivered - Counter(set(before.delivered) - again)
    assert set(run.probed) == (
        {key for key, state in before.states.items() if state != "committed"} if mode == "probe" else set()
    )
    statuses = dict(run.statuses)
    for key in keys:
        if key in statuses:  # a step below the progress is not even asked for
            assert statuses[key] == expected_status(mode, key, before)


def expected_status(mode: Mode, key: str, before: Seen) -> str:
    if key in before.committed:
        return "skipped"
    if before.delivered[key] and mode in ("probe", "halt"):
        return "recovered" if mode == "probe" else "skipped"
    return "executed"


def died(child: int) -> bool:
    """Whether a child was killed; fails when it failed."""
    code = ended(child)
    assert code in (0, -9), "the child failed; its error is in the captured output"
    return code == -9


MODES = pytest.mark.parametrize("mode", ["rerun", "halt", "probe", "transact"])


def enumerated(ground: Path, case: Callable[[World, int], bool]) -> int:
    """Call `case` with a fresh world for point 1, 2, … until it says that its run was not killed. Returns how many there were."""
    empty = template(ground)
    for target in range(1, POINTS_MAX):
        if not case(World(ground / str(target), empty), target):
            return target - 1
    raise AssertionError("never came to an end")


@MODES
@pytest.mark.parametrize("supersede", [False, True], ids=["lapsed", "superseded"])
def test_between_calls(ground: Path, mode: Mode, *, supersede: bool) -> None:
    """Killed before and after each call of the store and each delivery; resumed when the lease has lapsed, or at once by an
    incarnation that supersedes.
    """

    def case(world: World, target: int) -> bool:
        dead = killed(world, mode, target)
        resume(world, mode, supersede=supersede, elapsed=1.0 if supersede else HOUR)
        return dead

    assert enumerated(ground, case) >= 25


@pytest.mark.parametrize("mode", ["rerun", "transact"])
def test_between_statements(ground: Path, mode: Mode) -> None:
    """Killed before each SQL statement: a transaction lands whole or not at all."""

    def case(world: World, target: int) -> bool:
        dead = killed(world, mode, target, statements=True)
        resume(world, mode, supersede=False)
        return dead

    assert enumerated(ground, case) >= 60


@MODES
def test_killed_twice(ground: Path, mode: Mode) -> None:
    """The resumed run is killed, too, at each of its points, and the third keeps the promise."""

    def case(world: World, target: int) -> bool:
        second = 0
        while True:
            second += 1
            again = World(world.folder / str(second), world.folder / "store.db")
            if not killed(again, mode, target, "one"):
                return False
            dead = killed_resuming(again, mode, second)
            resume(again, mode, supersede=False, elapsed=2 * HOUR, script="one")
            if not dead:
                return True

    assert enumerated(ground, case) >= 8


def killed_resuming(world: World, mode: Mode, target: int) -> bool:
    """As `killed`, an hour later. A run that halts has come to its end."""
    if mode != "halt":
        return killed(world, mode, target, "one", elapsed=HOUR)

    def work() -> None:
        points = Points(target)
        with world.open(points, elapsed=HOUR) as store:
            try:
                Run(world, mode, store, points, supersede=False).one()
            except InDoubt:
                return

    return died(forked(work))


@pytest.mark.parametrize("mode", ["rerun", "halt", "probe"])
def test_effect_that_raises(ground: Path, mode: Mode) -> None:
    """Killed around an effect that raises: given back or in doubt as its mode says, and never stuck."""

    def case(world: World, target: int) -> bool:
        dead = killed_raising(world, mode, target)
        with world.open(elapsed=HOUR) as store:
            seen = Seen(world, mode, store)
            assert seen.states.get("one") in (
                (None, "in_doubt", "abandoned") if mode == "rerun" else (None, "in_doubt")
            )
        resume(world, mode, supersede=False, script="one")
        return dead

    assert enumerated(ground, case) >= 7


def killed_raising(world: World, mode: Mode, target: int) -> bool:
    def work() -> None:
        points = Points(target)
        with world.open(points) as store:
            run = Run(world, mode, store, points, supersede=False)

            def effect() -> None:
                run.effect("one")
                raise ValueError("the answer was unreadable")

            with pytest.raises(ValueError, match="unreadable"):
                run.ckpt.run_once("one", effect)

    return died(forked(work))


def test_setting_up(ground: Path) -> None:
    """Killed before each statement of setting up a cold file: the next one sets up what is missing, and runs."""
    for target in range(1, POINTS_MAX):
        world = World(ground / str(target))
        dead = killed(world, "rerun", target, "one", statements=True)
        resume(world, "rerun", supersede=False, script="one")
        if not dead:
            break
    assert target > 30
