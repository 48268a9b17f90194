"""Our side of the guard: the process that stops our commands, and lets go of their claims, should we be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from durastore.claims import Claim
from durastore.cli.release import described
from durastore.cli.stopping import Child

__all__ = ["Guard"]


class Guard:
    """Started with the first command. A context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell("farewell")
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()

    def hold(self, claim: Claim) -> None:
        """Know the claim that this thread works under, should we be killed.

        It is known until the thread's next one, since when it is stored is not known here: to let go of a settled claim changes
        nothing.
        """
        with self._lock:
            self._start()
        self._tell(f"hold {threading.get_ident()} {json.dumps(described(self._url, claim.grant))}")

    def _start(self) -> None:
        if self._process is not None:
            return
        self._process = subprocess.Popen(  # noqa: S603  our own script
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._tell(json.dumps([sys.executable, "-m", "durastore.cli.release"]))

    @contextmanager
    def watching(self, child: Child) -> Iterator[None]:
        """While a command runs, let it end with this process."""
        slot = threading.get_ident()
        self._tell(f"watch {slot} {child.target}")
        try:
            yield
        finally:
            self._tell(f"ended {slot}")

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(line.encode() + b"\n")
