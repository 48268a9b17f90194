"""Blocks of timings, each of which makes sure that the peer did what it is timed for."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

from durastore.bench.measuring import BLOCK, Kind

__all__ = ["BLOCK", "RESULT", "Effect", "Kind", "between", "each", "each_awaited", "whole"]

RESULT = {"ok": True}
REPLAYED = 1000
"""Finished steps that a replay of a whole run goes through."""


class Effect:
    """The step that everybody runs: it does nothing, and counts how often."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, *_: Any, **__: Any) -> dict[str, bool]:
        self.runs += 1
        return RESULT


class _Watched:
    """Raises when a block ran the effect more or less often than it should have."""

    def __init__(self, effect: Effect, expected: int) -> None:
        self._effect, self._expected = effect, expected

    def __enter__(self) -> None:
        self._before = self._effect.runs

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        runs = self._effect.runs - self._before
        if failure is None and runs != self._expected:
            raise RuntimeError(f"the effect ran {runs} times in a block that runs it {self._expected} times")


def each(call: Callable[[], object], effect: Effect, *, executed: bool) -> Kind:
    """Blocks of single timings of `call`."""
    while True:
        block = []
        with _Watched(effect, BLOCK * executed):
            for _ in range(BLOCK):
                began = time.perf_counter()
                call()
                block.append(time.perf_counter() - began)
        yield block


def each_awaited(
    run: Callable[[Awaitable[list[float]]], list[float]],
    call: Callable[[], Awaitable[object]],
    effect: Effect,
    *,
    executed: bool,
) -> Kind:
    """The same for an asynchronous `call`; `run` runs a block in the peer's event loop."""

    async def one_block() -> list[float]:
        block = []
        for _ in range(BLOCK):
            began = time.perf_counter()
            await call()
            block.append(time.perf_counter() - began)
        return block

    while True:
        with _Watched(effect, BLOCK * executed):
            block = run(one_block())
        yield block


def between(run: Callable[[int, Callable[[], None]], object], effect: Effect) -> Kind:
    """Blocks of the time between two steps of a run, its first and last left out.

    `run` gets the number of steps, and what to call after each.
    """
    while True:
        ends: list[float] = []
        with _Watched(effect, BLOCK + 2):
            run(BLOCK + 2, lambda ends=ends: ends.append(time.perf_counter()))
        yield [after - before for before, after in pairwise(ends[:-1])]


def whole(run: Callable[[], float], effect: Effect) -> Kind:
    """One timing a block: a replay of `REPLAYED` steps, per step. `run` returns the seconds that it took."""
    while True:
        with _Watched(effect, 0):
            seconds = run()
        yield [seconds / REPLAYED]


def numbered(name: str) -> Iterator[str]:
    """Keys that nobody has used."""
    number = 0
    while True:
        yield f"{name}-{number}"
        number += 1
