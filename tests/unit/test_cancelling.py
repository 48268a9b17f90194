"""durastore.aio cancelled at every await, enumerated: nothing stuck, nothing double, nothing lost, nothing left behind.

A point is a place where the task, or a task of its own, lets the event loop go on. The n-th is cancelled for n = 1, 2, … until
the work ends by itself: as it begins to wait, as what it waits for is just done, and twice in a row.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import aio
from tests.unit.virtual import open_files

KEYS = ["a", "b", "c"]
POINTS_MAX = 150
TIMINGS = ("as it waits", "as it is done", "twice")


class Points:
    """Cancels a task at the n-th await of it and of what runs for it."""

    def __init__(self, point: int, timing: str) -> None:
        self._point, self._timing = point, timing
        self._task: asyncio.Task[Any] | None = None
        self.passed = 0

    def around(self, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """The same, watched."""

        async def watched() -> Any:
            self._task = self._task or asyncio.current_task()
            return await _Watched(coroutine, self._arrive)

        return watched()

    def _arrive(self, waits_for: Any) -> None:
        self.passed += 1
        assert self._task is not None
        if self.passed == self._point:
            if self._timing == "as it is done" and waits_for is not None:
                waits_for.add_done_callback(self._cancel)
            else:
                self._task.cancel()
        elif self._timing == "twice" and self.passed == self._point + 1:
            self._task.cancel()

    def _cancel(self, _: Any) -> None:
        assert self._task is not None
        self._task.cancel()


class _Watched:
    def __init__(self, coroutine: Coroutine[Any, Any, Any], arrive: Callable[[Any], None]) -> None:
        self._coroutine, self._arrive = coroutine, arrive

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, error = self._coroutine.__await__(), None
        while True:
            try:
                waits_for = next(steps) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            self._arrive(waits_for)
            try:
                error = None
                yield waits_for
            except BaseException as exc:
                error = exc


class Watching:
    """A backend that knows which verbs are under way."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.under_way: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if name not in ("claim", "commit", "abandon", "save", "transact"):
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            self._count(name, 1)
            try:
                return found(*args, **kwargs)
            finally:
                self._count(name, -1)

        return verb

    def _count(self, name: str, by: int) -> None:
        with self._lock:
            self.under_way[name] += by


class World:
    """What happened outside, once for each delivery."""

    def __init__(self, kind: str) -> None:
        self.delivered: Counter[str] = Counter()
        self._kind = kind

    def effect(self, key: str) -> Callable[[], Any]:
        async def coroutine() -> str:
            await asyncio.sleep(0)
            return self.deliver(key)

        return coroutine if self._kind == "coroutine" else lambda: self.deliver(key)

    def model(self) -> Callable[[str], Any]:
        async def coroutine(key: str) -> str:
            await asyncio.sleep(0)
            return self.deliver(key)

        return coroutine if self._kind == "coroutine" else self.deliver

    def deliver(self, key: str) -> str:
        self.delivered[key] += 1
        return f"done {key}"


Work = Callable[[aio.Checkpoint, World], Awaitable[Any]]


async def run_once(ckpt: aio.Checkpoint, world: World) -> None:
    for step, key in enumerate(KEYS, 1):
        await ckpt.run_once(key, world.effect(key), progress=(step, {}))


async def transact(ckpt: aio.Checkpoint, world: World) -> None:
    def effect(tx: Any, key: str) -> str:
        assert tx is not None
        return world.deliver(key)

    for step, key in enumerate(KEYS, 1):
        await ckpt.transact(key, lambda tx, key=key: effect(tx, key), progress=(step, {}))


async def claim(ckpt: aio.Checkpoint, world: World) -> None:
    for step, key in enumerate(KEYS, 1):
        async with ckpt.claim(key) as claim:
            if claim.outcome is None:
                await asyncio.sleep(0)
                await claim.commit(world.deliver(key), progress=(step, {}))
            await asyncio.sleep(0)


async def _inputs() -> AsyncIterator[str]:
    for key in KEYS:
        await asyncio.sleep(0)
        yield key


async def _noted(*_: Any) -> None:
    await asyncio.sleep(0)


async def run_agent(ckpt: aio.Checkpoint, world: World) -> None:
    await aio.run_agent(KEYS, ckpt, world.model(), key=str, on_step=_noted)


async def run_agent_on_async_inputs(ckpt: aio.Checkpoint, world: World) -> None:
    await aio.run_agent(_inputs(), ckpt, world.model(), key=str)


