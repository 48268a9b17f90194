"""Processes that die, freeze and race, on a real store. Children are forked, so that hundreds of deaths take seconds."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERBS = ("claim", "renew", "commit", "abandon", "load", "save", "read", "incarnate", "transact", "resolve")
VERBS += ("put_chunks", "get_chunks", "setup")
PATIENCE = 60.0
"""Seconds to wait for another process before the test is broken."""


class Points:
    """Dies by SIGKILL (or gets another signal) when the n-th point is passed; 0 for never."""

    def __init__(self, deadly: int, signum: int = signal.SIGKILL) -> None:
        self._deadly = deadly
        self._signum = signum
        self._passed = 0

    def __call__(self, *_what: Any) -> None:
        self._passed += 1
        if self._passed == self._deadly:
            os.kill(os.getpid(), self._signum)


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


def forked(work: Callable[[], Any]) -> int:
    """Run `work` in a child; returns its process id. It ends with 0, or with 1 and a traceback."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(child: int) -> int:
    """How a child ended: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def froze(child: int) -> bool:
    """Wait until a child stops itself (True) or ends; fails when it failed."""
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed; its error is in the captured output"
    return False


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; fails loudly when it never does."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, f"never happened: {what}"
        time.sleep(0.005)


class Outside:
    """The outside world: a file that counts what arrived, one line for each delivery, on disk before the sender goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def deliver(self, key: str) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{key}\n".encode())
        os.close(descriptor)

    def count(self) -> Counter[str]:
        return Counter(self.path.read_text().splitlines() if self.path.exists() else [])
