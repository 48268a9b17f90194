"""``folder://PATH``: a durastore backend in a folder. One JSON file under a file lock, chunks as files beside it.

Every method reads, lets `durastore.rules` decide, and writes, under one lock. That is slow and right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from durastore import rules
from durastore.contract import (
    Answer,
    ClaimRequest,
    Finding,
    Grant,
    Granted,
    Limits,
    Page,
    Payload,
    RecordState,
    StoredProgress,
    StoredRecord,
    Swept,
)
from durastore.errors import DurastoreError, FingerprintMismatch, StoreUnavailable
from durastore.urls import StoreURL
from durastore_folder.files import Contents, Folder

__all__ = ["FolderBackend", "connect"]

T = TypeVar("T")


def connect(url: StoreURL) -> FolderBackend:
    """Open ``folder://PATH``."""
    url.read()
    return FolderBackend(Path(url.path) / f"ns-{url.namespace}")


class FolderBackend:
    """A `durastore.contract.Backend`."""

    scheme = "folder"
    limits = Limits(inline=64 * 1024, chunk=1024 * 1024)
    creates_itself = True
    shares_clock = True

    def __init__(self, path: Path) -> None:
        self._folder = Folder(path)

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        with self._folder.locked() as contents:
            return _claim(contents, request, _time(now))

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        with self._folder.locked() as contents:
            return [_renew(contents, grant, _time(now)) for grant in grants]

    def commit(
        self,
        grant: Grant,
        *,
        result: Payload,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        then: ClaimRequest | None = None,
        now: int | None = None,
    ) -> Granted | None:
        with self._folder.locked() as contents:
            at = _time(now)
            _commit(contents, grant, result, retain, progress, at)
            return None if then is None else _claim_next(contents, then, at)

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """As in the contract; `tx` is a dictionary that is kept in the folder, too."""
        with self._folder.locked() as contents:
            at = _time(now)
            record = contents.records.get(grant.key)
            if rules.commit(record, grant, Payload(b""), retain, at) is None:
                assert record is not None
                return rules.committed(record).result
            tx: dict[str, str] = {}
            result = effect(tx)
            _commit(contents, grant, result, retain, progress, at)
            contents.user_data.update(tx)
            return result

    def user_data(self) -> dict[str, str]:
        """What effects wrote through `transact`."""
        with self._folder.locked() as contents:
            return dict(contents.user_data)

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        with self._folder.locked() as contents:
            record = contents.records.get(grant.key)
            answer, write = rules.abandon(record, grant, error=error, in_doubt=in_doubt, now=_time(now))
            contents.put(write)
            return answer

    def load(self, run_id: str) -> StoredProgress | None:
        with self._folder.locked() as contents:
            return contents.runs.get(run_id)

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        with self._folder.locked() as contents:
            return _save(contents, progress, _time(now))

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        with self._folder.locked() as contents:
            write = rules.next_incarnation(contents.runs.get(run_id), run_id, _time(now))
            contents.runs[run_id] = write
            return write.incarnation

    def delete_run(self, run_id: str) -> bool:
        with self._folder.locked() as contents:
            return contents.runs.pop(run_id, None) is not None

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        with self._folder.locked() as contents:
            found = [contents.records.get(key) for key in keys]
            return [None if rules.is_absent(record, _time(now)) else record for record in found]

    def scan(
        self,
        *,
        run_id: str | None = None,
        state: RecordState | None = None,
        prefix: str = "",
        cursor: str | None = None,
        limit: int = 100,
        now: int | None = None,
    ) -> Page[StoredRecord]:
        with self._folder.locked() as contents:
            at = _time(now)
            found = {
                key: record
                for key, record in contents.records.items()
                if key.startswith(prefix)
                and run_id in (None, record.run_id)
                and state in (None, rules.state_at(record, at))
                and not rules.is_absent(record, at)
            }
            return _page(found, cursor, limit)

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        with self._folder.locked() as contents:
            return _page(contents.runs, cursor, limit)

    def resolve(
        self,
        seen: StoredRecord,
        *,
        nonce: str,
        result: Payload | None,
        retain: int | None = None,
        now: int | None = None,
    ) -> bool:
        with self._folder.locked() as contents:
            record = contents.records.get(seen.key)
            answer, write = rules.resolve(record, seen, nonce=nonce, result=result, retain=retain, now=_time(now))
            contents.put(write)
            return answer

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        with self._folder.locked() as contents:
            if not rules.matches(contents.records.get(seen.key), seen, _time(now)):
                return False
            self._remove(contents, seen.key)
            return True

    def _remove(self, contents: Contents, key: str) -> None:
        record = contents.records.pop(key)
        if record.result is not None and record.result.blob is not None:
            self._folder.remove_chunks(record.result.blob)

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        with self._folder.locked() as contents:
            decided = [rules.place(contents.records.get(record.key), record, _time(now)) for record in records]
            for _, write in decided:
                contents.put(write)
            return [stands for stands, _ in decided]

    def place_run(self, run: StoredProgress) -> StoredProgress:
        with self._folder.locked() as contents:
            return contents.runs.setdefault(run.run_id, run)

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        self._folder.put_chunks(blob, chunks)
        with self._folder.locked() as contents:
            contents.blobs[blob] = _time(now)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return self._folder.get_chunks(blob)

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        with self._folder.locked() as contents:
            at = _time(now)
            old = [key for key, record in contents.records.items() if rules.is_absent(record, at)]
            for key in old[:limit]:
                self._remove(contents, key)
            orphans = contents.orphans(before=at - rules.ORPHAN_AGE)
            for blob in orphans:
                self._folder.remove_chunks(blob)
                del contents.blobs[blob]
            return Swept(len(old[:limit]), len(orphans), more=len(old) > limit)

    def time(self) -> int:
        return _time(None)

    def setup(self) -> None:
        self._folder.create()

    def check(self) -> Sequence[Finding]:
        return [Finding("folder", ok=self._folder.path.is_dir(), detail=str(self._folder.path))]

    def classify(self, error: Exception) -> DurastoreError | None:
        return StoreUnavailable(str(error)) if isinstance(error, BlockingIOError) else None

    def forked(self) -> None:
        """Nothing is held between two calls."""

    def close(self) -> None:
        """Nothing is held between two calls."""


