"""Processes that die, freeze and race, on a real store. Children are forked, so that hundreds of deaths take seconds."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from durastore.conformance.points import Deadly, Outside, Points

__all__ = ["Deadly", "Outside", "Points", "ended", "forked", "froze", "wait_for"]

PATIENCE = 60.0
"""Seconds to wait for another process before the test is broken."""


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
