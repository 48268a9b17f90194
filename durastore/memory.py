"""``memory://``: the reference model. What the other stores do under locks and conditions, done in the plainest way.

It keeps encoded payloads like every other store, so that a value which does not survive the codec fails here too.
``memory://`` is a store of its own, ``memory://NAME`` one that all stores of this process opened by that name share.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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
from durastore.errors import DurastoreError
from durastore.urls import StoreURL

__all__ = ["MemoryBackend", "connect"]

T = TypeVar("T", StoredRecord, StoredProgress)


@dataclass(slots=True)
class _Space:
    """The contents of one namespace."""

    records: dict[str, StoredRecord] = field(default_factory=dict)
    runs: dict[str, StoredProgress] = field(default_factory=dict)
    chunks: dict[str, tuple[int, list[bytes]]] = field(default_factory=dict)
    """Blob id to (when written, chunks)."""
    user_data: dict[Any, Any] = field(default_factory=dict)
    """What effects wrote through `MemoryBackend.transact`."""
    lock: threading.RLock = field(default_factory=threading.RLock)


_shared: dict[tuple[str, str], _Space] = {}
_shared_lock = threading.Lock()


def connect(url: StoreURL) -> MemoryBackend:
    """Open ``memory://[NAME]``."""
    url.read()
    if not url.address:
        return MemoryBackend(_Space())
    with _shared_lock:
        return MemoryBackend(_shared.setdefault((url.address, url.namespace), _Space()))


