"""A store, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from durastore import agent
from durastore.aio.checkpoint import Checkpoint
from durastore.aio.driving import Driver, to_the_end
from durastore.store import Store as SyncStore
from durastore.store import open as open_sync

if TYPE_CHECKING:
    from types import TracebackType

    from durastore.codec import Codec
    from durastore.contract import Finding, RecordState, Swept
    from durastore.keeper import Leases
    from durastore.stats import Stats
    from durastore.views import Progress, Record

__all__ = ["Store", "open"]

T = TypeVar("T")


class Store:
    """As `durastore.Store`, awaited. Made by `open`; an async context manager."""

    def __init__(self, store: SyncStore) -> None:
        self.sync = store
        """The store underneath, for code that is not async. It may be used from threads, never from the event loop's."""
        self.driver = Driver()
        self._closed = False

    @property
    def stats(self) -> Stats:
        """As `durastore.Store.stats`."""
        return self.sync.stats

    def leases(self) -> Leases:
        """As `durastore.Store.leases`; it waits for nothing."""
        return self.sync.leases()

    async def checkpoint(self, run_id: str, **terms: Any) -> Checkpoint:
        """As `durastore.Store.checkpoint`."""
        return Checkpoint(self, await self.driver.thread(partial(self.sync.checkpoint, run_id, **terms)))

    async def record(self, key: str) -> Record | None:
        """As `durastore.Store.record`."""
        return await self.driver.thread(partial(self.sync.record, key))

    def records(
        self, *, run_id: str | None = None, state: RecordState | None = None, prefix: str = ""
    ) -> AsyncIterator[Record]:
        """As `durastore.Store.records`."""
        return self._each(self.sync.records(run_id=run_id, state=state, prefix=prefix))

    def runs(self) -> AsyncIterator[Progress]:
        """As `durastore.Store.runs`."""
        return self._each(self.sync.runs())

    async def _each(self, items: Iterator[T]) -> AsyncIterator[T]:
        while (item := await self.driver.thread(partial(next, items, agent.END))) is not agent.END:
            yield item

    async def resolve(self, key: str, **how: Any) -> Record:
        """As `durastore.Store.resolve`."""
        return await self.driver.thread(partial(self.sync.resolve, key, **how))

    async def forget(self, key: str, *, force: bool = False) -> bool:
        """As `durastore.Store.forget`."""
        return await self.driver.thread(partial(self.sync.forget, key, force=force))

    async def forget_run(self, run_id: str, *, force: bool = False) -> int:
        """As `durastore.Store.forget_run`."""
        return await self.driver.thread(partial(self.sync.forget_run, run_id, force=force))

    async def sweep(self) -> Swept:
        """As `durastore.Store.sweep`."""
        return await self.driver.thread(self.sync.sweep)

    async def setup(self) -> None:
        """As `durastore.Store.setup`."""
        await self.driver.thread(self.sync.setup)

    async def check(self) -> Sequence[Finding]:
        """As `durastore.Store.check`."""
        return await self.driver.thread(self.sync.check)

    async def close(self) -> None:
        """As `durastore.Store.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.driver.thread(self.sync.close)
        finally:
            self.driver.close()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Opening:
    """What `open` returns: to be awaited, or entered."""

    def __init__(self, opening: Callable[[], SyncStore]) -> None:
        self._opening = opening
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def _open(self) -> Store:
        with ThreadPoolExecutor(1, thread_name_prefix="durastore-open") as pool:
            opening = pool.submit(self._opening)
            try:
                return Store(await to_the_end(opening))
            except asyncio.CancelledError:
                if opening.exception() is None:  # nobody will get it, so nobody would close it
                    await to_the_end(pool.submit(opening.result().close))
                raise

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
