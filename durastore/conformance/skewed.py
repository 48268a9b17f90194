"""Clocks that are wrong: the wall clock of one client, or both clocks of a whole process."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from durastore.clock import Clock

__all__ = ["SetBack", "Skewed", "stand_still"]

_REAL = {name: getattr(time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns")}
_patching = threading.RLock()


class Skewed:
    """A backend whose calls see a wall clock that is wrong by some seconds, which may change. Errors pass through."""

    def __init__(self, backend: Any, seconds: float) -> None:
        self._backend = backend
        self.seconds = seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found) or name in ("classify", "close", "forked"):
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            with _wall_clock(self.seconds):
                return found(*args, **kwargs)

        return verb


@contextmanager
def _wall_clock(seconds: float) -> Iterator[None]:
    with _patching:
        _patch(time=seconds)
        try:
            yield
        finally:
            _patch()


def _patch(**seconds: float) -> None:
    """Move this process's clocks, ``time`` or ``monotonic``; those that are not named are right again."""
    for name, real in _REAL.items():
        by = seconds.get(name.removesuffix("_ns"), 0.0)
        setattr(time, name, real if not by else _moved(real, by, name))


def _moved(real: Callable[[], Any], seconds: float, name: str) -> Callable[[], Any]:
    by: Any = round(seconds * 1e9) if name.endswith("_ns") else seconds

    def moved() -> Any:
        return real() if _is_grpc(sys._getframe(1)) else real() + by

    return moved


def _is_grpc(frame: FrameType) -> bool:
    """GRPC takes a deadline in Python and keeps it in C, whose clock is not moved: it would be mixed up as no machine is."""
    return str(frame.f_globals.get("__name__")).startswith("grpc")


class SetBack(Clock):
    """A clock that can be set back to when its holder stood still."""

    behind = 0.0

    def monotonic(self) -> float:
        return float(_REAL["monotonic"]()) - self.behind


def stand_still(clock: Clock) -> None:
    """Stop this process until it is told to go on; then it does not know that time went by, if its clock can be set back."""
    began = _REAL["monotonic"]()
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # all stop, and this thread goes no further meanwhile
    if isinstance(clock, SetBack):
        clock.behind = _REAL["monotonic"]() - began
        _patch(time=-clock.behind, monotonic=-clock.behind)
