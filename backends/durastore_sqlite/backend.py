"""The backend: read, decide by `durastore.rules`, and write, in one transaction under the write lock.

What decides nothing is read without the lock: a claim of a committed or held key never writes, and costs no sync.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

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
from durastore.errors import ConfigError, DurastoreError
from durastore.keys import after_prefix
from durastore.soundness import sound
from durastore.sqlfiles import statements
from durastore_sqlite import faults, schema
from durastore_sqlite.connections import Connections

__all__ = ["SQLiteBackend"]


@cache
def _statements() -> dict[str, str]:
    return statements("durastore_sqlite", "statements.sql")


class SQLiteBackend:
    """The backend for one namespace of one file."""

    scheme = "sqlite"
    limits = Limits(inline=64 * 1024, chunk=1024 * 1024)
    creates_itself = True
    shares_clock = True

    def __init__(self, path: Path, namespace: str, busy_timeout: float = 5.0) -> None:
        self._namespace = namespace
        self._connections = Connections(path, busy_timeout)
        self._sql = _statements()

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        record = self._connections.read(lambda connection: self._record(connection, request.key))
        if record is None:
            return self._connections.write(lambda connection: self._claim_new(connection, request, _time(now)))
        answer, write = rules.claim(record, request, _time(now))
        if write is None:
            return answer
        return self._connections.write(lambda connection: self._claim(connection, request, _time(now)))

    def _claim_new(self, connection: sqlite3.Connection, request: ClaimRequest, now: int) -> Answer:
        """Claim a key that had no record at the last look; if it has one by now, as any other."""
        answer, write = rules.claim(None, request, now)
        if self._put(connection, write, "add_record"):
            return answer
        return self._claim(connection, request, now)

    def _claim(self, connection: sqlite3.Connection, request: ClaimRequest, now: int) -> Answer:
        answer, write = rules.claim(self._record(connection, request.key), request, now)
        self._put(connection, write)
        return answer

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        def work(connection: sqlite3.Connection) -> list[Grant | None]:
            at = _time(now)
            return [self._renew(connection, grant, at) for grant in grants]

        return self._connections.write(work)

    def _renew(self, connection: sqlite3.Connection, grant: Grant, now: int) -> Grant | None:
        answer, write = rules.renew(self._record(connection, grant.key), grant, now)
        self._put(connection, write)
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
        def work(connection: sqlite3.Connection) -> Granted | None:
            at = _time(now)
            if self._commit(connection, grant, result, retain, at) and progress is not None:
                self._advance(connection, progress, at)
            return None if then is None else self._claim_next(connection, then, at)

        return self._connections.write(work)

    def _commit(
        self, connection: sqlite3.Connection, grant: Grant, result: Payload, retain: int | None, now: int
    ) -> bool:
        """False when this grant has committed already. Raises `ClaimLost`."""
        until = None if retain is None else now + retain
        done = connection.execute(
            self._sql["commit_record"],
            (result.data, result.blob, until, now, self._namespace, grant.key, grant.nonce),
        )
        return (
            done.rowcount == 1
            or rules.commit(self._record(connection, grant.key), grant, result, retain, now) is not None
        )

    def _claim_next(self, connection: sqlite3.Connection, request: ClaimRequest, now: int) -> Granted | None:
        return rules.if_granted(lambda: self._claim_new(connection, request, now))

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """As in the contract; `tx` is the `sqlite3.Connection`, in a transaction that holds the write lock."""

        def work(connection: sqlite3.Connection) -> Payload:
            record = self._record(connection, grant.key)
            if record is not None and rules.commit(record, grant, Payload(b""), retain, _time(now)) is None:
                return rules.committed(record).result
            if record is None:
                raise rules.lost(grant, record)
            result = effect(connection)
            if not connection.in_transaction:
                raise ConfigError(
                    "the effect ended its transaction: inside transact(), leave commit and rollback to durastore"
                )
            at = _time(now)
            self._commit(connection, grant, result, retain, at)
            if progress is not None:
                self._advance(connection, progress, at)
            return result

        return self._connections.exclusively(work)

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            record = self._record(connection, grant.key)
            answer, write = rules.abandon(record, grant, error=error, in_doubt=in_doubt, now=_time(now))
            self._put(connection, write)
            return answer

        return self._connections.write(work)

    def load(self, run_id: str) -> StoredProgress | None:
        return self._connections.read(lambda connection: self._run(connection, run_id))

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        def work(connection: sqlite3.Connection) -> StoredProgress:
            self._advance(connection, progress, _time(now))
            stored = self._run(connection, progress.run_id)
            assert stored is not None
            return stored

        return self._connections.write(work)

    def _advance(self, connection: sqlite3.Connection, progress: StoredProgress, now: int) -> None:
        state = progress.state or Payload(b"")
        data = None if progress.state is None else state.data
        row = (self._namespace, progress.run_id, progress.step, data, state.blob, now)
        connection.execute(self._sql["advance_run"], row)

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        def work(connection: sqlite3.Connection) -> int:
            drawn = rules.next_incarnation(self._run(connection, run_id), run_id, _time(now))
            self._put_run(connection, drawn)
            return drawn.incarnation

        return self._connections.write(work)

    def _put_run(self, connection: sqlite3.Connection, run: StoredProgress) -> None:
        state = run.state or Payload(b"")
        data = None if run.state is None else state.data
        row = (self._namespace, run.run_id, run.step, data, state.blob, run.incarnation, run.updated_at)
        connection.execute(self._sql["put_run"], row)

    def delete_run(self, run_id: str) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            return connection.execute(self._sql["delete_run"], (self._namespace, run_id)).rowcount > 0

        return self._connections.write(work)

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        def work(connection: sqlite3.Connection) -> list[StoredRecord | None]:
            return [self._record(connection, key) for key in keys]

        found = self._connections.read(work)
        at = _time(now)
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
        first = prefix if cursor is None else cursor + "\0"
        bounds: tuple[Any, ...] = (self._namespace, first, after_prefix(prefix))
        name = "records" if state in (None, "committed") else "open_records"
        if run_id is not None:
            name, bounds = "records_of_run", (*bounds, run_id)
        rows = self._connections.read(
            lambda connection: connection.execute(self._sql[name], (*bounds, limit)).fetchall()
        )
        records = [_record_of(row) for row in rows]
        at = _time(now)
        matching = [record for record in records if rules.is_listed(record, state, at)]
        return Page(matching, records[-1].key if len(records) == limit else None)

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        row = (self._namespace, cursor or "", limit)
        rows = self._connections.read(lambda connection: connection.execute(self._sql["runs"], row).fetchall())
        runs = [_run_of(row) for row in rows]
        return Page(runs, runs[-1].run_id if len(runs) == limit else None)

    def resolve(
        self,
        seen: StoredRecord,
        *,
        nonce: str,
        result: Payload | None,
        retain: int | None = None,
        now: int | None = None,
    ) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            record = self._record(connection, seen.key)
            answer, write = rules.resolve(record, seen, nonce=nonce, result=result, retain=retain, now=_time(now))
            self._put(connection, write)
            return answer

        return self._connections.write(work)

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            record = self._record(connection, seen.key)
            if record is None or not rules.matches(record, seen, _time(now)):
                return False
            self._delete(connection, record.key, None if record.result is None else record.result.blob)
            return True

        return self._connections.write(work)

    def _delete(self, connection: sqlite3.Connection, key: str, blob: str | None) -> None:
        connection.execute(self._sql["delete_record"], (self._namespace, key))
        if blob is not None:
            connection.execute(self._sql["delete_chunks"], (self._namespace, blob))

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        def work(connection: sqlite3.Connection) -> list[StoredRecord]:
            at = _time(now)
            return [self._place(connection, record, at) for record in records]

        return self._connections.write(work)

    def _place(self, connection: sqlite3.Connection, record: StoredRecord, now: int) -> StoredRecord:
        stands, write = rules.place(self._record(connection, record.key), record, now)
        self._put(connection, write)
        return stands

    def place_run(self, run: StoredProgress) -> StoredProgress:
        def work(connection: sqlite3.Connection) -> StoredProgress:
            known = self._run(connection, run.run_id)
            if known is None:
                self._put_run(connection, run)
            return known or run

        return self._connections.write(work)

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        def work(connection: sqlite3.Connection) -> None:
            at = _time(now)
            rows = ((self._namespace, blob, number, chunk, at) for number, chunk in enumerate(chunks))
            connection.executemany(self._sql["put_chunk"], rows)

        mine = self._connections.get()
        if mine.in_transaction:  # inside `transact`
            work(mine)
        else:
            self._connections.write(work)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        row = (self._namespace, blob)
        found = self._connections.read(lambda connection: connection.execute(self._sql["chunks"], row).fetchall())
        return [data for (data,) in found]

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        def work(connection: sqlite3.Connection) -> Swept:
            at = _time(now)
            expired = connection.execute(self._sql["past_retention"], (self._namespace, at, limit)).fetchall()
            for key, blob in expired:
                self._delete(connection, key, blob)
            old = (self._namespace, at - rules.ORPHAN_AGE, limit)
            orphans = connection.execute(self._sql["orphans"], old).fetchall()
            for (blob,) in orphans:
                connection.execute(self._sql["delete_chunks"], (self._namespace, blob))
            return Swept(len(expired), len(orphans), more=limit in (len(expired), len(orphans)))

        return self._connections.write(work)

    def time(self) -> int:
        return _time(None)

    def setup(self) -> None:
        schema.migrate(self._connections)

    def check(self) -> Sequence[Finding]:
        return schema.check(self._connections)

    def classify(self, error: Exception) -> DurastoreError | None:
        return faults.classify(error, self._connections.path)

    def forked(self) -> None:
        self._connections.forked()

    def close(self) -> None:
        self._connections.close()

    def _record(self, connection: sqlite3.Connection, key: str) -> StoredRecord | None:
        row = connection.execute(self._sql["record"], (self._namespace, key)).fetchone()
        return None if row is None else _record_of(row)

    def _put(self, connection: sqlite3.Connection, record: StoredRecord | None, statement: str = "put_record") -> bool:
        """Whether a record was written."""
        if record is None:
            return False
        result = record.result
        row = (
            self._namespace,
            record.key,
            record.run_id,
            record.state,
            record.token,
            record.attempt,
            record.nonce,
            record.owner,
            record.lease,
            record.expires_at,
            record.incarnation,
            record.fingerprint,
            record.error,
            None if result is None else result.data,
            None if result is None else result.blob,
            record.retain_until,
            record.taken_from,
            record.created_at,
            record.updated_at,
        )
        return connection.execute(self._sql[statement], row).rowcount == 1

    def _run(self, connection: sqlite3.Connection, run_id: str) -> StoredProgress | None:
        row = connection.execute(self._sql["run"], (self._namespace, run_id)).fetchone()
        return None if row is None else _run_of(row)


@sound
def _record_of(row: tuple[Any, ...]) -> StoredRecord:
    result = None if row[12] is None else Payload(row[12], row[13])
    return StoredRecord(*row[:12], result, *row[14:])  # type: ignore[call-arg]  # mypy counts a slice as endless


@sound
def _run_of(row: tuple[Any, ...]) -> StoredProgress:
    run_id, step, data, blob, incarnation, updated_at = row
    return StoredProgress(run_id, step, None if data is None else Payload(data, blob), incarnation, updated_at)


def _time(now: int | None) -> int:
    return time.time_ns() // 1000 if now is None else now
