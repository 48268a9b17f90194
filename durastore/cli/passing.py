"""Output of commands on our own streams, byte for byte."""

from __future__ import annotations

import os
import sys
import threading
from typing import IO

__all__ = ["PassOn", "own_streams"]


class PassOn:
    """Writes to one of our own streams, and falls silent when whoever read it has gone: the command is to end all the same."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, data: bytes) -> None:
        with self._lock:
            try:
                self._stream.write(data)
                self._stream.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            except OSError:
                return


def own_streams() -> tuple[PassOn, PassOn]:
    """For a command's stdout and stderr."""
    return PassOn(sys.stdout.buffer), PassOn(sys.stderr.buffer)
