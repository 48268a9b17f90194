"""The parent of one emulator process: it ends with its owner, and leaves nothing behind.

Run as a script, with the standard library alone: ``python -I -S supervisor.py ORDER``, where ORDER is the JSON of `Order`. As
the parent it can't hit a recycled process id, and it outlives a test process that is killed. Signals: SIGTERM stops the server
and ends, SIGUSR1 kills the server as a crash would, and stays. When the owner has gone, the server is stopped and the folder
removed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["STATUS", "Order", "Process", "identity", "remove", "started"]

STATUS = "status"
"""A file in the folder: ``running PID`` or ``ended CODE``."""
POLL = 0.05
STOP_MAX = 10.0
_SUBREAPER = 36
"""Of Linux' prctl: orphans below become ours, so that no worker of a killed server escapes."""


@dataclass(frozen=True)
class Process:
    """A process that can be told from a later one with the same id."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process with this id, or None when there is none."""
        when = started(pid)
        return None if when is None else cls(pid, when)

    def alive(self) -> bool:
        return started(self.pid) == self.started

    def signal(self, signum: int) -> None:
        """Send a signal, unless it has ended."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)


@dataclass(frozen=True)
class Order:
    """What to run."""

    command: list[str]
    folder: str
    """Where status and log go, and which goes when the owner does."""
    user: str | None = None
    """Whom to run it as, for servers that refuse root."""
    stop_signal: int = signal.SIGTERM
    owner: Process | None = None
    """None: run until told to end."""
    after: list[str] = field(default_factory=list)
    """A command to run when the server has ended."""
    cleanup: list[str] = field(default_factory=list)
    """A command to run before the folder goes."""
    stop_max: float = STOP_MAX
    """Seconds for the server to end by itself before it is killed."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, document: str) -> Order:
        order = json.loads(document)
        owner = order.pop("owner")
        return cls(**order, owner=Process(**owner) if owner else None)


def started(pid: int) -> str | None:
    """When a process began, in whatever unit the system has; None when it has ended."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    command = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None  # noqa: S603


class Supervisor:
    """One server, from its start to its end."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.folder = Path(order.folder)
        self.ending = self.crashing = False
        self.code: int | None = None
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGUSR1, self._on_crash)
        self.server = self._start()
        self._tell(f"running {self.server.pid}")

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            server: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603  the command was made by this package
                self.order.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.order.folder,
                start_new_session=True,
                **identity(self.order.user),  # type: ignore[call-overload]  # the three of them, or none
            )
        return server

    def _on_term(self, *_: object) -> None:
        self.ending = True

    def _on_crash(self, *_: object) -> None:
        self.crashing = True

    def _tell(self, status: str) -> None:
        draft = self.folder / f"{STATUS}.draft"
        draft.write_text(status, encoding="ascii")
        draft.replace(self.folder / STATUS)

    def watch(self) -> None:
        """Return when the server has ended for good."""
        while not self.ending:
            if self.order.owner is not None and not self.order.owner.alive():
                self.end()
                remove(self.folder, self.order.cleanup)
                return
            if self.crashing:
                self.crashing = False
                self._kill()
            self._reap()
            time.sleep(POLL)
        self.end()

    def _reap(self) -> None:
        if self.code is None and self.server.poll() is not None:
            self._kill()  # what it started goes with it
            self.code = self.server.returncode
            self._tell(f"ended {self.code}")

    def end(self) -> None:
        """Stop the server: as it likes to be told, then by force."""
        if self.server.poll() is None:
            self.server.send_signal(self.order.stop_signal)
            with suppress(subprocess.TimeoutExpired):
                self.server.wait(self.order.stop_max)
        self._kill()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            if self.server.poll() is None:
                os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()
        _kill_orphans()
        _run(self.order.after)


def remove(folder: Path, cleanup: list[str]) -> None:
    """Remove a server's folder, after what else it has left has been."""
    _run(cleanup)
    shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> None:
    if command:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603  ours


def _kill_orphans() -> None:
    """Where orphans come to us, kill and await them all."""
    while True:
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()]
    return []


def identity(user: str | None) -> dict[str, object]:
    """What makes `subprocess` run something as another user, without our groups; nothing for None."""
    if user is None:
        return {}
    import pwd

    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _adopt_orphans()
    Supervisor(Order.from_json(sys.argv[1])).watch()


if __name__ == "__main__":
    main()
