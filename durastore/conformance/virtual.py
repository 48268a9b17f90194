"""Time that only moves when it is told to: for programs that die and are resumed an hour later, at once."""

from __future__ import annotations

from collections.abc import Callable

from durastore.clock import Clock
from durastore.keeper import Keeper

__all__ = ["StillKeeper", "VirtualClock"]

BEGIN = 1_700_000_000_000_000
"""Microseconds since the epoch."""


class VirtualClock(Clock):
    """A clock that only `sleep` moves. `during` is called at each sleep, to let others act meanwhile."""

    def __init__(self, begin: int = BEGIN) -> None:
        self.begin = begin
        self.elapsed = 0.0
        self.slept: list[float] = []
        self.during: Callable[[], None] = lambda: None

    def now(self) -> int:
        return self.begin + round(self.elapsed * 1_000_000)

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.elapsed += seconds
        self.during()


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
