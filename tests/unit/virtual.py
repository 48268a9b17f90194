"""Virtual time over the reference store: what the core does, with nothing left to chance or to the machine's speed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import durastore
from durastore.conformance.virtual import StillKeeper, VirtualClock
from durastore.memory import MemoryBackend, _Space

__all__ = ["VERBS", "Scripted", "StillKeeper", "VirtualClock", "open_files", "virtual"]

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


def virtual(
    clock: VirtualClock | None = None, space: _Space | None = None
) -> tuple[durastore.Store, Scripted, VirtualClock]:
    """A store in virtual time, its backend, and its clock."""
    clock, backend = clock or VirtualClock(), Scripted(space)
    store = durastore.Store(backend, clock=clock)
    store.keeper = StillKeeper(store._renew, clock)
    return store, backend, clock


def open_files() -> list[str]:
    """The names of what this process has open, one for each descriptor."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.append(str(descriptor.readlink()))
    return names
