"""``durastore.aio``: the same surface, awaited.

The protocol is the one of :mod:`durastore.protocol`; only its driver and the thinnest callers are doubled. Calls of the store run
in a few threads of the store's own, whatever the number of tasks. A side effect may be a coroutine function, which runs in the
task, or a plain function, which runs in a thread, so that it cannot block the event loop.

Cancellation: a call of the store that is under way is waited for before the cancellation goes on, so that a claim is given back
and a commit is not torn. A plain function cannot be cancelled: its end is waited for, its result committed, and then the
cancellation goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, overload

from durastore import agent, keys
from durastore import checkpoint as sync
from durastore.acquiring import acquire, request
from durastore.agent import Plan, Source, Summary, Window
from durastore.checkpoint import Position, fingerprint_of, key_maker
from durastore.claims import running
from durastore.holding import error_text, give_back
from durastore.protocol import run_once, transact
from durastore.steps import Effect, Inline, Pause, Steps
from durastore.store import Store as SyncStore
from durastore.store import open as open_sync
from durastore.terms import Outcome

if TYPE_CHECKING:
    from types import TracebackType

    from durastore.codec import Codec
    from durastore.contract import Finding, RecordState, Swept
    from durastore.stats import Stats
    from durastore.views import Progress, Record

__all__ = ["Checkpoint", "ManualClaim", "Store", "open", "run_agent"]

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741  an input item
THREADS = 16
"""Threads for the calls of one store: as many as a small database has connections to spare, and enough to keep it busy."""
EFFECT_THREADS = 64
"""Threads for side effects that are plain functions; apart from the store's, which they must not keep busy."""


