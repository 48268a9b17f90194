"""Servers that several processes share, one file for each in a folder: started by whoever comes first, ended by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from durastore._emulators.catalogue import given_url
from durastore._emulators.local import end
from durastore._emulators.supervisor import Process
from durastore.emulators import NAMES, EmulatorError, launch

__all__ = ["Record", "Registry"]


@dataclass(frozen=True, slots=True)
class Record:
    """One server that runs."""

    name: str
    url: str
    version: str
    how: str
    folder: str
    pid: int
    """The supervisor's."""
    started: str
    """With the pid it names the process, so that a recycled pid is never killed."""

    cleanup: list[str]
    """What has to be run before its folder is removed."""

    @property
    def process(self) -> Process:
        return Process(self.pid, self.started)

    def end(self) -> bool:
        """End it and remove what it wrote. Returns whether it was still running."""
        return end(self.process, Path(self.folder), self.cleanup)


class Registry:
    """The servers that this folder knows."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def up(self, name: str, owner: Process | None = None) -> Record:
        """The server of this name, started now if none runs. It lives until `down`, or until `owner` ends, if one is given."""
        behind = given_url("postgresql") or self.up("postgresql", owner).url if name == "pgbouncer" else None
        with self._lock(name):
            return self._running(name) or self._start_anew(name, owner, behind)

    def running(self) -> list[Record]:
        """What runs, in the order of `NAMES`."""
        return [record for name in NAMES if (record := self._running(name))]

    def down(self, names: Sequence[str] = ()) -> list[Record]:
        """End these, or all, but nothing that this registry did not start. Returns those that ran."""
        ended = []
        for name in reversed(NAMES):
            if (not names or name in names) and self._file(name).exists():
                with self._lock(name):
                    ended += [record for record in self._recorded(name) if record.end()]
                    self._file(name).unlink(missing_ok=True)
        return ended

    def _start_anew(self, name: str, owner: Process | None, behind: str | None) -> Record:
        for dead in self._recorded(name):
            dead.end()
        server = launch(name, owner, behind)
        process = server.process
        record = Record(
            name=name,
            url=server.url,
            version=server.version,
            how=server.how,
            folder=str(server.site.folder),
            pid=process.pid,
            started=process.started,
            cleanup=server.cleanup,
        )
        try:
            self._file(name).write_text(json.dumps(asdict(record)), encoding="utf-8")
        except BaseException:
            server.stop()
            raise
        return record

    def _running(self, name: str) -> Record | None:
        return next((record for record in self._recorded(name) if record.process.alive()), None)

    def _recorded(self, name: str) -> Iterator[Record]:
        try:
            document = self._file(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        try:
            yield Record(**json.loads(document))
        except (ValueError, TypeError) as exc:
            raise EmulatorError(f"{self._file(name)} is damaged; remove it, and end the server by hand") from exc

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        import fcntl

        with (self._folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
