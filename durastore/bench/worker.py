"""One life of a worker in the experiment on granularity: ``python -m durastore.bench.worker JOB… LOG``.

The store is the environment's, ``DURASTORE_URL``: command lines are there for all to see.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Literal, NamedTuple

from durastore.agent import run_agent
from durastore.store import open as open_store

__all__ = ["Job", "Mode"]

Mode = Literal["progress", "durastore"]


class Job(NamedTuple):
    """What to do; `every` 0 leaves it to durastore, `kill_at` -1 lets the worker live."""

    run_id: str
    mode: Mode
    every: int
    steps: int
    kill_at: int
    seconds: float

    def arguments(self) -> list[str]:
        """As a command line has them."""
        return list(map(str, self))

    @classmethod
    def of(cls, arguments: list[str]) -> Job:
        """What `arguments` made."""
        run_id, mode, every, steps, kill_at, seconds = arguments
        return cls(
            run_id,
            "progress" if mode == "progress" else "durastore",
            int(every),
            int(steps),
            int(kill_at),
            float(seconds),
        )


def work(job: Job, log: int) -> None:
    """Run, and note when it began and when each effect began and ended; die at once after the effect of step `kill_at`."""

    def effect(step: int) -> int:
        began = time.perf_counter()
        time.sleep(job.seconds)
        os.write(log, f"{step} {began} {time.perf_counter()}\n".encode())
        if step == job.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return step

    with open_store() as store:
        ckpt = store.checkpoint(job.run_id, supersede=True)
        os.write(log, f"{time.perf_counter()}\n".encode())
        if job.mode == "durastore":
            run_agent(range(job.steps), ckpt, effect, save_every=job.every or "auto")
            return
        for step in range(ckpt.load().step, job.steps):
            effect(step)
            if (step + 1) % job.every == 0 or step + 1 == job.steps:
                ckpt.save_progress(step + 1, {"processed": step + 1})


if __name__ == "__main__":
    *given, path = sys.argv[1:]
    work(Job.of(given), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
