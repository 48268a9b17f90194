"""A server as a process of this machine, in a temporary folder, on a free port of loopback."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from durastore._emulators import supervisor
from durastore._emulators.answers import EmulatorError
from durastore._emulators.finding import unprivileged_user
from durastore._emulators.recipe import HOST, Recipe, Site
from durastore._emulators.supervisor import Order, Process

__all__ = ["LocalServer", "end", "free_port", "run_as"]

POLL = 0.02
TAIL = 25
"""Lines of the log that an error shows."""
PORT_TRIES = 3
"""A free port may be taken by another before the server binds it."""
PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections."""
END_MAX = supervisor.STOP_MAX + 10


class LocalServer:
    """A running server. `owner` is the process that it lives with, this one by default; None: it lives until `stop`."""

    def __init__(self, name: str, recipe: Recipe, owner: Process | None) -> None:
        self.name = name
        self.how = recipe.how
        self._recipe = recipe
        self._owner = owner
        self._supervisor: subprocess.Popen[bytes] | None = None
        self.site = _new_site(name, recipe)
        self.version = ""
        try:
            recipe.prepare(self.site)
            self._start_on_a_free_port()
        except BaseException as exc:
            kept = self._keep_log()
            self.stop()
            if isinstance(exc, EmulatorError):
                raise EmulatorError(f"{exc}{kept}") from exc.__cause__
            raise

    @property
    def url(self) -> str:
        return self._recipe.url(self.site)

    @property
    def keeps_data(self) -> bool:
        """Do the data survive `restart`?"""
        return self._recipe.keeps

    @property
    def cleanup(self) -> list[str]:
        """What has to be run before its folder is removed."""
        return self._recipe.cleanup(self.site)

    @property
    def process(self) -> Process:
        """The supervisor, for whoever ends the server later from another process."""
        assert self._supervisor is not None, "a server that was started has one"
        found = Process.of(self._supervisor.pid)
        if found is None:
            raise EmulatorError(f"{self.name}: has ended{self._tail()}")
        return found

    def stop(self) -> None:
        """Stop it and remove its folder. Repeatable."""
        self._end_supervisor()
        supervisor.remove(self.site.folder, self.cleanup)

    def kill(self) -> None:
        """End it as a crash would, workers and all, and keep its data. Returns when it has ended."""
        assert self._supervisor is not None, "a server that was started has one"
        self._supervisor.send_signal(signal.SIGUSR1)
        _await(lambda: not self._status().startswith("running"), END_MAX, f"{self.name} could not be killed")

    def restart(self) -> None:
        """Stop it if it runs, and start it again on the same port. Data survive where `keeps_data` says so."""
        self._end_supervisor()
        self._start()

    def log(self) -> str:
        """What the server wrote."""
        with suppress(OSError):
            return (self.site.folder / "log").read_text(encoding="utf-8", errors="replace")
        return ""

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_on_a_free_port(self) -> None:
        for attempt in range(PORT_TRIES):
            try:
                self._start()
                break
            except EmulatorError:
                if attempt == PORT_TRIES - 1 or "in use" not in self.log().lower():
                    raise
                self._end_supervisor()
                (self.site.folder / "log").unlink()
                self.site = Site(self.site.folder, free_port(), self.site.user)

    def _start(self) -> None:
        (self.site.folder / supervisor.STATUS).write_text("starting", encoding="ascii")
        order = Order(
            self._recipe.command(self.site),
            str(self.site.folder),
            self.site.user,
            self._recipe.stop_signal,
            self._owner,
            self._recipe.after(self.site),
            self.cleanup,
        )
        self._supervisor = subprocess.Popen(  # noqa: S603  our own script
            [sys.executable, "-I", "-S", supervisor.__file__, order.to_json()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.site.folder / "log").open("ab"),
            env={**os.environ, **self._recipe.environment(self.site)},
            start_new_session=True,
        )
        self.version = self._await_ready()

    def _await_ready(self) -> str:
        give_up = time.monotonic() + self._recipe.start_max
        while True:
            try:
                version = self._recipe.probe(self.url)
            except Exception as exc:  # a server that is not ready fails in many ways
                if self._has_ended() or time.monotonic() > give_up:
                    what = (
                        "ended at once" if self._has_ended() else f"does not serve after {self._recipe.start_max:g} s"
                    )
                    raise EmulatorError(f"{self.name}: {self._recipe.what} {what} ({exc}){self._tail()}") from exc
                time.sleep(POLL)
            else:
                if self._has_ended():
                    raise EmulatorError(f"{self.name}: its port is in use by another server{self._tail()}")
                return version

    def _has_ended(self) -> bool:
        assert self._supervisor is not None, "started"
        return self._supervisor.poll() is not None or self._status().startswith("ended")

    def _status(self) -> str:
        with suppress(OSError):
            return (self.site.folder / supervisor.STATUS).read_text(encoding="ascii")
        return ""

    def _end_supervisor(self) -> None:
        if self._supervisor is None:
            return
        with suppress(ProcessLookupError):
            self._supervisor.terminate()
        self._supervisor.wait(END_MAX)
        self._supervisor = None

    def _tail(self) -> str:
        lines = self.log().splitlines()[-TAIL:]
        return "".join(f"\n  | {line}" for line in lines)

    def _keep_log(self) -> str:
        """Where the log of a server that did not start can be read at leisure."""
        if not self.log():
            return ""
        kept = Path(tempfile.gettempdir()) / f"{self.site.folder.name}.log"
        kept.write_text(self.log(), encoding="utf-8")
        return f"; its log: {kept}"


def _new_site(name: str, recipe: Recipe) -> Site:
    folder = Path(tempfile.mkdtemp(prefix=f"durastore-{name}-"))
    user = unprivileged_user() if recipe.drops_root else None
    if user is not None:
        shutil.chown(folder, user)
    return Site(folder, free_port(), user)


def free_port() -> int:
    """A port of loopback that nobody uses, and that no outgoing connection will take while its server restarts."""
    for port in [*random.sample(PORTS, 20), 0]:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return int(probe.getsockname()[1])
    raise EmulatorError(f"no port of {HOST} is free")


def run_as(site: Site, *command: str, stdin: str = "") -> None:
    """Run a preparing step as the site's user, in its folder. Raises `EmulatorError` with what it said."""
    identity = supervisor.identity(site.user)
    done = subprocess.run(  # type: ignore[call-overload]  # noqa: S603  the identity is three arguments, or none
        command,
        input=stdin,
        capture_output=True,
        text=True,
        cwd=site.folder,
        timeout=120,
        check=False,
        **identity,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise EmulatorError(f"{Path(command[0]).name} failed with {done.returncode}: {said}")


def end(process: Process, folder: Path, cleanup: list[str]) -> bool:
    """End a server that another process started, and remove its folder. Returns whether it was still running."""
    running = process.alive()
    process.signal(signal.SIGTERM)
    _await(lambda: not process.alive(), END_MAX, f"process {process.pid} does not end")
    supervisor.remove(folder, cleanup)
    return running


def _await(done: Callable[[], bool], seconds: float, complaint: str) -> None:
    give_up = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up:
            raise EmulatorError(f"{complaint} within {seconds:g} s")
        time.sleep(POLL)
