"""Read, decide, write: documents as they were read at one time, and what to write on condition that none has changed since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from durastore.contract import Grant, Payload, StoredProgress, StoredRecord
from durastore_firestore import wire
from durastore_firestore.chunks import Chunks
from durastore_firestore.documents import Names, Run, placed_fields, record_fields, record_of, run_fields, run_of
from durastore_firestore.rpc import Seen, ServerClock
from durastore_firestore.wire import Message

__all__ = ["Draft", "blob_of"]


@dataclass(frozen=True, slots=True)
class _RunChange:
    """What to write for a run: None deletes it. See `run_fields`."""

    progress: StoredProgress | None
    drawn: bool = False
    saved: int | None = None


class Draft:
    """Some records and runs, and the changes to make to them in one commit. Reads show what was written to the draft."""

    def __init__(self, seen: Seen, keys: Sequence[str], runs: Sequence[str], names: Names, now: int | None) -> None:
        self.virtual = now
        self.now = seen.read_time if now is None else now
        """The time that decides, in microseconds."""
        self._names = names
        found = seen.documents
        self._before = {
            key: record_of(found[name]) if name in found else None
            for key, name in ((key, names.record(key)) for key in keys)
        }
        self._runs_before = {
            run: run_of(found[name]) if name in found else Run(StoredProgress(run, 0, None), None)
            for run, name in ((run, names.run(run)) for run in runs)
        }
        self._records: dict[str, StoredRecord | None] = {}
        self._placed: set[str] = set()
        self._runs: dict[str, _RunChange] = {}
        self._record_versions: dict[str, int] = {}
        self._run_versions: dict[str, int] = {}

    def record(self, key: str) -> StoredRecord | None:
        """The record of a key, as read or as written to this draft."""
        return self._records[key] if key in self._records else self._before[key]

    def run(self, run_id: str) -> StoredProgress | None:
        """The progress of a run, as it was read."""
        before = self._runs_before[run_id]
        return None if before.version is None else before.progress

    def write(self, record: StoredRecord | None) -> None:
        """Change or add a record; None changes nothing."""
        if record is not None:
            self._records[record.key] = record

    def place(self, record: StoredRecord | None) -> None:
        """Add a record with the times that it had in another store; None changes nothing."""
        if record is not None:
            self.write(record)
            self._placed.add(record.key)

    def drop(self, key: str) -> None:
        """Delete a record."""
        self._records[key] = None

    def advance(self, progress: StoredProgress | None) -> None:
        """Change or add a run's progress; None changes nothing."""
        if progress is not None:
            self._runs[progress.run_id] = _RunChange(progress)

    def place_run(self, run: StoredProgress) -> None:
        """Add a run with the time that it had in another store."""
        self._runs[run.run_id] = _RunChange(run, saved=run.updated_at)

    def draw(self, progress: StoredProgress) -> None:
        """Change or add a run's incarnation; its first one is the time of the write. When it was saved last stays."""
        before = self.run(progress.run_id)
        drawn = before is None or not before.incarnation
        self._runs[progress.run_id] = _RunChange(progress, drawn, None if before is None else before.updated_at)

    def drop_run(self, run_id: str) -> None:
        """Delete a run's progress."""
        self._runs[run_id] = _RunChange(None)

    def writes(self, chunks: Chunks, clock: ServerClock) -> list[Message]:
        """The conditional writes that carry out this draft: records, runs, then what is known of their large payloads."""
        made = [self._record_write(key, record, clock) for key, record in self._records.items()]
        made += [self._run_write(run_id, change) for run_id, change in self._runs.items()]
        for key, record in self._records.items():
            until = None if record is None else record.retain_until
            made += chunks.follow(_blob(self._before[key]), _blob(record), until)
        for run_id, change in self._runs.items():
            made += chunks.follow(_state_blob(self._runs_before[run_id].progress), _state_blob(change.progress), None)
        return made

    def _record_write(self, key: str, record: StoredRecord | None, clock: ServerClock) -> Message:
        name, before = self._names.record(key), self._before[key]
        if record is None:
            return wire.delete(name, None if before is None else before.version)
        if key in self._placed:
            fields = placed_fields(record, clock)
        else:
            fields = record_fields(record, clock, now=self.virtual, fresh=before is None)
        return wire.replace(name, fields, None if before is None else before.version)

    def _run_write(self, run_id: str, change: _RunChange) -> Message:
        name, before = self._names.run(run_id), self._runs_before[run_id]
        if change.progress is None:
            return wire.delete(name, before.version)
        fields = run_fields(change.progress, now=self.virtual, drawn=change.drawn, saved=change.saved)
        return wire.replace(name, fields, before.version)

    def written(self, times: Sequence[int]) -> None:
        """Note the update times that the commit answered."""
        self._record_versions = dict(zip(self._records, times, strict=False))
        self._run_versions = dict(zip(self._runs, times[len(self._records) :], strict=False))

    def grant(self, grant: Grant) -> Grant:
        """A grant that this draft wrote, as it is after the commit: a fresh key's token is the time of its write."""
        version, before = self._record_versions.get(grant.key), self._before[grant.key]
        if version is None:
            return grant
        if before is None:
            return replace(grant, token=version if self.virtual is None else self.virtual, version=version)
        after = self._records[grant.key]
        is_current = after is not None and after.token == grant.token
        return replace(grant, version=version if is_current else None)

    def runs(self) -> dict[str, Run]:
        """The runs as they are after the commit, for the cache; a deleted one has no version."""
        return {run_id: self._run_after(run_id) for run_id in self._runs_before}

    def versions(self) -> list[int | None]:
        """The versions of all documents as they were read."""
        records = [None if record is None else record.version for record in self._before.values()]
        return [*records, *(run.version for run in self._runs_before.values())]

    def _run_after(self, run_id: str) -> Run:
        if run_id not in self._runs:
            return self._runs_before[run_id]
        change, version = self._runs[run_id], self._run_versions[run_id]
        if change.progress is None:
            return Run(StoredProgress(run_id, 0, None), None)
        at = version if self.virtual is None else self.virtual
        incarnation = at if change.drawn else change.progress.incarnation
        saved = at if change.saved is None else change.saved
        return Run(replace(change.progress, incarnation=incarnation, updated_at=saved), version)


def blob_of(payload: Payload | None) -> str | None:
    """The chunks that a payload points to."""
    return None if payload is None else payload.blob


def _blob(record: StoredRecord | None) -> str | None:
    return None if record is None else blob_of(record.result)


def _state_blob(progress: StoredProgress | None) -> str | None:
    return None if progress is None else blob_of(progress.state)
