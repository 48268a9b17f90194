"""`run_agent`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from durastore import agent
from durastore.agent import OnStep, Plan, SaveEvery, Source, Summary, Window
from durastore.aio.checkpoint import Checkpoint
from durastore.aio.driving import settled
from durastore.terms import Outcome

__all__ = ["run_agent"]

I = TypeVar("I")  # noqa: E741  an input item


async def run_agent(
    inputs: Iterable[I] | AsyncIterable[I],
    ckpt: Checkpoint,
    call_model: Callable[[I], Any],
    *,
    key: Callable[[I], str] | None = None,
    concurrency: int = 1,
    save_every: SaveEvery = 1,
    on_step: OnStep | None = None,
    on_error: Callable[[int, Exception], bool | Awaitable[bool]] | None = None,
    returns: Any = None,
) -> Summary:
    """As `durastore.run_agent`; `inputs` may be an async iterable, `call_model`, `on_step` and `on_error` coroutine functions.

    Cancelled, it begins no further step, and gives back what it holds.
    """
    plan = Plan(ckpt.sync, call_model, key, agent.every(save_every), on_step, on_error, returns=returns)
    plan.check(concurrency)
    source = _AsyncSource(inputs) if isinstance(inputs, AsyncIterable) else Source(inputs)
    with ckpt.sync.run.span():
        if concurrency == 1:
            return await ckpt.store.driver.drive(agent.one_by_one(plan, source))
        return await _side_by_side(plan, source, ckpt, concurrency)


class _AsyncSource(Source[I]):
    """Inputs that are awaited one by one."""

    def __init__(self, inputs: AsyncIterable[I]) -> None:
        super().__init__(())
        self._awaited = aiter(inputs)

    def skip(self, steps: int) -> None:
        self._skips = steps

    async def take(self) -> Any:
        while self._skips:
            self._skips -= 1
            await anext(self._awaited, agent.END)
        return await anext(self._awaited, agent.END)

    def ahead(self, count: int) -> Sequence[I]:  # noqa: ARG002
        return []


async def _side_by_side(plan: Plan[I], source: Source[I], ckpt: Checkpoint, concurrency: int) -> Summary:
    """Steps in tasks. Progress never goes beyond an unfinished step."""
    window = Window(plan, (await ckpt.load()).step)
    source.skip(window.prefix)
    under_way: dict[asyncio.Task[Outcome[Any]], int] = {}
    try:
        while True:
            while window.room(len(under_way), concurrency) and (item := await settled(source.take())) is not agent.END:
                step = window.start()
                under_way[asyncio.create_task(ckpt.store.driver.drive(agent.one(plan, step, item)))] = step
            if not under_way:
                break
            done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await _note(plan, window, under_way.pop(task), task)
            if window.due():
                await ckpt.store.driver.thread(partial(plan.save, window.prefix))
    except asyncio.CancelledError:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        raise
    except BaseException:
        await asyncio.gather(*under_way, return_exceptions=True)
        raise
    await ckpt.store.driver.thread(partial(plan.save, window.prefix))
    return plan.summary(window.prefix)


async def _note(plan: Plan[I], window: Window[I], step: int, task: asyncio.Task[Outcome[Any]]) -> None:
    """A step has ended."""
    try:
        outcome = task.result()
    except Exception as exc:
        if not await settled(plan.leave(step, exc)):
            raise
        window.leave(step)
        return
    await settled(plan.note(step, outcome))
    window.finish(step)
