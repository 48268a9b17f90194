"""How often progress is saved: the rule, what is measured for it, and what it may not change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import durastore
from durastore.agent import run_agent
from durastore.contract import Granted
from durastore.granularity import EVERY_MAX, Granularity, steps_between_saves

from .virtual import Scripted, virtual

HOUR = 3600.0


def cost(steps: int, *, save: float, step: float, redo: float, mtbf: float) -> float:
    """Seconds per step in the mean: saving, and doing half of what lies between two saves again after a failure."""
    return save / steps + (step / mtbf) * (steps / 2) * redo


@pytest.mark.parametrize("save", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("step", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("redo", [0.02, 1.0])
@pytest.mark.parametrize("mtbf", [60.0, HOUR])
def test_no_other_number_costs_less(save: float, step: float, redo: float, mtbf: float) -> None:
    """The choice is the cheapest of all numbers of steps, or 1 by one of the two rules that say so."""
    terms = {"save": save, "step": step, "redo": redo, "mtbf": mtbf}
    chosen = steps_between_saves(**terms)
    best = min(range(1, EVERY_MAX + 1), key=lambda steps: cost(steps, **terms))
    if save < step / 100 or (best - 1) * save <= redo:
        assert chosen == 1
    else:
        assert cost(chosen, **terms) <= cost(best, **terms) * 1.02


def test_young() -> None:
    """Where redoing a step takes as long as it took, it is Young's ``sqrt(2 * save * mtbf)`` seconds."""
    chosen = steps_between_saves(save=2.0, step=1.0, redo=1.0, mtbf=HOUR)
    assert chosen == round(math.sqrt(2 * 2.0 * HOUR))


@pytest.mark.parametrize(
    ("save", "step", "redo", "why"),
    [
        (0.0, 1.0, 1.0, "saving is free"),
        (0.009, 1.0, 0.01, "a save takes less than a hundredth of a step"),
        (0.02, 1.0, 60.0, "a step that is redone costs more than all the saves avoided"),
        (1.0, 0.0, 1.0, "nothing is known of the step"),
    ],
)
def test_every_step(save: float, step: float, redo: float, why: str) -> None:
    """Progress is saved at every step where batching would gain nothing."""
    assert steps_between_saves(save=save, step=step, redo=redo, mtbf=60.0) == 1, why


class Slow:
    """Makes the calls of a store take virtual time."""

    def __init__(self, backend: Scripted, clock: Any, *, commit: float, progress: float) -> None:
        self._commit, self._clock, self._times = backend.commit, clock, (commit, progress)
        backend.commit = self.commit  # type: ignore[method-assign]
        self.saves: list[bool] = []

    def commit(self, *args: Any, **kwargs: Any) -> Granted | None:
        self.saves.append(kwargs.get("progress") is not None)
        self._clock.elapsed += self._times[0] + (self._times[1] if self.saves[-1] else 0.0)
        return self._commit(*args, **kwargs)


def saves(*, progress: float, effect: float, count: int = 400, every: Any = "auto") -> list[bool]:
    """For each commit of a run whether it carried progress; `progress` and `effect` are the seconds that they take."""
    store, backend, clock = virtual()
    slow = Slow(backend, clock, commit=0.01, progress=progress)

    def work(_item: int) -> None:
        clock.elapsed += effect

    ckpt = store.checkpoint("run")
    assert run_agent(range(count), ckpt, work, save_every=every).executed == count
    assert ckpt.load() == (count, {"processed": count})
    return slow.saves


def test_it_looks_first() -> None:
    """At first every other commit carries progress, so that there is something to compare."""
    assert saves(progress=0.02, effect=0.05)[:16] == [False, True] * 8


def test_it_saves_seldom_where_saves_cost() -> None:
    """A transaction that costs as much again as the commit, beside short steps: a few saves in hundreds of steps."""
    later = saves(progress=0.02, effect=0.05)[20:]
    assert sum(later) <= 3


def test_it_saves_always_where_saves_are_free() -> None:
    """Where progress rides in the commit for nothing, each step saves it."""
    assert all(saves(progress=0.0, effect=0.05)[20:])


def test_it_saves_always_beside_long_steps() -> None:
    """Where a step takes minutes, the few milliseconds of a save are not worth a lag."""
    assert all(saves(progress=0.02, effect=90.0, count=60)[20:])


def test_it_saves_oftener_where_workers_die_often() -> None:
    """The assumption about failures counts."""
    often = saves(progress=0.02, effect=0.05, every=Granularity(mtbf=5.0))
    assert sum(often) > 3 * sum(saves(progress=0.02, effect=0.05))


def inputs(count: int) -> Iterator[int]:
    yield from range(count)


@pytest.mark.parametrize("kind", [range, inputs])
def test_with_threads_and_generators(kind: Callable[[int], Sequence[int]]) -> None:
    """It is a way to save with `concurrency` too, and at the end all is saved."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    assert run_agent(kind(300), ckpt, lambda item: item, save_every="auto", concurrency=4).executed == 300
    assert ckpt.load() == (300, {"processed": 300})


@pytest.mark.parametrize("wrong", [0, -1, "often", 1.5, None])
def test_what_it_cannot_be(wrong: Any) -> None:
    """Anything else is refused before the first step."""
    store, _, _ = virtual()
    with pytest.raises(durastore.ConfigError, match="save_every is a number of steps, 1 or more, or 'auto'"):
        run_agent([1], store.checkpoint("run"), lambda item: item, save_every=wrong)
