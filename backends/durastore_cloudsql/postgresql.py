"""PostgreSQL: every verb of the hot path is one statement, which is one round trip and one transaction.

A claim and a commit are functions in the database, so that a statement of many conditions is not planned anew each time (that
cost 0.9 ms where the durable write costs 0.3). A claim looks without a lock, and locks and looks again before it grants. It shows
the record as it is afterwards, from which `durastore.rules` make the answer: a claim under the request's own nonce is a grant,
today's or that of a retried request.

No setting is made that a pooler in transaction mode would lose. Statements are prepared only where nobody stands between (parsing
and planning cost 60 µs each): see `durastore_cloudsql.wire`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
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
from durastore.errors import DurastoreError, SchemaError
from durastore.keys import after_prefix
from durastore.sqlfiles import statements
from durastore_cloudsql import faults, inspection, schema
from durastore_cloudsql.pool import NotOurs, Pool, still_in
from durastore_cloudsql.rows import (
    COLUMNS,
    NO_PROGRESS,
    NO_REQUEST,
    bytes_of,
    progress_values,
    record_of,
    record_values,
    request_values,
    run_of,
)
from durastore_cloudsql.tables import Tables
from durastore_cloudsql.wire import MIXED_UP, Line, Lines, Row, Statement

__all__ = ["PostgreSQLBackend"]


_CLOCK = "COALESCE(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
"""The server's time in microseconds, or the time that a test gives."""

_PREPARED = ("claim", "commit", "commit_and_more")
"""Calls of functions. A plan of a look-up, made when its table was small, would be kept when the table has grown."""


