"""PostgreSQL: every verb of the hot path is one statement, which is one round trip and one transaction.

A claim inserts its record or, where there is one, updates it on condition that it is free; PostgreSQL re-checks that condition on
the newest version of the row, under its lock. When nothing was granted, the same statement shows the record, from which
`durastore.rules` make the answer. (Its snapshot may be older than the row that refused: then rules and statement disagree, and
the claim is asked again.) Nothing is prepared and no setting is made, so that a pooler in transaction mode changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from durastore.errors import DurastoreError
from durastore.keys import after_prefix
from durastore.sqlfiles import statements
from durastore_cloudsql import faults, inspection, schema
from durastore_cloudsql.pool import Pool
from durastore_cloudsql.rows import COLUMNS, progress_values, record_of, request_values, run_of
from durastore_cloudsql.tables import Tables

__all__ = ["PostgreSQLBackend"]

_CLOCK = "COALESCE(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
_ROUNDS_MAX = 50
"""How often a claim is asked again when its snapshot was older than the row that refused it."""


class PostgreSQLBackend:
    """The backend for one namespace of one PostgreSQL database."""

    limits = Limits(inline=256 * 1024, chunk=1024 * 1024)
    creates_itself = False

    def __init__(self, pool: Pool, tables: Tables, namespace: str, scheme: str) -> None:
        self.scheme = scheme
        self._pool = pool
        self._tables = tables
        self._namespace = namespace
        self._sql = _statements(tables)

    def _all(self, name: str, now: int | None = None, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement, in its own transaction."""
        return self._pool.execute(self._sql[name], {"namespace": self._namespace, "now": now, **values})

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        for _ in range(_ROUNDS_MAX):
            found = self._all("claim", now, **request_values(request))
            if not found:  # somebody inserted the row after this statement's snapshot
                continue
            granted, at, *row = found[0]
            record = record_of(row)
            if granted:
                return Granted(rules.grant_of(record), rules.took_over(record))
            answer, write = rules.claim(record, request, at)
            if write is None:
                return answer
        return rules.held(record, at)

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        keys, nonces = [grant.key for grant in grants], [grant.nonce for grant in grants]
        rows = self._all("renew", now, keys=keys, nonces=nonces, leases=[grant.lease for grant in grants])
        renewed = {nonce for (nonce,) in rows}
        return [grant if grant.nonce in renewed else None for grant in grants]

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
        fused = then if then is not None and then.key != grant.key else None  # one statement writes a row once
        name = "commit" + ("" if progress is None else "_advancing") + ("" if fused is None else "_claiming")
        values = _commit_values(grant, result, retain, progress, fused)
        count, *row = self._all(name, now, **values)[0]
        if not count:
            self._require_committed(grant)
            return None if then is None else self._claim_next(then, now)
        if fused is None:
            return None
        if row[0] is None:
            return None
        record = record_of(row)
        return Granted(rules.grant_of(record), rules.took_over(record))

    def _require_committed(self, grant: Grant) -> None:
        """Raise `ClaimLost` unless this very grant has committed before."""
        rows = self._all("record", key=grant.key)
        rules.commit(record_of(rows[0]) if rows else None, grant, Payload(b""), None, 0)

    def _claim_next(self, request: ClaimRequest, now: int | None) -> Granted | None:
        """For a repeated commit: its next claim, which its first try may have made already."""
        found = self._all("claim", now, **request_values(request))
        if not found:
            return None
        granted, _, *row = found[0]
        record = record_of(row)
        mine = granted or (record.nonce == request.nonce and record.state == "claimed")
        return Granted(rules.grant_of(record), rules.took_over(record)) if mine else None

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """As in the contract; `tx` is a SQLAlchemy `Connection`. The claim's row is locked by the commit alone, at the end."""
        name = "commit" if progress is None else "commit_advancing"
        with self._pool.transaction() as connection:
            values = {"namespace": self._namespace, "key": grant.key}
            row = connection.exec_driver_sql(self._sql["record"], values).fetchone()
            record = None if row is None else record_of(row)
            if rules.commit(record, grant, Payload(b""), retain, 0) is None:
                assert record is not None
                return rules.committed(record).result
            result = effect(connection)
            values = _commit_values(grant, result, retain, progress, None)
            done = connection.exec_driver_sql(self._sql[name], {"namespace": self._namespace, "now": now, **values})
            if not done.scalar_one():
                raise rules.lost(grant, None)
            return result

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        state = "in_doubt" if in_doubt else "abandoned"
        return bool(self._all("abandon", now, key=grant.key, nonce=grant.nonce, state=state, error=error))

    def load(self, run_id: str) -> StoredProgress | None:
        rows = self._all("load", run=run_id)
        return run_of(rows[0]) if rows else None

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        rows = self._all("save", now, **progress_values(progress)) or self._all("load", run=progress.run_id)
        return run_of(rows[0])

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        return int(self._all("incarnate", now, run=run_id)[0][0])

    def delete_run(self, run_id: str) -> bool:
        return bool(self._all("delete_run", run=run_id))

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        found = {}
        for at, *row in self._all("read", now, keys=list(keys)):
            record = record_of(row)
            found[record.key] = None if rules.is_absent(record, at) else record
        return [found.get(key) for key in keys]

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
        name = "records" if state in (None, "committed") else "open_records"
        name = name if run_id is None else "records_of_run"
        bounds = {
            "first": prefix,
            "end": after_prefix(prefix),
            "cursor": cursor or "",
            "limit": limit,
            "run_id": run_id,
        }
        rows = self._all(name, now, **bounds)
        records = [(record_of(row), at) for at, *row in rows]
        matching = [
            record
            for record, at in records
            if not rules.is_absent(record, at) and state in (None, rules.state_at(record, at))
        ]
        return Page(matching, records[-1][0].key if len(records) == limit else None)

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        runs = [run_of(row) for row in self._all("runs", cursor=cursor or "", limit=limit)]
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
        with self._pool.transaction() as connection:
            record, at = self._locked(connection, seen.key, now)
            answer, write = rules.resolve(record, seen, nonce=nonce, result=result, retain=retain, now=at)
            if write is not None:
                values = {
                    name: getattr(write, name) for name in ("state", "nonce", "error", "expires_at", "retain_until")
                }
                stored = write.result or Payload(b"")
                values |= {
                    "result": write.result and stored.data,
                    "blob": stored.blob,
                    "updated_at": at,
                    "key": seen.key,
                }
                connection.exec_driver_sql(self._sql["settle"], {"namespace": self._namespace, **values})
            return answer

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        with self._pool.transaction() as connection:
            record, at = self._locked(connection, seen.key, now)
            if record is None or not rules.matches(record, seen, at):
                return False
            values = {"namespace": self._namespace, "key": seen.key}
            connection.exec_driver_sql(self._sql["delete_record"], values)
            if record.result is not None and record.result.blob is not None:
                connection.exec_driver_sql(self._sql["delete_chunks"], values | {"blob": record.result.blob})
            return True

    def _locked(self, connection: Any, key: str, now: int | None) -> tuple[StoredRecord | None, int]:
        """The record, its row locked, and the time."""
        values = {"namespace": self._namespace, "key": key, "now": now}
        row = connection.exec_driver_sql(self._sql["lock_record"], values).fetchone()
        return (None, 0) if row is None else (record_of(row[1:]), row[0])

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        for number, data in enumerate(chunks):
            self._all("put_chunk", now, blob=blob, number=number, data=data)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return [bytes(data) for (data,) in self._all("chunks", blob=blob)]

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        records = int(self._all("sweep_records", now, limit=limit)[0][0])
        chunks = int(self._all("sweep_chunks", now, limit=limit, age=rules.ORPHAN_AGE)[0][0])
        return Swept(records, chunks, more=limit in (records, chunks))

    def time(self) -> int:
        return int(self._all("time")[0][0])

    def setup(self) -> None:
        schema.migrate(self._pool, self._tables, "postgresql")

    def check(self) -> Sequence[Finding]:
        return inspection.postgresql(self._pool, self._tables)

    def classify(self, error: Exception) -> DurastoreError | None:
        return faults.postgresql(error, self.scheme)

    def forked(self) -> None:
        self._pool.forked()

    def close(self) -> None:
        self._pool.close()


def _statements(tables: Tables) -> dict[str, str]:
    """The statements for these tables, their shared fragments put in."""
    words = {**tables.words, "clock": _CLOCK, "columns": COLUMNS}
    later = ("granted", "done", "advanced", "granted_if_done", "condition", "free")
    texts = statements("durastore_cloudsql", "postgresql.sql", words | {name: f"{{{name}}}" for name in later})
    granted = texts["_granted"].replace("{free}", texts["_free"])
    pieces = {
        "granted": granted.replace("{condition}", "true"),
        "granted_if_done": granted.replace("{condition}", "EXISTS (SELECT 1 FROM done)"),
        "done": texts["_done"],
        "advanced": texts["_advanced"],
    }
    return {name: text.format_map(pieces) for name, text in texts.items() if not name.startswith("_")}


def _commit_values(
    grant: Grant,
    result: Payload,
    retain: int | None,
    progress: StoredProgress | None,
    then: ClaimRequest | None,
) -> dict[str, Any]:
    return {
        "done_key": grant.key,
        "done_nonce": grant.nonce,
        "result": result.data,
        "blob": result.blob,
        "retain": retain,
        **({} if progress is None else progress_values(progress)),
        **({} if then is None else request_values(then)),
    }
