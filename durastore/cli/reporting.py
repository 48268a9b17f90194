"""How far `map` is, for people, on stderr: a bar on a terminal, a line a second otherwise."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Protocol

from durastore.cli.exits import tell
from durastore.cli.passing import own_streams

__all__ = ["Bar", "Plain", "Report", "Silent", "report"]

LINE_SECONDS = 1.0
"""Between two plain lines about progress."""


class Report(Protocol):
    """What is told while a run goes on. A context manager."""

    def __enter__(self) -> Report: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def moved(self, done: int) -> None:
        """So many steps are done."""

    def show(self, out: bytes, err: bytes) -> None:
        """What a command wrote."""


class Silent:
    """Says only what must be said."""

    def __init__(self) -> None:
        self._streams = own_streams()

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""

    def moved(self, done: int) -> None:
        """Not worth a line."""

    def show(self, out: bytes, err: bytes) -> None:
        for stream, data in zip(self._streams, (out, err), strict=True):
            if data:
                stream(data)


class Plain(Silent):
    """At most a line a second, however many steps."""

    def __init__(self, total: int | None) -> None:
        super().__init__()
        self._of = "" if total is None else f"/{total}"
        self._next = 0.0

    def moved(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LINE_SECONDS
            tell(f"{done}{self._of} done")


class Bar(Silent):
    """A progress bar. Rich puts whatever else goes to the terminal above it."""

    def __init__(self, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__()
        self._lock = threading.Lock()
        self._stdout_is_terminal = sys.stdout.isatty()
        self._bar = Progress(
            TextColumn("durastore"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            redirect_stdout=self._stdout_is_terminal,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Report:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def moved(self, done: int) -> None:
        self._bar.update(self._task, completed=done)

    def show(self, out: bytes, err: bytes) -> None:
        with self._lock:
            if self._stdout_is_terminal:
                sys.stdout.write(out.decode("utf-8", "replace"))
            else:
                super().show(out, b"")
            sys.stderr.write(err.decode("utf-8", "replace"))


def report(total: int | None, *, quiet: bool) -> Report:
    """The one that fits where stderr goes."""
    if quiet:
        return Silent()
    return Bar(total) if sys.stderr.isatty() else Plain(total)