class PostgreSQLBackend:
    """The backend for one namespace of one PostgreSQL database."""

    limits = Limits(inline=256 * 1024, chunk=1024 * 1024)
    creates_itself = False

    def __init__(self, pool: Pool, tables: Tables, namespace: str, scheme: str, lines: Lines) -> None:
        self.scheme = scheme
        self._pool = pool
        self._lines = lines
        self._tables = tables
        self._namespace = namespace
        words = {**tables.words, "clock": _CLOCK, "columns": COLUMNS}
        self._sql = statements("durastore_cloudsql", "postgresql.sql", words)
        self._statements = {
            name: Statement.of(sql, f"durastore_{name}" if name in _PREPARED else "") for name, sql in self._sql.items()
        }

    def _all(self, name: str, now: int | None = None, **values: Any) -> list[Row]:
        """The rows of a statement, in its own transaction."""
        statement, given = self._statements[name], self._values(now, **values)
        try:
            return self._fetch(statement, given)
        except MIXED_UP:  # a pooler that was not recognised as one
            self._lines.prepare_no_more()
            self._pool.sessions.replace_idle()
            return self._fetch(statement, given)

    def _fetch(self, statement: Statement, values: dict[str, Any]) -> list[Row]:
        with self._pool.sessions.lend() as session:
            line: Line = session.beside
            return line.fetch(statement, values)

    def _of_keys(self, name: str, now: int | None = None, **values: Any) -> list[tuple[Any, ...]]:
        """The same for a statement with lists among its parameters."""
        return self._pool.execute(self._sql[name], self._values(now, **values))

    def _values(self, now: int | None = None, **values: Any) -> dict[str, Any]:
        return {"namespace": self._namespace, "now": now, **values}

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        record = record_of(self._all("claim", now, **request_values(request))[0])
        answer, write = rules.claim(record, request, record.updated_at)  # the function's time of the look
        if write is not None:
            raise SchemaError("the functions in the database do not decide as this durastore does; run: durastore init")
        return answer

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        ordered = sorted(grants, key=lambda grant: grant.key)
        keys, nonces = [grant.key for grant in ordered], [grant.nonce for grant in ordered]
        leases = [grant.lease for grant in ordered]
        standing = {nonce for (nonce,) in self._of_keys("renew", now, keys=keys, nonces=nonces, leases=leases)}
        lacking = [grant.key for grant in ordered if grant.nonce not in standing]
        if lacking:  # lost, or committed: a look after the statement sees what it waited for
            standing |= {nonce for (nonce,) in self._of_keys("committed", keys=lacking)}
        return [grant if grant.nonce in standing else None for grant in grants]

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
        values = _commit_values(grant, result, retain, progress, then)
        plain = progress is None and then is None
        rows = self._all("commit" if plain else "commit_and_more", now, **values)
        if not rows[0][0]:
            self._require_committed(grant)
            return None if then is None else self._claim_next(then, now)
        return None if then is None else _if_granted(record_of(rows[0][1:]), then)

    def _require_committed(self, grant: Grant) -> Payload:
        """What this very grant has committed before. Raises `ClaimLost` when it has not."""
        rows = self._all("record", key=grant.key)
        record = record_of(rows[0]) if rows else None
        rules.commit(record, grant, Payload(b""), None, 0)
        assert record is not None
        return rules.committed(record).result

    def _claim_next(self, request: ClaimRequest, now: int | None) -> Granted | None:
        """For a repeated commit: its next claim, which its first try may have made already."""
        return rules.if_granted(lambda: self.claim(request, now=now))

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
        with suppress(NotOurs), self._pool.transaction() as connection:
            row = connection.exec_driver_sql(self._sql["record"], self._values(key=grant.key)).fetchone()
            if rules.commit(None if row is None else record_of(row), grant, Payload(b""), retain, 0) is None:
                raise NotOurs
            result = effect(connection)
            still_in(connection)
            values = self._values(now, **_commit_values(grant, result, retain, progress, None))
            done = connection.exec_driver_sql(self._sql["commit_and_more"], values).fetchone()
            if done is None or not done[0]:
                raise NotOurs  # rolls back what the effect wrote
            return result
        return self._require_committed(grant)

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        state = "in_doubt" if in_doubt else "abandoned"
        values: dict[str, Any] = {"key": grant.key, "nonce": grant.nonce, "state": state, "error": _storable(error)}
        return bool(self._all("abandon", now, **values) or self._all("given_back", **values))

    def load(self, run_id: str) -> StoredProgress | None:
        rows = self._all("load", run=run_id)
        return run_of(rows[0]) if rows else None

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        while True:
            rows = self._all("save", now, **progress_values(progress)) or self._all("load", run=progress.run_id)
            if rows:  # else it was removed in between, by whoever forgot the run
                return run_of(rows[0])

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        return int(self._all("incarnate", now, run=run_id)[0][0])

    def delete_run(self, run_id: str) -> bool:
        return bool(self._all("delete_run", run=run_id))

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        found = {}
        for at, *row in self._of_keys("read", now, keys=list(keys)):
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
        matching = [record for record, at in records if rules.is_listed(record, state, at)]
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

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        ordered = sorted(records, key=lambda record: record.key)  # so that no two batches wait for each other
        values = [
            self._values(now, **record_values(replace(record, error=_storable(record.error)))) for record in ordered
        ]
        if not values:
            return []
        with self._pool.transaction() as connection:
            connection.exec_driver_sql(self._sql["place"], values)
            keys = self._values(keys=[record.key for record in records])
            rows = connection.exec_driver_sql(self._sql["placed"], keys).fetchall()
        stands = {record.key: record for record in map(record_of, rows)}
        return [stands[record.key] for record in records]

    def place_run(self, run: StoredProgress) -> StoredProgress:
        values = {**progress_values(run), "incarnation": run.incarnation, "updated_at": run.updated_at}
        while True:
            rows = self._all("place_run", **values) or self._all("load", run=run.run_id)
            if rows:  # else it was removed in between
                return run_of(rows[0])

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        for number, data in enumerate(chunks):
            self._all("put_chunk", now, blob=blob, number=number, data=data)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return [bytes_of(data) for (data,) in self._all("chunks", blob=blob)]

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


def _if_granted(record: StoredRecord, request: ClaimRequest) -> Granted | None:
    if record.nonce != request.nonce or record.state != "claimed":
        return None
    return Granted(rules.grant_of(record), rules.took_over(record))


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
        **(NO_PROGRESS if progress is None else progress_values(progress)),
        **(NO_REQUEST if then is None else request_values(then)),
    }


def _storable(error: str | None) -> str | None:
    """Text as PostgreSQL takes it: NUL and lone surrogates as escapes."""
    return None if error is None else error.replace("\0", "\\x00").encode(errors="backslashreplace").decode()
