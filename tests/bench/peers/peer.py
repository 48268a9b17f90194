"""What is known of a peer before it is run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .timing import Kind

STEP = "run_agent over a list"
ONCE = "run_once, executed"
SKIPPED = "run_once, skipped"
REPLAY = "run_agent, replayed"
"""Which of durastore's own rows a peer's row is compared with."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer keeps its tables: the URL of a server, and a folder for files. Both are thrown away."""

    url: str
    folder: Path
    table: str
    """The beginning of names that no other run uses, for stores whose tables lie side by side."""
    server: str
    """Which program serves, and its version."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a peer does, and the row of durastore's that does the same."""

    what: str
    like: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Peer:
    """A library on a store. `needs`: the distributions, its own first."""

    name: str
    store: str
    needs: tuple[str, ...]
    open: Callable[[Place], AbstractContextManager[list[Line]]]
    remark: str = ""
    """Why the figure is no like for like."""

    def versions(self) -> dict[str, str | None]:
        """The version of each distribution, None for what is not installed."""
        return {name: _version(name) for name in self.needs}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