async def run_agent_side_by_side(ckpt: aio.Checkpoint, world: World) -> None:
    await aio.run_agent(KEYS, ckpt, world.model(), key=str, concurrency=2, on_step=_noted)


async def run_agent_side_by_side_on_async_inputs(ckpt: aio.Checkpoint, world: World) -> None:
    await aio.run_agent(_inputs(), ckpt, world.model(), key=str, concurrency=2, on_step=_noted)


WORKS: dict[str, Work] = {
    "run_once": run_once,
    "transact": transact,
    "claim": claim,
    "run_agent": run_agent,
    "run_agent, async inputs": run_agent_on_async_inputs,
    "run_agent, concurrency 2": run_agent_side_by_side,
    "run_agent, concurrency 2, async inputs": run_agent_side_by_side_on_async_inputs,
}
CASES = [(work, kind) for work in WORKS for kind in ("coroutine", "thread") if kind == "coroutine" or "run" in work]


async def cancelled_at(point: int, timing: str, work: Work, kind: str, url: str) -> bool:
    """Whether there was such a point. What is left behind is looked at as it is, then the work is resumed."""
    others = asyncio.all_tasks()
    where, world, points = f"point {point}, {timing}", World(kind), Points(point, timing)
    sync = durastore.open(url)
    backend = sync.backend = Watching(sync.backend)
    store = aio.Store(sync)
    drive = store.driver.drive
    store.driver.drive = lambda steps: points.around(drive(steps))  # type: ignore[method-assign]  # tasks of its own too
    ckpt = await store.checkpoint("run", lease=3600)
    task = asyncio.create_task(points.around(work(ckpt, world)))
    try:
        await task
        ended = "by itself"
    except asyncio.CancelledError:
        ended = "cancelled"
    assert +backend.under_way == {}, f"{where}: the store is still being called"
    assert asyncio.all_tasks() == others, f"{where}: a task is left behind"
    store.driver.drive = drive  # type: ignore[method-assign]
    assert store.leases().held == 0, f"{where}: a claim is kept alive for nobody"
    records = {key: await store.record(key) for key in KEYS}
    states = {key: record.state for key, record in records.items() if record is not None}
    assert set(states.values()) <= {"abandoned", "committed"}, f"{where}: {states}"
    done = [key for key in KEYS if states.get(key) == "committed"]
    assert world.delivered == Counter(done), f"{where}: what was done is committed, and nothing else"
    step = (await ckpt.load()).step
    assert done[:step] == KEYS[:step], f"{where}: progress beyond what is done"
    if work in (run_once, transact, claim):
        assert step == len(done), f"{where}: the result and its progress are not one"
    assert store.stats.lost == 0, f"{where}: nobody took over"
    if ended == "by itself":
        assert done == KEYS, where
    await work(ckpt, world)
    assert world.delivered == Counter(KEYS), f"{where}: resumed, and {dict(world.delivered)}"
    assert (await ckpt.load()).step == len(KEYS), where
    assert [(await store.record(key)).result for key in KEYS] == [f"done {key}" for key in KEYS]  # type: ignore[union-attr]
    await store.close()
    return points.passed >= point


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize(("work", "kind"), CASES)
def test_at_every_await(work: str, kind: str, timing: str) -> None:
    """Keys are given back or committed, each effect is done once, its result kept, progress fits, calls and tasks are over."""
    assert enumerated(timing, WORKS[work], kind) > 2 * len(KEYS), "a claim and a commit for each key"


@pytest.mark.parametrize("work", WORKS)
def test_with_connections(work: str, tmp_path: Path) -> None:
    """The same where a cancelled call has a connection and a transaction: when the store is closed, no file is open any more."""
    path = tmp_path / "agent.db"
    assert enumerated("as it waits", WORKS[work], "coroutine", f"sqlite:///{path}?namespace={{}}") > 2 * len(KEYS)
    assert path.exists()
    assert [name for name in open_files() if name.startswith(str(path))] == []


def enumerated(timing: str, work: Work, kind: str, url: str = "memory://") -> int:
    """How many points there are. Each has a store of its own."""

    async def main() -> int:
        point = 1
        while await cancelled_at(point, timing, work, kind, url.format(point)):
            point += 1
            assert point < POINTS_MAX
        return point

    return asyncio.run(asyncio.wait_for(main(), 120))
