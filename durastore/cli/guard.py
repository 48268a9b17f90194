"""Stops the commands of a durastore that was killed, so that none works on under a claim that nobody holds, and lets those
claims go, so that nobody has to wait for their leases.

Run as a script whose standard input is its lifeline. The first line is the program that lets claims go, as a JSON list. Then
``hold SLOT JSON`` names the claim that a thread works under, in place of its former one; ``watch N`` a process (or, negative, a
process group) that runs, ``ended N`` one that has ended; ``farewell`` says that all is well. When the input ends without it,
what runs is asked to stop, and killed two seconds later, and the claims are let go. It knows nothing of the store, and imports
next to nothing, since every `once` and `map` starts one.
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
    claims: dict[bytes, bytes] = {}
    running: set[int] = set()
    for line in sys.stdin.buffer:
        word, _, rest = line.partition(b" ")
        if word == b"hold":
            slot, _, claim = rest.partition(b" ")
            claims[slot] = claim
        elif word == b"watch":
            running.add(int(rest))
        elif word == b"ended":
            running.discard(int(rest))
        else:
            return
    _stop(list(running))
    if claims:
        _let_go(release, b"".join(claims.values()))


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
