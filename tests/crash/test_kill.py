"""SIGKILL at every point between two calls of the store, enumerated; the resumed run keeps its promise to the letter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import Found, InDoubt, NotFound
from tests.crash.killing import Deadly, Outside, Points, ended, forked

ITEMS = ["a", "b", "c"]
POINTS_MAX = 60


class Script:
    """One run over three items, whose every effect has a point before and after its delivery."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.url = f"sqlite:///{folder}/store.db"
        self.outside = Outside(folder / "outside")
        self.policy = policy
        self.point: Callable[[], None] = lambda: None

    def checkpoint(self, store: durastore.Store) -> durastore.Checkpoint:
        policy: Any = self.probe if self.policy == "probe" else self.policy
        return store.checkpoint("run", in_doubt="rerun" if policy == "transact" else policy, supersede=True)

    def probe(self, claim: durastore.Claim) -> Any:
        return Found("delivered") if self.outside.count()[claim.key] else NotFound()

    def effect(self, _item: Any = None) -> str:
        self.point()
        self.outside.deliver(durastore.current().key)
        self.point()
        return "delivered"

    def insert(self, tx: Any) -> str:
        self.point()
        tx.execute("INSERT INTO outside VALUES (?)", (durastore.current().key,))
        self.point()
        return "delivered"

    def run(self, deadly: int) -> None:
        """To its end, or to its death."""
        self.point = Points(deadly)
        with durastore.open(self.url) as store:
            store.backend = Deadly(store.backend, self.point)
            ckpt = self.checkpoint(store)
            if self.policy == "transact":
                for item in ITEMS[ckpt.load().step :]:
                    step = ITEMS.index(item)
                    ckpt.transact(f"run:{item}", self.insert, progress=(step + 1, {}))
            else:
                durastore.run_agent(ITEMS, ckpt, self.effect, key=lambda item: f"run:{item}")

    def resume(self) -> int:
        """Run to the end; under halt, settle what is in doubt by looking outside. Returns how often that was needed."""
        settled = 0
        while True:
            try:
                self.run(0)
            except InDoubt:
                settled += 1
                self.settle()
            else:
                return settled

    def settle(self) -> None:
        with durastore.open(self.url) as store:
            (record,) = (record for record in store.records(run_id="run") if record.state != "committed")
            assert record.state == "claimed"  # superseding says that its holder is dead before its lease does
            if self.outside.count()[record.key]:
                store.resolve(record.key, result="delivered", force=True)
            else:
                store.resolve(record.key, retry=True, force=True)

    def check(self) -> None:
        """What must hold at the end, wherever it died."""
        with durastore.open(self.url) as store:
            records = {record.key: record for record in store.records()}
            assert {key: (record.state, record.result) for key, record in records.items()} == {
                f"run:{item}": ("committed", "delivered") for item in ITEMS
            }
            assert store.checkpoint("run").load().step == len(ITEMS)
            if self.policy == "transact":
                rows = store.backend._connections.get().execute("SELECT key FROM outside").fetchall()
                assert sorted(rows) == [(f"run:{item}",) for item in ITEMS]
                return
        counts = self.outside.count()
        assert set(counts) == {f"run:{item}" for item in ITEMS}
        allowed = 2 if self.policy == "rerun" else 1
        assert max(counts.values()) <= allowed
        assert sum(counts.values()) <= len(ITEMS) + (allowed - 1), "one kill, so at most one duplicate"


@pytest.mark.parametrize("policy", ["rerun", "halt", "probe", "transact"])
def test_killed_at_every_point(policy: str, tmp_path: Path) -> None:
    """Wherever the process dies: nothing that was committed runs again, nothing is missing, and each policy's promise holds."""
    for deadly in range(1, POINTS_MAX):
        folder = tmp_path / str(deadly)
        folder.mkdir()
        script = Script(folder, policy)
        with durastore.open(script.url) as store:
            store.backend._connections.get().execute("CREATE TABLE outside (key TEXT)")
        code = ended(forked(lambda script=script, deadly=deadly: script.run(deadly)))
        if code == 0:
            assert deadly > 16, "load, incarnate, claims, commits and effects have their points"
            script.check()
            return
        assert code == -9
        settled = script.resume()
        assert settled <= (policy == "halt")
        script.check()
    raise AssertionError("the script never came to its end")


def test_large_results(tmp_path: Path) -> None:
    """Killed around the writing of chunks: the result is whole or not there, and what is left over is swept a day later."""
    url = f"sqlite:///{tmp_path}/store.db"
    large = "x" * 50 + "".join(chr(0x4E00 + number * 7 % 20000) for number in range(200_000))

    def run(deadly: int) -> None:
        with durastore.open(url) as store:
            store.backend = Deadly(store.backend, Points(deadly))
            store.checkpoint("run", supersede=True).run_once(f"key-{deadly}", lambda: large)

    deadly = 1
    while ended(forked(partial(run, deadly))) != 0:
        with durastore.open(url) as store:
            outcome = store.checkpoint("run", supersede=True).run_once(f"key-{deadly}", lambda: large)
            assert outcome.value == large
        deadly += 1
    assert deadly >= 8
