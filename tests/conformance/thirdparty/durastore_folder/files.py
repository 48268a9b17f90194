"""The folder: what is in its files, and the lock around it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

from durastore.contract import Payload, StoredProgress, StoredRecord

__all__ = ["Contents", "Folder"]


@dataclass(slots=True)
class Contents:
    """All that the JSON file holds."""

    records: dict[str, StoredRecord] = field(default_factory=dict)
    runs: dict[str, StoredProgress] = field(default_factory=dict)
    blobs: dict[str, int] = field(default_factory=dict)
    """When the chunks of each blob were written, in microseconds."""
    user_data: dict[str, str] = field(default_factory=dict)

    def put(self, record: StoredRecord | None) -> None:
        """Write what a rule said; None is nothing."""
        if record is not None:
            self.records[record.key] = record

    def orphans(self, *, before: int) -> list[str]:
        """Blobs of that age that nothing points to."""
        payloads = [record.result for record in self.records.values()] + [run.state for run in self.runs.values()]
        used = {payload.blob for payload in payloads if payload is not None}
        return [blob for blob, written in self.blobs.items() if blob not in used and written <= before]


class Folder:
    """One namespace on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path / "contents.json"

    def create(self) -> None:
        """Make the folder, unless it is there."""
        (self.path / "chunks").mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[Contents]:
        """Everything between entering and leaving happens at once, or, when it raises, not at all."""
        self.create()
        with (self.path / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self._file.read_text() if self._file.exists() else _dump(Contents())
            contents = _load(before)
            yield contents
            after = _dump(contents)
            if after != before:
                _replace(self._file, after)

    def put_chunks(self, blob: str, chunks: Sequence[bytes]) -> None:
        """Write each chunk to a file of its own."""
        self.create()
        folder = self.path / "chunks" / blob
        folder.mkdir(exist_ok=True)
        for number, chunk in enumerate(chunks):
            (folder / f"{number:06}").write_bytes(chunk)

    def get_chunks(self, blob: str) -> list[bytes]:
        """The chunks that are there, in order."""
        folder = self.path / "chunks" / blob
        return [file.read_bytes() for file in sorted(folder.iterdir())] if folder.exists() else []

    def remove_chunks(self, blob: str) -> None:
        """Remove them all."""
        rmtree(self.path / "chunks" / blob, ignore_errors=True)


def _replace(file: Path, text: str) -> None:
    """Durable, and never half written."""
    new = file.with_suffix(".new")
    with new.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(file)


def _dump(contents: Contents) -> str:
    return json.dumps(asdict(contents), default=lambda data: base64.b64encode(data).decode())


def _load(text: str) -> Contents:
    loaded = json.loads(text)
    return Contents(
        records={key: StoredRecord(**_with_payload(fields, "result")) for key, fields in loaded["records"].items()},
        runs={name: StoredProgress(**_with_payload(fields, "state")) for name, fields in loaded["runs"].items()},
        blobs=loaded["blobs"],
        user_data=loaded["user_data"],
    )


def _with_payload(fields: dict[str, Any], name: str) -> dict[str, Any]:
    stored = fields[name]
    return fields | {name: stored and Payload(base64.b64decode(stored["data"]), stored["blob"])}
