"""A checkpoint, awaited. Thin; the rules are in :mod:`durastore.protocol`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from durastore import checkpoint as sync
from durastore import keys
from durastore.acquiring import acquire, request
from durastore.checkpoint import Position, fingerprint_of, key_maker
from durastore.claims import running
from durastore.holding import error_text, give_back
from durastore.protocol import run_once, transact
from durastore.shapes import TypeForm
from durastore.terms import Outcome

if TYPE_CHECKING:
    from durastore.aio.store import Store
    from durastore.stats import Stats

__all__ = ["Checkpoint", "ManualClaim"]

P = ParamSpec("P")
T = TypeVar("T")


class Once(Protocol):
    """The decorator that `Checkpoint.once` makes."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> Callable[P, Coroutine[Any, Any, T]]: ...


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
        return await self.store.driver.thread(self.sync.load)

    async def save_progress(self, step: int, state: Any) -> Position:
        """As `durastore.Checkpoint.save_progress`."""
        return await self.store.driver.thread(partial(self.sync.save_progress, step, state))

    async def reset(self) -> None:
        """As `durastore.Checkpoint.reset`."""
        await self.store.driver.thread(self.sync.reset)

    @overload
    async def run_once(
        self,
        key: str,
        side_effect: Callable[[], object],
        *,
        returns: type[T],
        fingerprint: Any = ...,
        progress: tuple[int, Any] | None = ...,
        **terms: Any,
    ) -> Outcome[T]: ...

    @overload
    async def run_once(
        self,
        key: str,
        side_effect: Callable[[], Awaitable[T]],
        *,
        returns: TypeForm | None = ...,
        fingerprint: Any = ...,
        progress: tuple[int, Any] | None = ...,
        **terms: Any,
    ) -> Outcome[T]: ...

    @overload
    async def run_once(
        self,
        key: str,
        side_effect: Callable[[], T],
        *,
        returns: TypeForm | None = ...,
        fingerprint: Any = ...,
        progress: tuple[int, Any] | None = ...,
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
        return await self.store.driver.drive(steps)

    @overload
    async def transact(
        self,
        key: str,
        effect: Callable[[Any], object],
        *,
        returns: type[T],
        fingerprint: Any = ...,
        progress: tuple[int, Any] | None = ...,
        **terms: Any,
    ) -> Outcome[T]: ...

    @overload
    async def transact(
        self,
        key: str,
        effect: Callable[[Any], T],
        *,
        returns: TypeForm | None = ...,
        fingerprint: Any = ...,
        progress: tuple[int, Any] | None = ...,
        **terms: Any,
    ) -> Outcome[T]: ...

    async def transact(
        self,
        key: str,
        effect: Callable[[Any], Any],
        *,
        fingerprint: Any = None,
        progress: tuple[int, Any] | None = None,
        **terms: Any,
    ) -> Outcome[Any]:
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
        return await self.store.driver.drive(steps)

    async def _progress(self, progress: tuple[int, Any] | None) -> Any:
        return None if progress is None else await self.store.driver.thread(partial(self.sync.run.progress, *progress))

    @overload
    def once(
        self, *, key: str | Callable[..., str], returns: type[T], **terms: Any
    ) -> Callable[[Callable[P, Awaitable[T] | T]], Callable[P, Coroutine[Any, Any, T]]]: ...

    @overload
    def once(self, *, key: str | Callable[..., str], returns: TypeForm | None = ..., **terms: Any) -> Once: ...

    def once(self, *, key: str | Callable[..., str], **terms: Any) -> Any:
        """As `durastore.Checkpoint.once`, for coroutine functions and plain ones: what is decorated is to be awaited."""

        def decorate(function: Callable[P, Any]) -> Callable[P, Coroutine[Any, Any, Any]]:
            name = key_maker(function, key)

            @wraps(function)
            async def wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
                effect = partial(function, *args, **kwargs)
                return (await self.run_once(name(args, kwargs), effect, **terms)).value

            return wrapper

        return decorate

    @overload
    def claim(
        self, key: str, *, returns: type[T], fingerprint: Any = ..., **terms: Any
    ) -> AbstractAsyncContextManager[ManualClaim[T]]: ...

    @overload
    def claim(
        self, key: str, *, returns: TypeForm | None = ..., fingerprint: Any = ..., **terms: Any
    ) -> AbstractAsyncContextManager[ManualClaim[Any]]: ...

    @asynccontextmanager
    async def claim(self, key: str, *, fingerprint: Any = None, **terms: Any) -> AsyncIterator[ManualClaim[Any]]:
        """As `durastore.Checkpoint.claim`."""
        chosen = self.sync.terms_with(**terms)
        asked = request(self.sync.run, keys.checked(key), chosen, fingerprint_of(fingerprint))
        got = await self.store.driver.drive(acquire(self.sync.run, asked, chosen))
        manual: ManualClaim[Any] = ManualClaim(self.store, sync.ManualClaim(self.sync.run, got, chosen))
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
                await self.store.driver.drive(give_back(self.sync.run, got, error, in_doubt=chosen.in_doubt != "rerun"))


class ManualClaim(Generic[T]):
    """As `durastore.ManualClaim`, awaited."""

    def __init__(self, store: Store, manual: sync.ManualClaim[T]) -> None:
        self._store = store
        self.sync = manual

    @property
    def outcome(self) -> Outcome[T] | None:
        """As `durastore.ManualClaim.outcome`."""
        return self.sync.outcome

    @property
    def live(self) -> Any:
        """As `durastore.ManualClaim.live`."""
        return self.sync.live

    async def commit(self, result: T, *, progress: tuple[int, Any] | None = None) -> Outcome[T]:
        """As `durastore.ManualClaim.commit`."""
        return await self._store.driver.thread(partial(self.sync.commit, result, progress=progress))
