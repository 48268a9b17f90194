"""Signals that ask durastore to stop, and the commands that are under way when they come."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

from durastore.cli.exits import Interrupted, tell

__all__ = ["Child", "Stopper"]

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class Child:
    """A command under way, in a process group of its own unless the terminal is its own to read."""

    def __init__(self, process: subprocess.Popen[bytes], *, group: bool) -> None:
        self.process = process
        self.group = group
        self.target = -process.pid if group else process.pid
        """What to send signals to."""
        self.asked: int | None = None
        """The signal that it was sent."""

    def send(self, signum: int) -> None:
        """Send a signal, also to what the command has started itself."""
        self.asked = signum
        if self.group or self.process.poll() is None:
            with suppress(OSError):
                os.kill(self.target, signum)


class Stopper:
    """What SIGINT, SIGTERM and SIGHUP do while commands run. A context manager, for the main thread.

    With no command under way, they raise `Interrupted`. Otherwise the first one is passed on to the commands; or, when
    `patient`, a Ctrl-C lets them finish, and the next one, or any SIGTERM, stops them. One more kills them, and one more ends
    this process as it stands.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.patient = patient
        self.signum: int | None = None
        """The first signal that came."""
        self._held = False
        """While true, a signal never raises: an effect of the main thread has begun and is not settled yet."""
        self._busy: set[int] = set()
        """The threads whose command starts, runs or ends."""
        self._level = 0
        self._children: dict[int, Child] = {}
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopper:
        for name in _NAMES:
            number = getattr(signal, name)
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a shell's background, has its reasons
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def asked(self) -> bool:
        """Whether a signal came."""
        return self.signum is not None

    def check(self) -> None:
        """Raise `Interrupted` when a signal came."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    @contextmanager
    def effect(self) -> Iterator[None]:
        """An effect, in whichever thread. In the main one, signals do not raise until it is `settled`, and stored."""
        thread = threading.get_ident()
        self._held = self._held or threading.current_thread() is threading.main_thread()
        self._busy.add(thread)
        try:
            yield
        finally:
            self._busy.discard(thread)

    def settled(self) -> None:
        """The main thread's effect is stored, or was given back."""
        self._held = False

    @contextmanager
    def watching(self, child: Child) -> Iterator[None]:
        """Pass signals on to a command while it runs."""
        self._children[child.process.pid] = child
        if self._order() is not None:  # it came while the command started
            self._send(child)
        try:
            yield
        finally:
            del self._children[child.process.pid]

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        self.signum = self.signum or signum
        softly = self.patient and signum == signal.SIGINT
        self._level = self._level + 1 if softly or self._level else (2 if self.patient else 1)
        idle = not self._busy and not self._held
        if self._is_last_straw(idle=idle):
            tell("left as it is; claims lapse by themselves")
            os._exit(128 + signum)
        if idle:
            raise Interrupted(signum)
        if self.patient:
            self._announce(max(1, len(self._busy)))
        for child in list(self._children.values()):
            self._send(child)

    def _is_last_straw(self, *, idle: bool) -> bool:
        kills = 3 if self.patient else 2
        return self._level > kills or (self._level == kills and idle)

    def _announce(self, count: int) -> None:
        commands = "1 command" if count == 1 else f"{count} commands"
        if self._level == 1:
            tell(f"letting {commands} finish; Ctrl-C again stops")
        elif self._level == 2:  # noqa: PLR2004  the second step of the ladder
            tell(f"stopping {commands}; another signal kills")

    def _order(self) -> int | None:
        """What the commands under way are to get now."""
        level = self._level - 1 if self.patient else self._level
        if level < 1:
            return None
        if level > 1:
            return signal.SIGKILL
        return signal.SIGTERM if self.patient else self.signum

    def _send(self, child: Child) -> None:
        order = self._order()
        if order is None:
            return
        if order == signal.SIGINT and not child.group:
            child.asked = order  # the terminal has sent it to the whole foreground group
            return
        child.send(order)
