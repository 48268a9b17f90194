"""Kills the commands of a durastore that was killed itself, so that none works on under a claim that nobody holds.

Run as a script with the standard input as its lifeline: ``+N`` names a process (or, negative, a process group) to watch, ``-N``
one that has ended. When the input ends, whatever is left is asked to stop, and killed two seconds later.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_SECONDS = 2.0


def main() -> None:
    """Watch until the input ends. In a session of its own, it outlives what kills the others."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    left: set[int] = set()
    for line in sys.stdin.buffer:
        (left.add if line.startswith(b"+") else left.discard)(int(line[1:]))
    left = {target for target in left if _kill(target, signal.SIGTERM)}
    if left:
        time.sleep(GRACE_SECONDS)
        for target in left:
            _kill(target, signal.SIGKILL)


def _kill(target: int, number: int) -> bool:
    try:
        os.kill(target, number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
