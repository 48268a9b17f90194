"""Counts of what happened, for people and for telemetry."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

__all__ = ["Calls", "Stats"]


@dataclass(slots=True)
class Calls:
    """Calls of one verb of a store, with their retries. Times in seconds."""

    count: int = 0
    errors: int = 0
    """Calls that raised: the store was out of reach, or its answer is an error (a lost claim, another fingerprint)."""
    seconds: float = 0.0
    """Of all calls together; those of ``transact`` include the effect."""
    longest: float = 0.0


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
    in_doubt: int = 0
    """Keys that a call left in doubt, or stopped at because they were."""
    calls: dict[str, Calls] = field(default_factory=dict)
    """A store's calls by verb; empty for a single run."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, name: str, times: int = 1) -> None:
        """Add to one of them."""
        with self._lock:
            setattr(self, name, getattr(self, name) + times)

    def took(self, verb: str, seconds: float, *, failed: bool) -> None:
        """Add a call of the store."""
        with self._lock:
            calls = self.calls.get(verb)
            if calls is None:
                calls = self.calls[verb] = Calls()
            calls.count += 1
            calls.errors += failed
            calls.seconds += seconds
            calls.longest = max(calls.longest, seconds)
