"""The demo itself: for each mode, workers one after the other under the same schedule of kills, and the count at the end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import durastore
from durastore.demo import rows
from durastore.demo.schedule import Kill, draw
from durastore.demo.worker import MODES, Job, Mode, encode, sources
from durastore.demo.world import World
from durastore.errors import DurastoreError

__all__ = ["Row", "broken", "run"]


@dataclass(frozen=True, slots=True)
class Row:
    """What one mode came to. `duplicates`: deliveries of a key beyond its first; `lost`: steps never delivered; `redone`: effects
    begun again.
    """

    mode: Mode
    steps: int
    kills: int
    deliveries: int
    duplicates: int
    lost: int
    redone: int
    seconds: float


Tell = Callable[[Mode, int, int], None]
"""Called with the mode, how many kills have been, and how many there will be."""


def run(url: str, folder: Path, *, seed: int, kills: int, limit: int, tell: Tell) -> Iterator[Row]:
    """The rows, mode by mode. Raises `DurastoreError` for a store that does not work, or a worker that fails by itself."""
    steps = len(sources(limit))
    schedule = draw(seed, kills, steps)
    with durastore.open(url, create=True) as store:
        rows.prepare(store)
        for mode in MODES:
            yield _run_mode(mode, store, url, folder, schedule, limit, tell)


def _run_mode(
    mode: Mode, store: durastore.Store, url: str, folder: Path, schedule: list[Kill], limit: int, tell: Tell
) -> Row:
    name = f"demo-{time.time_ns()}-{mode}"
    began = time.monotonic()
    begun = 0
    with World(folder / f"{name}.jsonl") as world:
        for number, kill in enumerate([*schedule, None]):
            tell(mode, number, len(schedule))
            plan = None if kill is None else (kill.effect, kill.point)
            begun += _work(Job(mode, url, name, world.port, limit, plan), must_die=kill is not None)
        seconds = time.monotonic() - began
        delivered = rows.keys(store, name) if mode == "transact" else world.deliveries()
    return _count(mode, len(sources(limit)), len(schedule), delivered, begun, seconds)


def _count(mode: Mode, steps: int, kills: int, delivered: list[str], begun: int, seconds: float) -> Row:
    found = Counter(delivered)
    return Row(
        mode=mode,
        steps=steps,
        kills=kills,
        deliveries=len(delivered),
        duplicates=len(delivered) - len(found),
        lost=steps - len(found),
        redone=begun - steps,
        seconds=round(seconds, 2),
    )


def _work(job: Job, *, must_die: bool) -> int:
    """Run a worker to its end, by itself or by SIGKILL; returns how many effects it began."""
    command = [sys.executable, "-m", "durastore.demo.worker"]
    pipe = subprocess.PIPE
    worker = subprocess.Popen(  # noqa: S603  ourselves; a session of its own, since Ctrl-C is for its parent to handle
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        with suppress(BrokenPipeError):
            worker.stdin.write(encode(job) + "\n")
            worker.stdin.flush()
        said = worker.stdout.readline()
        if not said:
            _, errors = worker.communicate()
            raise DurastoreError(f"a worker of the demo failed by itself: {(errors.splitlines() or ['no word'])[-1]}")
    finally:
        worker.kill()
        worker.wait()
        for stream in (worker.stdin, worker.stdout, worker.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
    answer = json.loads(said)
    if must_die and "at" not in answer:
        raise DurastoreError(f"the schedule's kill was never reached in mode {job.mode}: more steps, or fewer kills")
    return int(answer["begun"])


def broken(row: Row) -> str | None:
    """The promise that a row breaks, in words; None for none."""
    if row.lost and row.mode != "naive":
        return f"{row.mode}: {row.lost} steps were lost"
    if row.mode == "rerun" and row.duplicates > row.kills:
        return f"rerun: {row.duplicates} duplicates for {row.kills} kills, more than one each"
    if row.mode in ("probe", "transact") and row.duplicates:
        return f"{row.mode}: {row.duplicates} duplicates"
    return None
