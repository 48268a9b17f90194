"""``python -m tests.bench.scale [URL]``: many processes on one store, many keys in it, and many steps in one run.

Three questions, each answered as a ratio inside one run: do 8 processes share a store fairly, and what part of the raw driver's
throughput do they reach; what do claim and skip cost at 100,000 keys against 1,000; does the memory of a run over a generator
grow with its steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import durastore
from durastore.bench.floors import floor, new_table

PROCESSES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long the processes race")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="durastore-bench-") as folder:
        url = options.url or f"sqlite:///{folder}/bench.db"
        with durastore.open(url, create=True):
            pass
        table = new_table()
        owned = floor(url, table)
        raw = race(partial(_raw, table=table), url, options.seconds)
        owned.close()
        found = {
            "processes": _shares(race(_steps, url, options.seconds), raw),
            "keys": keys(url, options.keys),
            "memory": memory(url, options.steps),
        }
    json.dump(found, sys.stdout, indent=2)
    print()


def race(work: Callable[[str, int, float, Connection], None], url: str, seconds: float) -> list[int]:
    """How many writes each of the processes made in the same time. Raises when one of them failed."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(PROCESSES)]
    workers = [
        context.Process(target=work, args=(url, number, seconds, child)) for number, (_, child) in enumerate(pipes, 1)
    ]
    for worker in workers:
        worker.start()
    for parent, _ in pipes:
        parent.recv()  # ready
    for parent, _ in pipes:
        parent.send("go")
    counts = [parent.recv() for parent, _ in pipes]
    for worker in workers:
        worker.join()
    failed = [count for count in counts if isinstance(count, str)]
    if failed:
        raise RuntimeError(f"{len(failed)} of {PROCESSES} processes failed: {failed[0]}")
    return counts


class _Over(Exception):
    """The time is over."""


def _steps(url: str, _worker: int, seconds: float, pipe: Connection) -> None:
    """Steps of a run over a list, each with its progress."""
    ends = math.inf

    def effect(_item: int) -> dict[str, bool]:
        if time.monotonic() > ends:
            raise _Over
        return {"ok": True}

    with durastore.open(url, namespace="race") as store:
        pipe.send("ready")
        pipe.recv()
        ends = time.monotonic() + seconds
        ckpt = store.checkpoint(f"run-{time.time_ns()}-{_worker}")
        try:
            with contextlib.suppress(_Over):
                durastore.run_agent(range(sys.maxsize), ckpt, effect)
        except Exception as exc:  # the parent raises it
            pipe.send(f"{type(exc).__name__}: {exc}")
        else:
            pipe.send(ckpt.stats.executed)


def _raw(url: str, worker: int, seconds: float, pipe: Connection, *, table: str) -> None:
    raw = floor(url, table, worker)
    _timed(raw.write, seconds, pipe)
    raw.close()


def _timed(step: Callable[[], Any], seconds: float, pipe: Connection) -> None:
    pipe.send("ready")
    pipe.recv()
    ends = time.monotonic() + seconds
    count = 0
    try:
        while time.monotonic() < ends:
            step()
            count += 1
    except Exception as exc:  # the parent raises it
        pipe.send(f"{type(exc).__name__}: {exc}")
    else:
        pipe.send(count)


def _shares(counts: list[int], raw: list[int]) -> dict[str, Any]:
    return {
        "steps": counts,
        "floor_steps": raw,
        "part_of_floor": round(sum(counts) / sum(raw), 3),
        "slowest_by_mean": round(min(counts) / statistics.mean(counts), 3),
    }


def keys(url: str, many: int) -> dict[str, float]:
    """What a claim with its commit and a skip cost with `many` keys in the store, against 1,000."""
    with durastore.open(url, namespace="keys") as store:
        ckpt = store.checkpoint("keys")
        before = _costs(ckpt, 0, 1000)
        durastore.run_agent(range(1000, many), ckpt, lambda item: item)
        after = _costs(ckpt, many, 1000)
    return {name: round(after[name] / before[name], 3) for name in before} | {"keys": many}


def _costs(ckpt: durastore.Checkpoint, first: int, count: int) -> dict[str, float]:
    spans: dict[str, list[float]] = {"executed": [], "skipped": []}
    for number in range(first, first + count):
        for status, span in spans.items():
            began = time.perf_counter()
            assert ckpt.run_once(f"key-{number}", lambda: 1).status == status
            span.append(time.perf_counter() - began)
    return {status: statistics.median(span) for status, span in spans.items()}


def memory(url: str, steps: int) -> dict[str, float]:
    """Peak memory after a tenth of the steps, and how much it grew until the last."""
    peaks: dict[int, int] = {}

    def note(step: int, _outcome: Any) -> None:
        if step + 1 in (steps // 10, steps):
            peaks[step + 1] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with durastore.open(url, namespace="memory") as store:
        durastore.run_agent((n for n in range(steps)), store.checkpoint("memory"), lambda item: item, on_step=note)
    first, last = peaks[steps // 10], peaks[steps]
    return {"steps": steps, "peak_mib": round(last / 1024, 1), "grown_mib": round((last - first) / 1024, 1)}


if __name__ == "__main__":
    main()
