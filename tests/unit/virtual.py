"""Virtual time over the reference store: what the core does, with nothing left to chance or to the machine's speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import durastore
from durastore.clock import Clock
from durastore.keeper import Keeper
from durastore.memory import MemoryBackend, _Space

VERBS = (
    "claim",
    "renew",
    "commit",
    "abandon",
    "load",
    "save",
    "read",
    "scan",
    "incarnate",
    "transact",
    "resolve",
    "delete",
)


class VirtualClock(Clock):
    """A clock that only `sleep` moves. `during` is called at each sleep, to let others act meanwhile."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.slept: list[float] = []
        self.during: Callable[[], None] = lambda: None

    def now(self) -> int:
        return 1_700_000_000_000_000 + round(self.elapsed * 1_000_000)

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.elapsed += seconds
        self.during()


class Scripted(MemoryBackend):
    """A reference store that a test can make fail or interrupt, before or after any call of a verb."""

    def __init__(self, space: _Space | None = None) -> None:
        super().__init__(space or _Space())
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda verb: None
        self.after: Callable[[str], None] = lambda verb: None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in VERBS:
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            self.before(name)
            answer = found(*args, **kwargs)
            self.after(name)
            return answer

        return verb

    def classify(self, error: Exception) -> durastore.DurastoreError | None:
        return durastore.StoreUnavailable(str(error)) if isinstance(error, ConnectionError) else None


class StillKeeper(Keeper):
    """A keeper without a thread: it renews when a test says so, not when the machine finds the time."""

    def _start(self) -> None:
        """Nobody runs."""

    def tick(self) -> None:
        """Renew what is due by now."""
        with self._condition:
            claims = self._take_due()
        if claims:
            self._renew_all(claims)


def virtual(
    clock: VirtualClock | None = None, space: _Space | None = None
) -> tuple[durastore.Store, Scripted, VirtualClock]:
    """A store in virtual time, its backend, and its clock."""
    clock, backend = clock or VirtualClock(), Scripted(space)
    store = durastore.Store(backend, clock=clock)
    store.keeper = StillKeeper(store._renew, clock)
    return store, backend, clock
