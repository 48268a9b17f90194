"""Counts of what happened, for people and for telemetry."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

__all__ = ["Stats"]


@dataclass(slots=True)
class Stats:
    """How calls ended. Read it at any time; it grows."""

    executed: int = 0
    """The effect ran here, and its result is stored."""
    skipped: int = 0
    """The key was done already."""
    awaited: int = 0
    """Another holder finished it while this call waited."""
    recovered: int = 0
    """A probe found the effect of an earlier attempt."""
    taken_over: int = 0
    """Grants over a claim whose holder was gone or raised."""
    lost: int = 0
    """Claims of ours that somebody else took over, gave back or resolved."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, name: str, times: int = 1) -> None:
        """Add to one of them."""
        with self._lock:
            setattr(self, name, getattr(self, name) + times)
