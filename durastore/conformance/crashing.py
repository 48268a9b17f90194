"""CRASH: SIGKILL at every point of a run between two calls of its store and around each effect, enumerated, in each mode.

The n-th point for n = 1, 2, … until the run ends by itself; what was delivered is counted outside, and the resumed run keeps the
promise of its mode to the letter. In virtual time: nothing waits for a lease. A store that no other process can open has runs
that only play dead.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from durastore.conformance.harness import Harness
from durastore.conformance.lives import LAST, Life, Mode, Script, virtual_store
from durastore.conformance.marks import clause
from durastore.conformance.nursery import Nursery
from durastore.conformance.points import Died, Mortal, Outside
from durastore.conformance.userdata import UserData
from durastore.contract import Backend
from durastore.errors import InDoubt
from durastore.store import Store

__all__ = ["CrashClauses"]

POINTS_MIN, POINTS_MAX = 8, 60
HOUR = 3600.0
AT_ONCE = 4
"""Lives that are lived side by side."""
Lived = Callable[[Sequence[Life]], list[bool]]
"""Lives them; whether each died."""


@contextmanager
def _living(harness: Harness) -> Iterator[Lived]:
    if harness.url is None:
        yield lambda lives: [_play_dead(harness, life) for life in lives]
        return
    with Nursery() as nursery:

        def lived(lives: Sequence[Life]) -> list[bool]:
            codes = [nursery.wait(child) for child in [nursery.start(life) for life in lives]]
            assert set(codes) <= {0, -signal.SIGKILL}, "a run failed; its error is in the captured output"
            return [code != 0 for code in codes]

        yield lived


def _play_dead(harness: Harness, life: Life) -> bool:
    point = Mortal(life.target)
    try:
        Script(virtual_store(harness.open(), point), life, point).run()
    except Died:
        return True
    return False


def _enumerated(harness: Harness, mode: Mode) -> None:
    data = harness.user_data
    if mode == "transact" and data is None:
        pytest.skip("nobody says how effects write to this store (see durastore.conformance.UserData)")
    backend = harness.open()
    if data is not None and mode == "transact":
        data.prepare(backend)
    with _living(harness) as lived, TemporaryDirectory(prefix="durastore-") as folder:
        for first in range(1, POINTS_MAX, AT_ONCE):
            lives = [_life(harness, mode, Path(folder), target) for target in range(first, first + AT_ONCE)]
            died = lived(lives)
            for life in lives:
                _resume(backend, life)
                _adopt(life, data)
            if not all(died):
                assert first + sum(died) > POINTS_MIN, "the run has points"
                return
    raise AssertionError(f"a run of two steps has fewer than {POINTS_MAX} points")


def _life(harness: Harness, mode: Mode, folder: Path, target: int) -> Life:
    run_id = f"{mode}-{target}"
    data = harness.user_data if mode == "transact" else None
    return Life(harness.url or "", mode, run_id, folder / run_id, data, target)


def _adopt(life: Life, data: UserData | None) -> None:
    """Rows that another process wrote are removed with our own, where the `UserData` can."""
    adopt = getattr(data, "adopt", None)
    if adopt is not None and life.mode == "transact":
        adopt(Outside(life.outside).count())


class _Seen:
    """What a run left: which of its keys are committed, and what was delivered."""

    def __init__(self, script: Script, store: Store) -> None:
        self.delivered = script.delivered(store.backend)
        found = {key: store.record(key) for key in script.life.keys}
        self.states = {key: record.state for key, record in found.items() if record is not None}
        self.results = {key: record.result for key, record in found.items() if record is not None}
        self.committed = {key for key, state in self.states.items() if state == "committed"}


def _resume(backend: Backend, life: Life) -> None:
    """Look at what the dead run left, resume it when its lease has lapsed, and hold it to its promise."""
    store = virtual_store(backend, elapsed=HOUR)
    script = Script(store, life)
    before, progress = _Seen(script, store), script.ckpt.load()
    where = f"{life.mode}, killed at point {life.target}"
    assert all(before.delivered[key] for key in before.committed), f"{where}: committed without its effect"
    assert progress.step in (LAST, len(before.committed)), f"{where}: the result and its progress are not one"
    if life.mode == "transact":
        assert set(before.delivered) == before.committed, f"{where}: the row and the mark are not one"
    if life.mode == "halt":
        _settle(store, script, before, where)
    script.run()
    _check(_Seen(script, store), before, script, where)
    assert script.ckpt.load() == (LAST, {"end": True}), where


def _settle(store: Store, script: Script, before: _Seen, where: str) -> None:
    """A key whose holder vanished runs for nobody, until somebody who looked outside says how it stands."""
    for key in set(before.states) - before.committed:
        with pytest.raises(InDoubt):
            script.run()
        assert script.delivered(store.backend) == before.delivered, f"{where}: it ran although it is in doubt"
        if before.delivered[key]:
            store.resolve(key, result={"did": key})
        else:
            store.resolve(key, retry=True)


def _check(after: _Seen, before: _Seen, script: Script, where: str) -> None:
    keys = script.life.keys
    assert after.results == {key: {"did": key} for key in keys}, where
    assert after.committed == set(keys), where
    doubtful = set(before.delivered) - before.committed
    twice = doubtful if script.life.mode == "rerun" else set()
    assert after.delivered == Counter(keys) + Counter(twice), f"{where}: delivered more or less than promised"
    asked = set(before.states) - before.committed if script.life.mode == "probe" else set()
    assert set(script.probed) == asked, f"{where}: the probe is asked about what is in doubt, and nothing else"


class CrashClauses:
    """One test for each CRASH clause."""

    @clause("CRASH-1")
    def test_crash_1_rerun(self, harness: Harness) -> None:
        """Every effect at least once; twice only the one during which the process died."""
        _enumerated(harness, "rerun")

    @clause("CRASH-2")
    def test_crash_2_halt(self, harness: Harness) -> None:
        """Every effect at most once; what is in doubt runs for nobody until it is resolved."""
        _enumerated(harness, "halt")

    @clause("CRASH-3")
    def test_crash_3_probe(self, harness: Harness) -> None:
        """Every effect exactly once, by asking the receiver about what is in doubt."""
        _enumerated(harness, "probe")

    @clause("CRASH-4")
    def test_crash_4_transact(self, harness: Harness) -> None:
        """Every row exactly once, with its mark, its result and its progress."""
        _enumerated(harness, "transact")
