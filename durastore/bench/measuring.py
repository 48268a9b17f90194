"""What each kind of step costs, sampled in blocks that take turns with the raw driver's, in one process and one run."""

from __future__ import annotations

import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Protocol

from durastore import urls
from durastore.agent import run_agent
from durastore.bench.floors import Floor, floor, new_table, remove_file
from durastore.store import Store

__all__ = ["FLOOR", "Report", "Row", "disposable", "kinds_of", "measure"]

BLOCK = 25
"""Samples of one kind, before the next kind has its turn."""
CONCURRENCY = 16
WARM_UP_WRITES = 1500
WARM_UP_BLOCKS = 40
"""Past the first checkpoint of SQLite's write-ahead log, after which each write costs more: until then, anything looks fast."""
FLOOR = "one durable write by the raw driver"


class Tell(Protocol):
    """Called with what is under way, and how far it is."""

    def __call__(self, part: str, text: str = "") -> None: ...


def _silent(part: str, text: str = "") -> None:
    """For callers that need no progress."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of step. `median` and `p95` in microseconds; `floors`: the median in medians of `FLOOR`."""

    name: str
    median: float
    p95: float
    floors: float
    samples: int


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, and where. `warmed_up`: whether everything had been done so often before that it costs as always."""

    store: str
    python: str
    machine: str
    cpus: int
    steps: int
    replayed: int
    warmed_up: bool
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Report:
        """Raises `TypeError` for what is no report."""
        return cls(**{**found, "rows": tuple(Row(**row) for row in found["rows"])})


def measure(url: str | None, *, steps: int, replayed: int, warm_up: bool, tell: Tell = _silent) -> Report:
    """Measure a store. Works in a namespace and a table of its own, which are removed whatever happens.

    `steps`: samples of each kind, in full blocks of 25. `replayed`: finished steps that a resume finds. Raises `ConfigError`,
    and what the store's calls raise.
    """
    with disposable(url, tell) as (store, raw, _url):
        kinds = kinds_of(store, raw, replayed)
        _warm_up(kinds, raw, tell, thorough=warm_up)
        samples: dict[str, list[float]] = {name: [] for name in kinds}
        for done in range(0, steps, BLOCK):
            tell("measuring", f": {done} of {steps} samples of each kind")
            for name, kind in kinds.items():
                samples[name] += next(kind)
    unit = statistics.median(samples[FLOOR])
    return Report(
        store=raw.version,
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        cpus=_cpus(),
        steps=steps,
        replayed=replayed,
        warmed_up=warm_up,
        rows=tuple(_row(name, values, unit) for name, values in samples.items()),
    )


def _cpus() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def disposable(url: str | None, tell: Tell) -> Iterator[tuple[Store, Floor, str]]:
    """A store for one benchmark, its floor, and its URL; nothing of them is left at the end.

    No URL: a SQLite file in a new folder. A SQLite URL: a new file beside that one. Others: a namespace of that store.
    """
    with tempfile.TemporaryDirectory(prefix="durastore-bench-") as folder:
        table = new_table()
        parsed = replace(urls.parse(url or f"sqlite:///{folder}/bench.db"), namespace=table[-40:])
        is_file = parsed.scheme == "sqlite"
        if is_file:
            parsed = replace(parsed, address=f"{parsed.address}.{table}.db")
        raw = floor(_spelled(parsed), table)
        try:
            with Store(urls.connect(parsed), url=str(parsed)) as store:
                if is_file:
                    store.setup()
                try:
                    yield store, raw, _spelled(parsed)
                finally:
                    if not is_file:
                        _remove(store, tell)
        finally:
            raw.close()
            if is_file:
                remove_file(Path(parsed.path.removeprefix("/")))


def _spelled(url: urls.StoreURL) -> str:
    """The whole URL, with what `str` leaves out."""
    from urllib.parse import urlencode

    return f"{url.scheme}://{url.address}?{urlencode({'namespace': url.namespace, **url.options})}"


def _remove(store: Store, tell: Tell) -> None:
    """Forget all runs and keys of the namespace."""
    for done, record in enumerate(list(store.records())):
        if done % BLOCK == 0:
            tell("cleaning up", f": {done} keys forgotten")
        store.forget(record.key, force=True)
    for run in list(store.runs()):
        store.forget_run(run.run_id, force=True)


Kind = Iterator[list[float]]
"""Yields blocks of timings, in seconds."""


def kinds_of(store: Store, raw: Floor, replayed: int) -> dict[str, Kind]:
    """All kinds by name, the floor first."""
    return {
        FLOOR: _each(raw.write),
        "one read by primary key, by the raw driver": _each(raw.read),
        "run_once, executed": _each(_once(store)),
        "run_once, skipped": _each(_skipped(store)),
        "run_agent over a list": _agent(store, "list", fused=True),
        "run_agent over a generator": _agent(store, "generator", fused=False),
        f"run_agent, concurrency={CONCURRENCY}": _side_by_side(store),
        "run_agent, replayed": _replayed(store, replayed),
    }


def _warm_up(kinds: dict[str, Kind], raw: Floor, tell: Tell, *, thorough: bool) -> None:
    """A block of each kind; when `thorough`, as much of all that writes as it takes to be in the steady state."""
    if thorough:
        for done in range(WARM_UP_WRITES):
            if done % BLOCK == 0:
                tell("warming up", f": {done} of {WARM_UP_WRITES} raw writes")
            raw.write()
    for name, kind in kinds.items():
        blocks = WARM_UP_BLOCKS if thorough and name in ("run_once, executed", "run_agent over a list") else 1
        tell("warming up", f": {name}")
        for _ in range(blocks):
            next(kind)


def _row(name: str, values: list[float], unit: float) -> Row:
    median = statistics.median(values)
    p95 = statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else median
    return Row(name, round(median * 1e6, 1), round(p95 * 1e6, 1), round(median / unit, 3), len(values))


def _each(function: Callable[[], object]) -> Kind:
    """Blocks of single timings."""
    while True:
        block = []
        for _ in range(BLOCK):
            began = time.perf_counter()
            function()
            block.append(time.perf_counter() - began)
        yield block


def _effect(_item: Any = None) -> dict[str, bool]:
    return {"ok": True}


def _once(store: Store) -> Callable[[], object]:
    ckpt = store.checkpoint("once")
    numbers = count()
    return lambda: ckpt.run_once(f"once-{next(numbers)}", _effect)


def _skipped(store: Store) -> Callable[[], object]:
    ckpt = store.checkpoint("skipped")
    ckpt.run_once("skipped", _effect)
    return lambda: ckpt.run_once("skipped", _effect)


def _agent(store: Store, name: str, *, fused: bool) -> Kind:
    """Blocks of the time between two steps of a run, its first and last left out."""
    for number in count():
        ends: list[float] = []
        items = list(range(BLOCK + 2))
        run_agent(
            items if fused else iter(items),
            store.checkpoint(f"{name}-{number}"),
            _effect,
            on_step=lambda _step, _outcome, ends=ends: ends.append(time.perf_counter()),  # type: ignore[misc]  # a default
        )
        yield [after - before for before, after in pairwise(ends[:-1])]


def _side_by_side(store: Store) -> Kind:
    """One timing a block: a run of many steps whose threads start and end with it, per step."""
    items = list(range(BLOCK * CONCURRENCY))
    for number in count():
        ckpt = store.checkpoint(f"side-by-side-{number}")
        began = time.perf_counter()
        run_agent(items, ckpt, _effect, concurrency=CONCURRENCY)
        yield [(time.perf_counter() - began) / len(items)]


def _replayed(store: Store, keys: int) -> Kind:
    """One timing a block: a resume whose progress lags behind all its keys, per key."""
    items = list(range(keys))
    ckpt = store.checkpoint("replayed")
    run_agent(items, ckpt, _effect, concurrency=CONCURRENCY)
    while True:
        ckpt.reset()
        began = time.perf_counter()
        summary = run_agent(items, ckpt, _effect)
        if summary.skipped != keys:
            sys.exit(f"durastore: {keys - summary.skipped} steps ran again")
        yield [(time.perf_counter() - began) / keys]
