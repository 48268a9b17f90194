"""The classic experiment on how often to save: a run of 1,000 steps, its worker killed at step 620, for several granularities.

Side by side: a plain loop that saves its progress now and then and does again what came after the last save; and durastore, that
commits each step, so that a resume reads what is done. Workers are processes, and die by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from durastore.bench.worker import Job, Mode
from durastore.errors import DurastoreError
from durastore.granularity import steps_between_saves

__all__ = ["EVERY", "Trial", "best", "trials"]

EVERY: tuple[int, ...] = (1, 5, 10, 25, 50, 100, 200, 500)
"""Steps between two saves."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run that was killed and resumed. Times in milliseconds.

    `store`: spent between effects over both lives, catching up left out. `redone`: effects that ran twice. `catching_up`:
    from the second worker's first look at the store to the first effect that was new. `saved_every` 0: durastore chose.
    """

    mode: Mode
    saved_every: int
    steps: int
    redone: int
    store: float
    catching_up: float
    total: float


class Effect(NamedTuple):
    """One line of a worker's log; times in seconds of its monotonic clock."""

    step: int
    began: float
    ended: float


class Life(NamedTuple):
    """What one worker did."""

    began: float
    effects: Sequence[Effect]

    def between(self) -> list[float]:
        """The time between two effects."""
        return [after.began - before.ended for before, after in pairwise(self.effects)]


def trials(
    url: str, every: Sequence[int | Literal["auto"]], *, steps: int, kill_at: int, seconds: float
) -> Iterator[Trial]:
    """Both ways for each granularity, ``"auto"`` durastore alone. `seconds`: how long one effect takes.

    Raises `DurastoreError` when a worker fails by itself.
    """
    for number, chosen in enumerate(every):
        modes: tuple[Mode, ...] = ("durastore",) if chosen == "auto" else ("progress", "durastore")
        for mode in modes:
            saved = 0 if chosen == "auto" else chosen
            yield _trial(url, Job(f"{mode}-{number}", mode, saved, steps, kill_at, seconds))


def _trial(url: str, job: Job) -> Trial:
    with tempfile.TemporaryDirectory(prefix="durastore-bench-") as folder:
        first = _life(url, job, Path(folder, "first"), killed=True)
        second = _life(url, job._replace(kill_at=-1), Path(folder, "second"), killed=False)
    new = next(effect for effect in second.effects if effect.step > job.kill_at)
    fresh = Life(second.began, [effect for effect in second.effects if effect.step > job.kill_at])
    in_store = sum(first.between()) + sum(fresh.between())
    catching_up = new.began - second.began
    redone = len(second.effects) - len(fresh.effects)
    return Trial(
        job.mode,
        job.every,
        job.steps,
        redone,
        round(in_store * 1000, 2),
        round(catching_up * 1000, 2),
        round((in_store + catching_up) * 1000, 2),
    )


def _life(url: str, job: Job, log: Path, *, killed: bool) -> Life:
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "durastore.bench.worker", *job.arguments(), str(log)],
        env={**os.environ, "DURASTORE_URL": url},
        capture_output=True,
        check=False,
    )
    if done.returncode != (-signal.SIGKILL if killed else 0):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise DurastoreError(f"a worker ended with {done.returncode}: {last[0]}")
    began, *lines = log.read_text().splitlines()
    effects = [Effect(int(step), float(start), float(end)) for step, start, end in map(str.split, lines)]
    return Life(float(began), effects)


def best(found: Sequence[Trial], *, kill_at: int, seconds: float) -> int:
    """Steps between two saves of the plain loop by the rule of Young and Daly, for what its saves cost here and one failure in
    `kill_at` steps.
    """
    finest = min((trial for trial in found if trial.mode == "progress"), key=lambda trial: trial.saved_every)
    save = finest.store / 1000 / (finest.steps / finest.saved_every)
    return steps_between_saves(save=save, step=seconds, redo=seconds, mtbf=kill_at * seconds)
