"""The driver of the protocol for event loops, and the threads behind it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from durastore.claims import running
from durastore.steps import Effect, Inline, Pause, Steps

__all__ = ["EFFECT_THREADS", "THREADS", "Driver", "settled", "to_the_end"]

T = TypeVar("T")
THREADS = 16
"""Threads for the calls of one store: as many as a small database has connections to spare, and enough to keep it busy."""
EFFECT_THREADS = 64
"""Threads for side effects that are plain functions; apart from the store's, which they must not keep busy."""


class Driver:
    """Runs protocols in tasks, their calls of the store in a few threads."""

    def __init__(self) -> None:
        self._calls = ThreadPoolExecutor(THREADS, thread_name_prefix="durastore-aio")
        self._effects = ThreadPoolExecutor(EFFECT_THREADS, thread_name_prefix="durastore-effect")

    def close(self) -> None:
        """Take no more calls."""
        self._calls.shutdown(wait=False)
        self._effects.shutdown(wait=False)

    async def thread(self, call: Callable[[], T]) -> T:
        """Run a call of the store in a thread. A cancellation waits until it has ended."""
        return await to_the_end(_submit(self._calls, call))

    async def drive(self, steps: Steps[T]) -> T:
        """Run the protocol in this task.

        When it is cancelled while a thread runs an effect, the protocol is given the effect's result first, so that it is
        committed, and the cancellation before anything else is begun.
        """
        value: Any = None
        error: BaseException | None = None
        held_back: asyncio.CancelledError | None = None
        while True:
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as stop:
                if held_back is not None:
                    raise held_back from None
                result: T = stop.value
                return result
            except Exception as exc:
                if (
                    held_back is not None
                ):  # the caller learns why nothing was stored; its task is cancelled all the same
                    raise held_back from exc
                raise
            value = error = None
            if held_back is not None and isinstance(step, (Effect, Pause)):
                error, held_back = held_back, None
                continue
            try:
                value = await self._take(step)
            except _Late as exc:
                value, held_back = exc.value, exc.cancelled
            except BaseException as exc:  # noqa: BLE001  the protocol decides, also about cancellation
                error = exc
            if held_back is not None and error is None and isinstance(step, Inline):
                error, held_back = held_back, None

    async def _take(self, step: Callable[[], Any]) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Effect):
            return await self._effect(step)
        if isinstance(step, Inline):
            return await settled(step.function())
        return await self.thread(step)

    async def _effect(self, step: Effect) -> Any:
        with running(step.claim):
            if _is_async(step.function):
                return await settled(step.function())
            return await settled(await self._function(step.function))

    async def _function(self, function: Callable[[], Any]) -> Any:
        """Run a plain function to its end. Raises `_Late` when it was cancelled meanwhile, and ended well.

        One that waits for a thread when the cancellation comes is never begun. One that only made a coroutine has not done what
        it was called for: the coroutine is closed.
        """
        future = _submit(self._effects, function)
        try:
            return await to_the_end(future, begun_only=True)
        except asyncio.CancelledError as exc:
            if future.cancelled() or future.exception() is not None:
                raise
            value = future.result()
            if inspect.isawaitable(value):
                _drop(value)
                raise
            raise _Late(value, exc) from None


class _Late(Exception):  # it carries a value past a cancellation, and is no error
    def __init__(self, value: Any, cancelled: asyncio.CancelledError) -> None:
        super().__init__("cancelled while a thread ran")
        self.value = value
        self.cancelled = cancelled


def _submit(pool: ThreadPoolExecutor, call: Callable[[], T]) -> Future[T]:
    return pool.submit(contextvars.copy_context().run, partial(_called, call))


def _called(call: Callable[[], T]) -> T:
    """As in a coroutine or a generator (PEP 479), StopIteration is an error: no future of asyncio can carry it."""
    try:
        return call()
    except StopIteration as exc:
        raise RuntimeError(f"a side effect raised StopIteration({exc.value!r})") from exc


async def to_the_end(future: Future[T], *, begun_only: bool = False) -> T:
    """What a thread returns; a cancellation is held back until it has ended, or takes back what no thread has begun."""
    wrapped = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(wrapped)
    except asyncio.CancelledError:
        if begun_only and future.cancel():
            raise
        while not wrapped.done():
            try:
                await asyncio.wait([wrapped])
            except asyncio.CancelledError:  # once more: still not before the thread has ended
                continue
        if not wrapped.cancelled():
            wrapped.exception()  # looked at, so that nobody warns of an error that nobody saw
        raise


def _drop(value: Any) -> None:
    """Let an awaitable go that nobody will await."""
    if inspect.iscoroutine(value):
        value.close()
    elif isinstance(value, asyncio.Future):
        value.cancel()


async def settled(value: Any) -> Any:
    """What a callback returned, or what came of awaiting it."""
    return await value if inspect.isawaitable(value) else value


def _is_async(function: Callable[..., Any]) -> bool:
    inner = function.func if isinstance(function, partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)
