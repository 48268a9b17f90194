"""A gate that keeps RPCs and `fork` apart.

gRPC's core has threads and locks of its own, and its fork handlers do nothing while another thread is inside a call: the child
then hangs or aborts at its first RPC. So calls pass through one gate; `os.fork` waits, for a moment, until none is under way.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["GATE", "Gate"]

PATIENCE = 2.0
"""Seconds that `fork` waits for calls under way; a call that hangs must not hang the fork."""


class Gate:
    """Counts calls under way. A context manager around each call; closed while the process forks."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def __enter__(self) -> None:
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._inside -= 1
            if self._closed:
                self._changed.notify_all()

    def close(self) -> None:
        """Let nobody in, and wait until all are out or patience ends."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside, PATIENCE)

    def open(self) -> None:
        """Let everybody in again."""
        with self._changed:
            self._closed = False
            self._changed.notify_all()

    def forked(self) -> None:
        """In the child: nobody is inside, and the parent's threads are gone."""
        self._reset()


GATE = Gate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=GATE.close, after_in_parent=GATE.open, after_in_child=GATE.forked)
