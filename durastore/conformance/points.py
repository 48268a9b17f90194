"""Points of a program at which its process may die or freeze, and the outside world that counts what it did."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["VERBS", "Deadly", "Died", "Mortal", "Outside", "Points"]

_REST = ("put_chunks", "get_chunks", "setup")
VERBS = ("claim", "renew", "commit", "abandon", "load", "save", "read", "incarnate", "transact", "resolve", *_REST)


class Points:
    """Dies by SIGKILL (or gets another signal) when the n-th point is passed; 0 for never."""

    def __init__(self, deadly: int, signum: int = signal.SIGKILL) -> None:
        self._deadly = deadly
        self._signum = signum
        self._passed = 0

    def __call__(self, *_what: Any) -> None:
        self._passed += 1
        if self._passed == self._deadly:
            signal.pthread_kill(threading.get_ident(), self._signum)  # this thread goes no further, whichever it is


class Died(BaseException):
    """What ends a program that only plays dead: nothing of it passes a point again."""


class Mortal:
    """As `Points`, inside a process that has to live on."""

    def __init__(self, deadly: int) -> None:
        self._deadly = deadly
        self._passed = 0

    def __call__(self, *_what: Any) -> None:
        self._passed += 1
        if 0 < self._deadly <= self._passed:
            raise Died


class Deadly:
    """A backend with a point before and after every call."""

    def __init__(self, backend: Any, point: Callable[[], None]) -> None:
        self._backend = backend
        self._point = point

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if name not in VERBS:
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            self._point()
            answer = found(*args, **kwargs)
            self._point()
            return answer

        return verb


class Outside:
    """The outside world: a file that counts what arrived, one line for each delivery, on disk before the sender goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def deliver(self, key: str) -> None:
        """Do what can't be undone."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{key}\n".encode())
        os.close(descriptor)

    def count(self) -> Counter[str]:
        """How often each arrived."""
        return Counter(self.path.read_text().splitlines() if self.path.exists() else [])
