"""``python -m tests.bench [URL]``: what a step costs, in floors of the raw driver taken in the same run.

Everything is sampled in blocks of 25, interleaved with the floor, in one process and one thread, with an effect that does
nothing; medians and 95th percentiles. Without a URL: a SQLite file in a new directory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import durastore

from .floors import floor

BLOCK = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--steps", type=int, default=1050, help="samples of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="durastore-bench-") as folder:
        url = options.url or f"sqlite:///{folder}/bench.db"
        rows = measure(url, options.steps)
    if options.json:
        json.dump({"url": url.partition("?")[0], "steps": options.steps, "rows": rows}, sys.stdout)
        return
    print(f"{'':34}{'median µs':>10}{'p95 µs':>10}{'floors':>8}")
    for row in rows:
        print(f"{row['name']:34}{row['median']:10.0f}{row['p95']:10.0f}{row['floors']:8.2f}")


def measure(url: str, steps: int) -> list[dict[str, Any]]:
    """The rows of the table: name, median and p95 in microseconds, and the median in floors."""
    write, read, close = floor(url)
    samples: dict[str, list[float]] = {}
    with durastore.open(url, namespace=f"bench-{time.time_ns()}", create=True) as store:
        kinds = {
            "floor: one durable write": _each(write),
            "raw read by primary key": _each(read),
            "run_once, executed": _each(_once(store)),
            "run_once, skipped": _each(_skipped(store)),
            "run_agent, executed, per step": _agent(store, "agent", fused=True),
            "run_agent over a generator": _agent(store, "generator", fused=False),
            "run_agent, replayed, per step": _replayed(store),
        }
        for name, kind in kinds.items():  # the first block warms up
            next(kind)
            samples[name] = []
        for _ in range(0, steps, BLOCK):
            for name, kind in kinds.items():
                samples[name] += next(kind)
    close()
    unit = statistics.median(samples["floor: one durable write"])
    return [_row(name, values, unit) for name, values in samples.items()]


def _row(name: str, values: list[float], unit: float) -> dict[str, Any]:
    median = statistics.median(values)
    p95 = statistics.quantiles(values, n=20)[-1]
    return {"name": name, "median": median * 1e6, "p95": p95 * 1e6, "floors": median / unit}


def _each(function: Callable[[], Any]) -> Iterator[list[float]]:
    """Blocks of single timings."""
    while True:
        block = []
        for _ in range(BLOCK):
            began = time.perf_counter()
            function()
            block.append(time.perf_counter() - began)
        yield block


def _once(store: durastore.Store) -> Callable[[], Any]:
    ckpt = store.checkpoint("once")
    numbers = iter(range(sys.maxsize))
    return lambda: ckpt.run_once(f"once-{next(numbers)}", _effect)


def _effect(_item: Any = None) -> dict[str, bool]:
    return {"ok": True}


def _skipped(store: durastore.Store) -> Callable[[], Any]:
    ckpt = store.checkpoint("skipped")
    ckpt.run_once("skipped", _effect)
    return lambda: ckpt.run_once("skipped", _effect)


def _agent(store: durastore.Store, name: str, *, fused: bool) -> Iterator[list[float]]:
    """Blocks of the time between two steps of a run, its first and last left out."""
    for number in range(sys.maxsize):
        ends: list[float] = []
        items = list(range(BLOCK + 2))
        durastore.run_agent(
            items if fused else iter(items),
            store.checkpoint(f"{name}-{number}"),
            _effect,
            on_step=lambda _step, _outcome, ends=ends: ends.append(time.perf_counter()),
        )
        yield [after - before for before, after in pairwise(ends[:-1])]


def _replayed(store: durastore.Store, keys: int = 1000) -> Iterator[list[float]]:
    """One timing a block: a resume whose progress lags behind all its keys, per key."""
    items = list(range(keys))
    ckpt = store.checkpoint("replayed")
    durastore.run_agent(items, ckpt, _effect)
    while True:
        ckpt.reset()
        began = time.perf_counter()
        summary = durastore.run_agent(items, ckpt, _effect)
        assert summary.skipped == keys
        yield [(time.perf_counter() - began) / keys]


if __name__ == "__main__":
    main()
