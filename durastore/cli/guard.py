"""Stops the commands of a durastore that was killed, so that none works on under a claim that nobody holds, and lets those
claims go, so that nobody has to wait for their leases.

Run as a script whose standard input is its lifeline. The first line is the program that lets claims go, as a JSON list. Then
``hold SLOT JSON`` names the claim that a thread begins to work under, in place of its former one; ``watch SLOT N`` its command, a
process or (negative) a process group; ``ended SLOT`` says that it has ended; ``farewell`` that all is well. When the input ends
without it, what runs is asked to stop, and killed two seconds later, and the claims are let go. It knows nothing of the store,
and imports next to nothing, since every `once` and `map` starts one.
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
    targets: dict[bytes, int | None] = {}
    for line in sys.stdin.buffer:
        word, _, rest = line.partition(b" ")
        slot, _, what = rest.strip().partition(b" ")
        if word == b"hold":
            claims[slot] = what
            targets[slot] = None
        elif word == b"watch":
            targets[slot] = int(what)
        elif word == b"ended":
            targets.pop(slot, None)
        else:
            return
    if claims:
        _stop([_found(claims[slot]) if target is None else target for slot, target in targets.items()])
        _let_go(release, b"\n".join(claims.values()))


def _found(claim: bytes) -> int:
    """The command of a claim whose process was killed before it could say which: the one that was given its key and token.

    Looks for a moment, since the command may be about to start. 0 when there is none, or no /proc to look at.
    """
    import json

    told = json.loads(claim)
    wanted = {f"DURASTORE_{name.upper()}={told[name]}".encode() for name in ("key", "token")}
    for _ in range(10):
        for name in _pids():
            if wanted <= _environment(name):
                return -int(name) if os.getpgid(int(name)) == int(name) else int(name)
        time.sleep(0.02)
    return 0


def _environment(pid: str) -> set[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def _stop(targets: list[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        targets = [target for target in targets if target and _send(target, number)]
        ends = time.monotonic() + GRACE_SECONDS
        while targets and time.monotonic() < ends:
            time.sleep(0.02)
            targets = [target for target in targets if _send(target, 0) and not _is_buried(target)]


def _is_buried(target: int) -> bool:
    """Whether only zombies are left: in a container without an init they stay for ever."""
    states = [state for state, pid, group in map(_state, _pids()) if target in (pid, -group)]
    return bool(states) and all(state == "Z" for state in states)


def _state(pid: str) -> tuple[str, int, int]:
    """A process's state, id and group."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "Z", 0, 0
    return fields[0], int(pid), int(fields[2])


def _pids() -> list[str]:
    """All processes, none where there is no /proc."""
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  pathlib is slow to import
    except OSError:
        return []


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
