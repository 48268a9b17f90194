"""Stops the commands of a durastore that was killed, so that none works on under a claim that nobody holds, and lets those
claims go, so that nobody has to wait for their leases.

Run as a script whose standard input is its lifeline: the first line is the release program, as a JSON list; then ``+N JSON``
names a process (or, negative, a process group) to watch and what to tell the release program about it, and ``-N`` one that has
ended. When the input ends, whatever is left is asked to stop, and killed two seconds later. It knows nothing of the store, and
imports next to nothing, since every `once` and `map` starts one.
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
    release = sys.stdin.buffer.readline()
    left: dict[int, bytes] = {}
    for line in sys.stdin.buffer:
        target, _, claim = line[1:].partition(b" ")
        if line.startswith(b"+"):
            left[int(target)] = claim
        else:
            left.pop(int(target), None)
    if left:
        _stop(list(left))
        _let_go(release, b"".join(left.values()))


def _stop(targets: list[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        targets = [target for target in targets if _send(target, number)]
        ends = time.monotonic() + GRACE_SECONDS
        while targets and time.monotonic() < ends:
            time.sleep(0.02)
            targets = [target for target in targets if _send(target, 0)]


def _send(target: int, number: int) -> bool:
    try:
        os.kill(target, number)
    except OSError:
        return False
    return True


def _let_go(release: bytes, claims: bytes) -> None:
    import json
    import subprocess

    subprocess.run(json.loads(release), input=claims, stderr=subprocess.DEVNULL, check=False)  # noqa: S603  our own program


if __name__ == "__main__":
    main()