class MemoryBackend:
    """The reference backend: one lock, one dictionary each for records, runs and chunks."""

    scheme = "memory"
    limits = Limits(inline=64 * 1024, chunk=256 * 1024)
    creates_itself = True
    shares_clock = True

    def __init__(self, space: _Space) -> None:
        self._space = space

    @property
    def user_data(self) -> dict[Any, Any]:
        """What effects wrote through `transact`."""
        return self._space.user_data

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        with self._space.lock:
            return self._claim(request, _time(now))

    def _claim(self, request: ClaimRequest, now: int) -> Answer:
        answer, write = rules.claim(self._space.records.get(request.key), request, now)
        self._write(write)
        return answer

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        with self._space.lock:
            return [self._renew(grant, _time(now)) for grant in grants]

    def _renew(self, grant: Grant, now: int) -> Grant | None:
        answer, write = rules.renew(self._space.records.get(grant.key), grant, now)
        self._write(write)
        return answer

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
        with self._space.lock:
            at = _time(now)
            self._commit(grant, result, retain, progress, at)
            return None if then is None else self._claim_next(then, at)

    def _commit(
        self, grant: Grant, result: Payload, retain: int | None, progress: StoredProgress | None, now: int
    ) -> None:
        write = rules.commit(self._space.records.get(grant.key), grant, result, retain, now)
        self._write(write)
        if progress is not None and write is not None:
            self._save(progress, now)

    def _claim_next(self, request: ClaimRequest, now: int) -> Granted | None:
        return rules.if_granted(lambda: self._claim(request, now))

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """As in the contract; `tx` is a dictionary that is merged into `user_data` at the commit."""
        with self._space.lock:
            at = _time(now)
            record = self._space.records.get(grant.key)
            if rules.commit(record, grant, Payload(b""), retain, at) is None:
                return rules.committed(_known(record)).result
            tx: dict[Any, Any] = {}
            result = effect(tx)
            self._commit(grant, result, retain, progress, at)
            self.user_data.update(tx)
            return result

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        with self._space.lock:
            record = self._space.records.get(grant.key)
            answer, write = rules.abandon(record, grant, error=error, in_doubt=in_doubt, now=_time(now))
            self._write(write)
            return answer

    def load(self, run_id: str) -> StoredProgress | None:
        with self._space.lock:
            return self._space.runs.get(run_id)

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        with self._space.lock:
            self._save(progress, _time(now))
            return self._space.runs[progress.run_id]

    def _save(self, progress: StoredProgress, now: int) -> None:
        write = rules.advance(self._space.runs.get(progress.run_id), progress, now)
        if write is not None:
            self._space.runs[progress.run_id] = write

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        with self._space.lock:
            write = rules.next_incarnation(self._space.runs.get(run_id), run_id, _time(now))
            self._space.runs[run_id] = write
            return write.incarnation

    def delete_run(self, run_id: str) -> bool:
        with self._space.lock:
            return self._space.runs.pop(run_id, None) is not None

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        with self._space.lock:
            at = _time(now)
            found = [self._space.records.get(key) for key in keys]
            return [None if rules.is_absent(record, at) else record for record in found]

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
        with self._space.lock:
            at = _time(now)
            return _page(
                (
                    record
                    for key, record in self._space.records.items()
                    if key.startswith(prefix) and run_id in (None, record.run_id) and rules.is_listed(record, state, at)
                ),
                lambda record: record.key,
                cursor,
                limit,
            )

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        with self._space.lock:
            return _page(self._space.runs.values(), lambda run: run.run_id, cursor, limit)

    def resolve(
        self,
        seen: StoredRecord,
        *,
        nonce: str,
        result: Payload | None,
        retain: int | None = None,
        now: int | None = None,
    ) -> bool:
        with self._space.lock:
            record = self._space.records.get(seen.key)
            answer, write = rules.resolve(record, seen, nonce=nonce, result=result, retain=retain, now=_time(now))
            self._write(write)
            return answer

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        with self._space.lock:
            record = self._space.records.get(seen.key)
            if record is None or not rules.matches(record, seen, _time(now)):
                return False
            self._remove(record)
            return True

    def _remove(self, record: StoredRecord) -> None:
        del self._space.records[record.key]
        if record.result is not None and record.result.blob is not None:
            self._space.chunks.pop(record.result.blob, None)

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        with self._space.lock:
            return [self._place(record, _time(now)) for record in records]

    def _place(self, record: StoredRecord, now: int) -> StoredRecord:
        stands, write = rules.place(self._space.records.get(record.key), record, now)
        self._write(write)
        return stands

    def place_run(self, run: StoredProgress) -> StoredProgress:
        with self._space.lock:
            return self._space.runs.setdefault(run.run_id, run)

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        with self._space.lock:
            self._space.chunks[blob] = (_time(now), list(chunks))

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        with self._space.lock:
            return list(self._space.chunks.get(blob, (0, []))[1])

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        with self._space.lock:
            at = _time(now)
            expired = [record for record in self._space.records.values() if rules.is_absent(record, at)]
            for record in expired[:limit]:
                self._remove(record)
            orphans = self._orphans(at)
            for blob in orphans:
                del self._space.chunks[blob]
            return Swept(len(expired[:limit]), len(orphans), more=len(expired) > limit)

    def _orphans(self, now: int) -> list[str]:
        payloads = [record.result for record in self._space.records.values()]
        payloads += [run.state for run in self._space.runs.values()]
        used = {payload.blob for payload in payloads if payload is not None}
        return [
            blob
            for blob, (written, _) in self._space.chunks.items()
            if blob not in used and written + rules.ORPHAN_AGE <= now
        ]

    def time(self) -> int:
        return _time(None)

    def setup(self) -> None:
        """Nothing to create."""

    def check(self) -> Sequence[Finding]:
        return [Finding("store", ok=True, detail="in this process alone; gone when it ends")]

    def classify(self, error: Exception) -> DurastoreError | None:
        return None

    def forked(self) -> None:
        """The child goes on with a copy of the contents, under a lock that nobody holds."""
        self._space.lock = threading.RLock()

    def close(self) -> None:
        """Nothing to close."""

    def _write(self, record: StoredRecord | None) -> None:
        if record is not None:
            self._space.records[record.key] = record


def _known(record: StoredRecord | None) -> StoredRecord:
    assert record is not None
    return record


def _time(now: int | None) -> int:
    return time.time_ns() // 1000 if now is None else now


def _page(items: Iterable[T], name: Callable[[T], str], cursor: str | None, limit: int) -> Page[T]:
    ordered = sorted(items, key=lambda item: name(item).encode())
    start = 0 if cursor is None else bisect_right([name(item).encode() for item in ordered], cursor.encode())
    page = ordered[start : start + limit]
    more = len(ordered) > start + limit
    return Page(page, name(page[-1]) if more else None)
