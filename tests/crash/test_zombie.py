"""SIGSTOP past the lease in each phase, takeover by another process, SIGCONT: the zombie changes nothing, and is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import durastore
from tests.crash.killing import Deadly, ended, forked, wait_for

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
