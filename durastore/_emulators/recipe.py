"""How one kind of server is made to run in a folder on a port; one `Recipe` per kind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HOST", "Recipe", "Site"]

HOST = "127.0.0.1"
"""Emulators listen on loopback only."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where one server lives."""

    folder: Path
    port: int
    user: str | None = None
    """Whom it runs as, when that is not us."""

    @property
    def data(self) -> Path:
        return self.folder / "data"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to run, and how to tell that it runs."""

    what: str
    """For people: the program and where it comes from."""
    command: Callable[[Site], list[str]]
    url: Callable[[Site], str]
    """The store's URL."""
    probe: Callable[[str], str]
    """Takes the URL; returns the server's name and version once it serves, and raises anything until then."""
    install: Callable[[], object] = lambda: None
    """Gets what the machine lacks, once. Raises `EmulatorError` when it can't; then the server is "not run"."""
    prepare: Callable[[Site], None] = lambda _site: None
    """Makes what must be there before the first start."""
    drops_root: bool = False
    """It refuses root, and is run as another user then."""
    environment: Callable[[Site], Mapping[str, str]] = lambda _site: {}
    stop_signal: int = signal.SIGTERM
    after: Callable[[Site], list[str]] = lambda _site: []
    """A command that is run each time it has ended, or has been killed."""
    cleanup: Callable[[Site], list[str]] = lambda _site: []
    """A command that is run before its folder is removed."""
    keeps: bool = False
    """Its data survive a restart."""
    how: str = "local"
    start_max: float = 60.0
    """Seconds until it must serve."""