def _claim(contents: Contents, request: ClaimRequest, now: int) -> Answer:
    answer, write = rules.claim(contents.records.get(request.key), request, now)
    contents.put(write)
    return answer


def _claim_next(contents: Contents, request: ClaimRequest, now: int) -> Granted | None:
    try:
        answer = _claim(contents, request, now)
    except FingerprintMismatch:
        return None
    return answer if isinstance(answer, Granted) else None


def _renew(contents: Contents, grant: Grant, now: int) -> Grant | None:
    answer, write = rules.renew(contents.records.get(grant.key), grant, now)
    contents.put(write)
    return answer


def _commit(
    contents: Contents, grant: Grant, result: Payload, retain: int | None, progress: StoredProgress | None, now: int
) -> None:
    write = rules.commit(contents.records.get(grant.key), grant, result, retain, now)
    contents.put(write)
    if progress is not None and write is not None:
        _save(contents, progress, now)


def _save(contents: Contents, progress: StoredProgress, now: int) -> StoredProgress:
    write = rules.advance(contents.runs.get(progress.run_id), progress, now)
    if write is not None:
        contents.runs[progress.run_id] = write
    return contents.runs[progress.run_id]


def _page(found: dict[str, T], cursor: str | None, limit: int) -> Page[T]:
    names = sorted(name for name in found if cursor is None or name > cursor)
    page = names[:limit]
    return Page([found[name] for name in page], page[-1] if len(names) > limit else None)


def _time(now: int | None) -> int:
    return time.time_ns() // 1000 if now is None else now
