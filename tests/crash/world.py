"""A store and the outside world of runs that die, in virtual time: no test here waits for a lease."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import durastore
from durastore import urls
from tests.crash.killing import Deadly, Outside
from tests.unit.virtual import StillKeeper, VirtualClock

HOUR = 3600.0
CREATE = "CREATE TABLE IF NOT EXISTS rows (key TEXT NOT NULL)"


class World:
    """The outside: a file that counts what was delivered for each key, whatever becomes of whoever delivers."""

    def __init__(self, folder: Path, store: Path | None = None) -> None:
        folder.mkdir()
        self.folder = folder
        self.outside = Outside(folder / "outside")
        if store is not None:
            shutil.copy(store, folder / "store.db")

    def rows(self) -> Counter[str]:
        """What effects delivered through `tx`."""
        with closing(sqlite3.connect(self.folder / "store.db")) as connection:
            return Counter(key for (key,) in connection.execute("SELECT key FROM rows"))

    def open(
        self, points: Callable[..., None] = lambda *_what: None, *, elapsed: float = 0.0, statements: bool = False
    ) -> durastore.Store:
        """The store at a time of our own: `elapsed` seconds after the first run began. Points at `statements`, too, if asked."""
        backend: Any = urls.connect(urls.parse(f"sqlite:///{self.folder / 'store.db'}"))
        clock = VirtualClock()
        clock.elapsed = elapsed
        store = durastore.Store(Deadly(backend, points), clock=clock)  # type: ignore[arg-type]
        store.keeper = StillKeeper(store._renew, clock)
        if statements:
            trace(backend._connections, points)
        store.setup()
        return store


def trace(connections: Any, points: Callable[..., None]) -> None:
    """A point before each statement of each connection that is opened from now on."""
    opens = connections.open

    def opened(mode: str) -> sqlite3.Connection:
        connection: sqlite3.Connection = opens(mode)
        connection.set_trace_callback(points)
        return connection

    connections.open = opened


def template(folder: Path) -> Path:
    """A store that is set up and empty, to copy from: setting up costs more than a whole run."""
    path = folder / "template.db"
    durastore.open(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(CREATE)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path