class Store:
    """As `durastore.Store`, awaited. Made by `open`; an async context manager."""

    def __init__(self, store: SyncStore) -> None:
        self.sync = store
        """The store underneath, for code that is not async. It may be used from threads, never from the event loop's."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="durastore-aio")
        self._effects = ThreadPoolExecutor(EFFECT_THREADS, thread_name_prefix="durastore-effect")

    @property
    def stats(self) -> Stats:
        """As `durastore.Store.stats`."""
        return self.sync.stats

    async def checkpoint(self, run_id: str, **terms: Any) -> Checkpoint:
        """As `durastore.Store.checkpoint`."""
        return Checkpoint(self, await self.thread(partial(self.sync.checkpoint, run_id, **terms)))

    async def record(self, key: str) -> Record | None:
        """As `durastore.Store.record`."""
        return await self.thread(partial(self.sync.record, key))

    def records(
        self, *, run_id: str | None = None, state: RecordState | None = None, prefix: str = ""
    ) -> AsyncIterator[Record]:
        """As `durastore.Store.records`."""
        return self._each(self.sync.records(run_id=run_id, state=state, prefix=prefix))

    def runs(self) -> AsyncIterator[Progress]:
        """As `durastore.Store.runs`."""
        return self._each(self.sync.runs())

    async def _each(self, items: Iterator[T]) -> AsyncIterator[T]:
        while (item := await self.thread(partial(next, items, agent.END))) is not agent.END:
            yield item

    async def resolve(self, key: str, **how: Any) -> Record:
        """As `durastore.Store.resolve`."""
        return await self.thread(partial(self.sync.resolve, key, **how))

    async def forget(self, key: str, *, force: bool = False) -> bool:
        """As `durastore.Store.forget`."""
        return await self.thread(partial(self.sync.forget, key, force=force))

    async def forget_run(self, run_id: str, *, force: bool = False) -> int:
        """As `durastore.Store.forget_run`."""
        return await self.thread(partial(self.sync.forget_run, run_id, force=force))

    async def sweep(self) -> Swept:
        """As `durastore.Store.sweep`."""
        return await self.thread(self.sync.sweep)

    async def setup(self) -> None:
        """As `durastore.Store.setup`."""
        await self.thread(self.sync.setup)

    async def check(self) -> Sequence[Finding]:
        """As `durastore.Store.check`."""
        return await self.thread(self.sync.check)

    async def close(self) -> None:
        """As `durastore.Store.close`."""
        await self.thread(self.sync.close)
        self._threads.shutdown(wait=False)
        self._effects.shutdown(wait=False)

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def thread(self, call: Callable[[], T]) -> T:
        """Run a call in a thread of this store. A cancellation waits until it has ended."""
        context = contextvars.copy_context()
        return await _to_the_end(asyncio.get_running_loop().run_in_executor(self._threads, context.run, call))

    async def drive(self, steps: Steps[T]) -> T:
        """Run the protocol in this task."""
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
            value = error = None
            try:
                value = await self._take(step)
            except _Late as exc:
                value, held_back = exc.value, exc.cancelled
            except BaseException as exc:  # noqa: BLE001  the protocol decides, also about cancellation
                error = exc

    async def _take(self, step: Callable[[], Any]) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Effect):
            return await self._effect(step)
        if isinstance(step, Inline):
            return await _settled(step.function())
        return await self.thread(step)

    async def _effect(self, step: Effect) -> Any:
        with running(step.claim):
            if _is_async(step.function):
                return await _settled(step.function())
            return await _settled(await self._function(step.function))

    async def _function(self, function: Callable[[], Any]) -> Any:
        """Run a plain function to its end. Raises `_Late` when it was cancelled meanwhile, and ended well."""
        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(self._effects, context.run, function)
        try:
            return await _to_the_end(future)
        except asyncio.CancelledError as exc:
            if future.exception() is None:
                raise _Late(future.result(), exc) from None
            raise


class _Late(Exception):  # it carries a value past a cancellation, and is no error
    def __init__(self, value: Any, cancelled: asyncio.CancelledError) -> None:
        super().__init__("cancelled while a thread ran")
        self.value = value
        self.cancelled = cancelled


async def _to_the_end(future: asyncio.Future[T]) -> T:
    """What a thread returns; a cancellation is held back until it has ended."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # once more: still not before the thread has ended
                continue
        raise


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _is_async(function: Callable[..., Any]) -> bool:
    inner = function.func if isinstance(function, partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


class _Opening:
    """What `open` returns: to be awaited, or entered."""

    def __init__(self, opening: Callable[[], SyncStore]) -> None:
        self._opening = opening
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def _open(self) -> Store:
        return Store(await _to_the_end(asyncio.get_running_loop().run_in_executor(None, self._opening)))

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()


def open(url: str | None = None, *, codec: Codec | None = None, **options: Any) -> _Opening:  # noqa: A001
    """As `durastore.open`: ``async with durastore.aio.open(url) as store``, or ``store = await durastore.aio.open(url)``."""
    return _Opening(partial(open_sync, url, codec=codec, **options))


class Checkpoint:
    """As `durastore.Checkpoint`, awaited."""

    def __init__(self, store: Store, ckpt: sync.Checkpoint) -> None:
        self.store = store
        self.sync = ckpt

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.sync.run_id

    @property
    def stats(self) -> Stats:
        """As `durastore.Checkpoint.stats`."""
        return self.sync.stats

    async def load(self) -> Position:
        """As `durastore.Checkpoint.load`."""
        return await self.store.thread(self.sync.load)

    async def save_progress(self, step: int, state: Any) -> Position:
        """As `durastore.Checkpoint.save_progress`."""
        return await self.store.thread(partial(self.sync.save_progress, step, state))

    async def reset(self) -> None:
        """As `durastore.Checkpoint.reset`."""
        await self.store.thread(self.sync.reset)

    @overload
    async def run_once(
        self,
        key: str,
        side_effect: Callable[[], Awaitable[T]],
        *,
        fingerprint: Any = None,
        progress: tuple[int, Any] | None = None,
        **terms: Any,
    ) -> Outcome[T]: ...

    @overload
    async def run_once(
        self,
        key: str,
        side_effect: Callable[[], T],
        *,
        fingerprint: Any = None,
        progress: tuple[int, Any] | None = None,
        **terms: Any,
    ) -> Outcome[T]: ...

    async def run_once(
        self,
        key: str,
        side_effect: Callable[[], Any],
        *,
        fingerprint: Any = None,
        progress: tuple[int, Any] | None = None,
        **terms: Any,
    ) -> Outcome[Any]:
        """As `durastore.Checkpoint.run_once`; the side effect is a coroutine function or a plain one."""
        steps = run_once(
            self.sync.run,
            keys.checked(key),
            side_effect,
            self.sync.terms_with(**terms),
            fingerprint=fingerprint_of(fingerprint),
            progress=await self._progress(progress),
        )
        return await self.store.drive(steps)

    async def transact(
        self,
        key: str,
        effect: Callable[[Any], T],
        *,
        fingerprint: Any = None,
        progress: tuple[int, Any] | None = None,
        **terms: Any,
    ) -> Outcome[T]:
        """As `durastore.Checkpoint.transact`. The effect is a plain function, since the store's transaction is: it runs in the
        thread that holds it, and may be called again.
        """
        steps = transact(
            self.sync.run,
            keys.checked(key),
            effect,
            self.sync.terms_with(**terms),
            fingerprint=fingerprint_of(fingerprint),
            progress=await self._progress(progress),
        )
        return await self.store.drive(steps)

    async def _progress(self, progress: tuple[int, Any] | None) -> Any:
        return None if progress is None else await self.store.thread(partial(self.sync.run.progress, *progress))

    def once(
        self, *, key: str | Callable[..., str], **terms: Any
    ) -> Callable[[Callable[..., Awaitable[T]]], Callable[..., Awaitable[T]]]:
        """As `durastore.Checkpoint.once`, for coroutine functions."""

        def decorate(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
            name = key_maker(function, key)

            @wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> T:
                effect = partial(function, *args, **kwargs)
                value: T = (await self.run_once(name(args, kwargs), effect, **terms)).value
                return value

            return wrapper

        return decorate

    @asynccontextmanager
    async def claim(self, key: str, *, fingerprint: Any = None, **terms: Any) -> AsyncIterator[ManualClaim]:
        """As `durastore.Checkpoint.claim`."""
        chosen = self.sync.terms_with(**terms)
        asked = request(self.sync.run, keys.checked(key), chosen, fingerprint_of(fingerprint))
        got = await self.store.drive(acquire(self.sync.run, asked, chosen))
        manual = ManualClaim(self.store, sync.ManualClaim(self.sync.run, got, chosen))
        if isinstance(got, Outcome):
            yield manual
            return
        error = "left without a commit"
        try:
            with running(got):
                yield manual
        except BaseException as exc:
            error = error_text(exc)
            raise
        finally:
            if not manual.sync.finished:
                await self.store.drive(give_back(self.sync.run, got, error, in_doubt=chosen.in_doubt != "rerun"))


class ManualClaim:
    """As `durastore.ManualClaim`, awaited."""

    def __init__(self, store: Store, manual: sync.ManualClaim) -> None:
        self._store = store
        self.sync = manual

    @property
    def outcome(self) -> Outcome[Any] | None:
        """As `durastore.ManualClaim.outcome`."""
        return self.sync.outcome

    @property
    def live(self) -> Any:
        """As `durastore.ManualClaim.live`."""
        return self.sync.live

    async def commit(self, result: Any, *, progress: tuple[int, Any] | None = None) -> Outcome[Any]:
        """As `durastore.ManualClaim.commit`."""
        return await self._store.thread(partial(self.sync.commit, result, progress=progress))


async def run_agent(
    inputs: Iterable[I] | AsyncIterable[I],
    ckpt: Checkpoint,
    call_model: Callable[[I], Any],
    *,
    key: Callable[[I], str] | None = None,
    concurrency: int = 1,
    save_every: agent.SaveEvery = 1,
    on_step: Callable[[int, Outcome[Any]], Any] | None = None,
) -> Summary:
    """As `durastore.run_agent`; `inputs` may be an async iterable, `call_model` and `on_step` coroutine functions."""
    plan = Plan(ckpt.sync, call_model, key, agent.every(save_every), on_step)
    plan.check(concurrency)
    source = _AsyncSource(inputs) if isinstance(inputs, AsyncIterable) else Source(inputs)
    with ckpt.sync.run.span():
        if concurrency == 1:
            return await ckpt.store.drive(agent.one_by_one(plan, source))
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
            while window.room(len(under_way), concurrency) and (item := await _settled(source.take())) is not agent.END:
                step = window.start()
                under_way[asyncio.create_task(ckpt.store.drive(agent.one(plan, step, item)))] = step
            if not under_way:
                break
            done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                step = under_way.pop(task)
                await _settled(plan.note(step, task.result()))
                window.finish(step)
            if window.due():
                await ckpt.store.thread(partial(plan.save, window.prefix))
    except asyncio.CancelledError:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        raise
    except BaseException:
        await asyncio.gather(*under_way, return_exceptions=True)
        raise
    await ckpt.store.thread(partial(plan.save, window.prefix))
    return plan.summary(window.prefix)
