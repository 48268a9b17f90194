"""SIGSTOP past the lease in each phase, takeover by another process, SIGCONT: the zombie changes nothing, and is told."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import durastore
from tests.crash.killing import Deadly, Points, ended, forked, froze, wait_for
from tests.crash.test_kill import ALL, Run, enumerated
from tests.crash.world import HOUR, World

PHASES = ("after claim", "in effect", "before commit", "after commit")


def freeze(mark: Path) -> None:
    """Stop here, once; go on when somebody sends SIGCONT."""
    if not mark.exists():
        mark.write_text("frozen")
        os.kill(os.getpid(), signal.SIGSTOP)


class Frozen(Deadly):
    """A backend whose caller freezes in a phase around claim or commit."""

    def __init__(self, backend: Any, phase: str, stop: Callable[[], None]) -> None:
        super().__init__(backend, lambda: None)
        self._phase, self._stop = phase, stop

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in ("claim", "commit"):
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            if self._phase == f"before {name}":
                self._stop()
            answer = found(*args, **kwargs)
            if self._phase == f"after {name}":
                self._stop()
            return answer

        return verb


def zombie(url: str, phase: str, mark: Path, said: Path) -> None:
    """A run of three steps that freezes in its first, and writes down how it ended and what it began."""
    began: list[int] = []

    def effect(item: int) -> str:
        began.append(item)
        if phase == "in effect":
            freeze(mark)
        return "zombie"

    with durastore.open(url) as store:
        store.backend = Frozen(store.backend, phase, lambda: freeze(mark))
        ckpt = store.checkpoint("run", lease=0.4)
        try:
            durastore.run_agent(iter(range(3)), ckpt, effect)
            how = "finished"
        except durastore.ClaimLost:
            how = "ClaimLost"
        said.write_text(f"{how} {began}")


@pytest.mark.parametrize("phase", PHASES)
def test_frozen_past_its_lease(phase: str, tmp_path: Path) -> None:
    """Result, progress and claim of the rightful holder stay as they are; the zombie gets `ClaimLost` and does no later step."""
    url, mark, said = f"sqlite:///{tmp_path}/store.db", tmp_path / "mark", tmp_path / "said"
    with durastore.open(url):
        pass
    child = forked(lambda: zombie(url, phase, mark, said))
    wait_for(lambda: mark.exists() and _is_stopped(child), "the zombie freezes")
    with durastore.open(url) as store:
        ckpt = store.checkpoint("run")
        summary = durastore.run_agent(iter(range(3)), ckpt, lambda _item: "rightful")
        assert summary.processed == 3
        before = [store.backend.read([f"run:step:{step}"])[0] for step in range(3)]
        os.kill(child, signal.SIGCONT)
        assert ended(child) == 0
        assert [store.backend.read([f"run:step:{step}"])[0] for step in range(3)] == before
        assert ckpt.load() == (3, {"processed": 3})
        results = [store.record(f"run:step:{step}").result for step in range(3)]
    if phase == "after commit":  # it had committed before it froze: its result stands, and the rest it finds done
        assert (results, said.read_text()) == (["zombie", "rightful", "rightful"], "finished [0]")
    else:
        began = [] if phase == "after claim" else [0]  # frozen before its effect, it asks before it begins
        assert (results, said.read_text()) == (["rightful"] * 3, f"ClaimLost {began}")


def _is_stopped(child: int) -> bool:
    return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_lost_event(tmp_path: Path) -> None:
    """A holder that was frozen and replaced learns it from its keeper, while its effect still runs."""
    url, mark, said = f"sqlite:///{tmp_path}/store.db", tmp_path / "mark", tmp_path / "said"
    with durastore.open(url):
        pass

    def run() -> None:
        def effect() -> None:
            freeze(mark)
            assert durastore.current().lost.wait(30)
            said.write_text("told")

        with durastore.open(url) as store, pytest.raises(durastore.ClaimLost):
            store.checkpoint("run", lease=0.4).run_once("key", effect)

    child = forked(run)
    wait_for(lambda: mark.exists() and _is_stopped(child), "the holder freezes")
    with durastore.open(url) as store:
        assert store.checkpoint("run").run_once("key", lambda: "rightful").status == "executed"
    os.kill(child, signal.SIGCONT)
    assert ended(child) == 0
    assert said.read_text() == "told"


def stuck_in_time(world: World, mode: str, target: int) -> None:
    """A run that freezes at a point and never learns that time went by, as in a sandbox restored from a snapshot."""
    points = Points(target, signal.SIGSTOP)
    with world.open(points) as store:
        try:
            Run(world, mode, store, points, supersede=False).all()
            how = "finished"
        except durastore.ClaimLost:
            how = "ClaimLost"
    (world.folder / "said").write_text(how)


def contents(store: durastore.Store) -> Any:
    records = sorted(store.backend.scan(limit=100, now=store.clock.now()).items, key=lambda record: record.key)
    return records, [(run.run_id, run.step, run.state) for run in store.runs()]


@pytest.mark.parametrize("mode", ["rerun", "probe", "transact"])
def test_frozen_at_every_point(ground: Path, mode: str) -> None:
    """Stopped before and after each call of the store and each delivery; another does the whole run; the zombie goes on with its
    clocks set back. It changes neither a result, nor a claim, nor the progress; it is told when it lost its claim, and does no
    later step.
    """

    def case(world: World, target: int) -> bool:
        child = forked(lambda: stuck_in_time(world, mode, target))
        if not froze(child):
            return False
        try:
            if mode == "transact" and in_transaction(world):
                return True  # nobody can take over while the write lock is held: see the promise of transact
            outlive(world, mode, child)
        finally:
            os.kill(child, signal.SIGCONT)
            code = ended(child)
        assert code == 0
        return True

    assert enumerated(ground, case) >= 25


def in_transaction(world: World) -> bool:
    with closing(sqlite3.connect(world.folder / "store.db", timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
        return False


def outlive(world: World, mode: str, child: int) -> None:
    with world.open(elapsed=HOUR) as store:
        held = [record.key for record in store.records(state="in_doubt")]
        Run(world, mode, store, lambda: None, supersede=False).all()
        before = contents(store)
        delivered = world.rows() if mode == "transact" else world.outside.count()
        os.kill(child, signal.SIGCONT)
        wait_for(
            lambda: (world.folder / "said").exists() and (world.folder / "said").read_text() != "", "the zombie ends"
        )
        assert contents(store) == before
        assert (world.folder / "said").read_text() == ("ClaimLost" if held else "finished")
        late = (world.rows() if mode == "transact" else world.outside.count()) - delivered
        assert set(late) <= (set() if mode == "transact" else set(held)), "a later step, or a row without its mark"
        assert {record.key for record in before[0]} == set(ALL)
