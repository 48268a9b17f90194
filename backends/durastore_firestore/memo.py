"""What this process has learnt from answers, to save the next round trip. Losing any of it costs an RPC, no more."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["Memo"]

T = TypeVar("T")
_ENTRIES_MAX = 1024


class Memo(Generic[T]):
    """The latest thing known under each name, for the names learnt last. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> T | None:
        """What is known, None if nothing is."""
        with self._lock:
            return self._known.get(name)

    def put(self, name: str, known: T) -> None:
        """Remember, and forget the oldest."""
        with self._lock:
            self._known[name] = known
            self._known.move_to_end(name)
            if len(self._known) > _ENTRIES_MAX:
                self._known.popitem(last=False)
