"""A process that forks others, to be killed and frozen. It has loaded everything and opened nothing, so that a fork is cheap and
safe: no thread, no lock and no connection is inherited.

Run as ``python -m durastore.conformance.nursery``; each line on standard input is a command, each on standard output its
answer.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from durastore.conformance.environment import inherited

__all__ = ["Nursery"]

_RUNNERS = {"__main__", "_pytest", "conftest", "execnet", "hypothesis", "pytest", "xdist"}


class Nursery:
    """Children that run what can be pickled. A context manager; none of them outlives it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "durastore.conformance.nursery"]
        self._process = subprocess.Popen(  # noqa: S603  ourselves
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=inherited(),
            start_new_session=True,  # Ctrl-C is for whoever runs the tests
        )
        self._alive: set[int] = set()
        self.still: set[int] = set()
        """Children that stopped, as far as `is_over` has seen."""
        self._say("load " + " ".join(_drivers()))

    def start(self, work: Callable[[], Any]) -> int:
        """Run it in a child of its own; the child's process id."""
        child = int(self._say(f"start {base64.b64encode(pickle.dumps(work)).decode()}"))
        self._alive.add(child)
        return child

    def wait(self, child: int) -> int | None:
        """Until it stands still (None) or ends: its exit code, or minus the signal that killed it."""
        answer = self._say(f"wait {child}")
        if answer == "stopped":
            return None
        self._alive.discard(child)
        return int(answer)

    def is_over(self, child: int) -> int | None:
        """How it ended, as `wait` says it; None while it has not."""
        answer = self._say(f"poll {child}")
        if answer == "stopped":
            self.still.add(child)
        if answer in ("runs", "stopped"):
            return None
        self._alive.discard(child)
        return int(answer)

    def go_on(self, child: int) -> None:
        """Let a child that stands still go on."""
        self.still.discard(child)
        os.kill(child, signal.SIGCONT)

    def _say(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer, "the nursery failed; its error is in the captured output"
        return answer

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._alive:
            os.kill(child, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _drivers() -> list[str]:
    """What this process has loaded, but for the test runner: drivers load themselves when they are first used."""
    tops = {name: name.partition(".")[0] for name in list(sys.modules)}
    return [name for name, top in tops.items() if top not in _RUNNERS and not top.startswith("test")]


def _load(names: str) -> str:
    for name in names.split():
        with suppress(Exception):
            import_module(name)
    return "loaded"


def _start(work: str) -> int:
    child = os.fork()
    if child:
        _children.add(child)
        return child
    code = 1
    try:
        pickle.loads(base64.b64decode(work))()  # noqa: S301  written by our parent
        code = 0
    except BaseException:  # noqa: BLE001  it ends here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(child: str, flags: int = 0) -> str:
    found, status = os.waitpid(int(child), os.WUNTRACED | flags)
    if not found:
        return "runs"
    if not os.WIFSTOPPED(status):
        _children.discard(found)
    return "stopped" if os.WIFSTOPPED(status) else str(os.waitstatus_to_exitcode(status))


def _poll(child: str) -> str:
    return _wait(child, os.WNOHANG)


_children: set[int] = set()
_COMMANDS: dict[str, Callable[[str], Any]] = {"load": _load, "start": _start, "wait": _wait, "poll": _poll}


def main() -> None:
    """Do as told until nobody is there to tell; then end what is left, frozen or not."""
    for line in sys.stdin:
        command, _, what = line.strip().partition(" ")
        answer = _COMMANDS[command](what)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for child in _children:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
