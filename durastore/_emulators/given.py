"""Servers that are not ours to start or stop: those that a URL names, and the stores that need none."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from durastore._emulators.answers import EmulatorError

__all__ = ["GivenServer", "no_server"]


class GivenServer:
    """A store that is there already. `stop` leaves it alone but for a `folder` that was made for it."""

    how = "url"

    def __init__(self, name: str, url: str, version: str, folder: Path | None = None) -> None:
        self.name = name
        self.url = url
        self.version = version
        self._folder = folder

    keeps_data = True

    def stop(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        raise EmulatorError(f"{self.name}: {self.version} was not started here, and is not killed here")

    def restart(self) -> None:
        raise EmulatorError(f"{self.name}: {self.version} was not started here, and is not restarted here")

    def log(self) -> str:
        return ""

    def __enter__(self) -> GivenServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def no_server(name: str) -> GivenServer:
    """``sqlite`` in a file of its own, or ``memory``."""
    if name == "memory":
        return GivenServer(name, "memory://", "memory")
    import sqlite3

    folder = Path(tempfile.mkdtemp(prefix="durastore-sqlite-"))
    return GivenServer(name, f"sqlite:///{folder}/durastore.db", f"SQLite {sqlite3.sqlite_version}", folder)
