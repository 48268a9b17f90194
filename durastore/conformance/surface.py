"""Which public surface the suite's programs use: the sync one, or `durastore.aio` behind the same calls.

The protocol is the same in both, and so are the clauses of bare verbs: what differs is who drives it, in which threads the store
is called, and what becomes of errors, interrupts and freezes on the way. So every program of the suite that runs effects opens
its store by `surfaced` and runs agents by `run_agent`.

On the async surface each call is an event loop of its own, in the caller's thread: nothing is left behind in a process that is to
be forked, frozen or killed. Effects and probes that a program gives as plain functions run as coroutine functions for half the
names (of keys, or of runs for `run_agent` and probes) and as they are, in a thread, for the other half; a name always has the
same kind.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from durastore import agent
from durastore.errors import ConfigError
from durastore_pytest import SURFACE_VARIABLE

if TYPE_CHECKING:
    from durastore import aio
    from durastore.agent import Summary
    from durastore.checkpoint import Checkpoint
    from durastore.store import Store

__all__ = ["SURFACES", "Surface", "chosen", "is_coroutine_for", "run_agent", "surfaced"]

Surface = Literal["sync", "async"]
SURFACES: tuple[Surface, ...] = get_args(Surface)


def chosen() -> Surface:
    """The surface of this process and its children, by the environment. Raises `ConfigError` for one that there is not."""
    name = os.environ.get(SURFACE_VARIABLE) or "sync"
    for surface in SURFACES:
        if name == surface:
            return surface
    raise ConfigError(f"${SURFACE_VARIABLE} is one of {', '.join(SURFACES)}, not {name!r}")


def surfaced(store: Store) -> Store:
    """The store as the chosen surface has it. Whatever is to be set on it (keeper, deadlines) is set before."""
    if chosen() == "sync":
        return store
    from durastore import aio

    return cast("Store", _AwaitedStore(aio.Store(store)))


def run_agent(inputs: Iterable[Any], ckpt: Checkpoint, call_model: Callable[[Any], Any], **options: Any) -> Summary:
    """As `durastore.run_agent`, on the surface that the checkpoint is of."""
    if not isinstance(ckpt, _AwaitedCheckpoint):
        return agent.run_agent(inputs, ckpt, call_model, **options)
    from durastore import aio

    return asyncio.run(aio.run_agent(inputs, ckpt.awaited, _of_its_kind(ckpt.run_id, call_model), **options))


def is_coroutine_for(name: str) -> bool:
    """Whether effects under this name run as coroutine functions."""
    return sum(name.encode("utf-8", "surrogatepass")) % 2 == 1


def _of_its_kind(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if not is_coroutine_for(name):
        return function

    async def coroutine(*args: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args)

    return coroutine


class _Awaited:
    """An object of `durastore.aio` whose coroutine functions are called and waited for. The rest is the sync object's."""

    def __init__(self, awaited: Any) -> None:
        self.awaited = awaited

    def __getattr__(self, name: str) -> Any:
        if not inspect.iscoroutinefunction(getattr(type(self.awaited), name, None)):
            return getattr(self.awaited.sync, name)
        method = getattr(self.awaited, name)
        return lambda *args, **options: asyncio.run(method(*args, **options))


class _AwaitedStore(_Awaited):
    awaited: aio.Store

    def checkpoint(self, run_id: str, *, in_doubt: Any = "rerun", **terms: Any) -> _AwaitedCheckpoint:
        policy = _of_its_kind(run_id, in_doubt) if callable(in_doubt) else in_doubt
        return _AwaitedCheckpoint(asyncio.run(self.awaited.checkpoint(run_id, in_doubt=policy, **terms)))

    def __enter__(self) -> _AwaitedStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _AwaitedCheckpoint(_Awaited):
    awaited: aio.Checkpoint

    def run_once(self, key: str, side_effect: Callable[[], Any], **options: Any) -> Any:
        return asyncio.run(self.awaited.run_once(key, _of_its_kind(key, side_effect), **options))
