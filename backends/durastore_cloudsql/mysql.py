"""MySQL and MariaDB: few round trips, for statements that belong together travel together.

There is no RETURNING, so a claim is an INSERT that yields to a record which is there, and a look at the record, in one round
trip: that settles a key that is new, committed or held. A record that may be had (lapsed, given back, past retention) is locked,
decided on by `durastore.rules` and written, in one short transaction of two round trips, the clock read under the lock. READ
COMMITTED, so that nothing but rows is locked. Written for what MySQL 8 and MariaDB 10.6 have in common.

A commit claims the next key along with it when that is new, which it is in a run's loop; one that has a record already and may
be had again is claimed right after, in a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
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
from durastore.keys import after_prefix
from durastore.sqlfiles import statements
from durastore_cloudsql import faults, inspection, schema
from durastore_cloudsql.packets import Sent, again_after_deadlock, send, sender
from durastore_cloudsql.pool import NotOurs, Pool, still_in
from durastore_cloudsql.rows import COLUMNS, progress_values, record_of, record_values, request_values, run_of
from durastore_cloudsql.tables import Tables

__all__ = ["MySQLBackend"]

T = TypeVar("T")
_CLOCK = "COALESCE(%(now)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))"
_COLUMNS = COLUMNS.replace("key,", "`key`,").replace("blob,", "`blob`,")
_RUN_COLUMNS = "run_id, step, state, `blob`, incarnation, updated_at"
_RESULT, _STATE = 12, 2
"""Where the payload stands in a row of a record and of a run: all other bytes are text."""
_LOOK = 3
"""Which of the statements of a claim shows the record."""
_PLACED = 3
"""Which of the statements that place a record shows it."""
_ROUNDS_MAX = 50
"""How often a claim begins anew because its record came or went in between."""
_KEYS_MAX = 500
"""Keys in one statement: at 1,024 bytes and more each, well below any max_allowed_packet."""


class MySQLBackend:
    """The backend for one namespace of one MySQL or MariaDB database."""

    limits = Limits(inline=256 * 1024, chunk=1024 * 1024)
    creates_itself = False

    def __init__(self, pool: Pool, tables: Tables, namespace: str, scheme: str) -> None:
        self.scheme = scheme
        self._pool = pool
        self._tables = tables
        self._namespace = namespace
        words = {**tables.words, "clock": _CLOCK, "columns": _COLUMNS, "run_columns": _RUN_COLUMNS}
        texts = statements("durastore_cloudsql", "mysql.sql", words | {"stamp": "{stamp}"})
        self._sql = {name: text.replace("{stamp}", texts["stamp"]) for name, text in texts.items()}

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        for _ in range(_ROUNDS_MAX):
            rows = self._send("claim", now, **request_values(request))[_LOOK].rows
            if not rows:  # removed in between
                continue
            row = rows[0]
            record, at = _record(row[1:]), row[0]
            answer, write = rules.claim(record, request, at)
            if write is None:
                return answer
            decided = self._decide(request.key, now, lambda record, at: rules.claim(record, request, at))
            if decided is not None:
                return decided
        return rules.held(record, at)

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        ordered = sorted(grants, key=lambda grant: grant.key)  # so that no two batches wait for each other
        keys = [grant.key for grant in ordered]
        standing: set[str] = set()
        for start in range(0, len(ordered), _KEYS_MAX):
            standing |= self._renew(ordered[start : start + _KEYS_MAX], now)
            rows = self._rows("standing", keys=keys[start : start + _KEYS_MAX])
            standing.update(nonce.decode() for (nonce,) in rows)
        return [grant if grant.nonce in standing else None for grant in grants]

    def _renew(self, grants: Sequence[Grant], now: int | None) -> set[str]:
        """The nonces of those that were renewed, whatever becomes of them afterwards."""
        values = [self._values(now, key=grant.key, nonce=grant.nonce, lease=grant.lease) for grant in grants]

        def once() -> Sequence[Sent]:
            with self._pool.single() as connection:
                connection.begin()
                sent = send(connection, self._sql["renew"], *values)
                connection.commit()
                return sent

        sent = again_after_deadlock(once)
        return {grant.nonce for grant, renewed in zip(grants, sent, strict=True) if renewed.matched}

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
        if progress is None and then is None:
            sent = self._send("commit", now, **values)
        else:
            sent = sender(self._pool, self._together(progress, then), self._values(now, **values))[1:]
        if not sent[0].matched:
            self._require_committed(grant)
        return None if then is None else self._next(then, sent[-1].rows, now)

    def _together(self, progress: StoredProgress | None, then: ClaimRequest | None) -> str:
        """A commit with all that belongs to it, as one transaction in one round trip, and a look at the next record."""
        names = ["begin", "commit", "remember_done"]
        names += [] if progress is None else ["advance_if_done"]
        names += ["end"] if then is None else ["claim_if_done", "end", "look"]
        return ";\n".join(self._sql[name] for name in names)

    def _require_committed(self, grant: Grant) -> Payload:
        """What this very grant has committed before. Raises `ClaimLost` when it has not."""
        row = self._row("record", key=grant.key)
        record = None if row is None else _record(row)
        rules.commit(record, grant, Payload(b""), None, 0)
        assert record is not None
        return rules.committed(record).result

    def _next(self, request: ClaimRequest, rows: Sequence[Sequence[Any]], now: int | None) -> Granted | None:
        """The next claim. A new key's was made by the commit itself; one that may be had again is claimed now."""

        def ask() -> Answer:
            if rows:
                answer, write = rules.claim(_record(rows[0][1:]), request, rows[0][0])
                if write is None:
                    return answer
            return self.claim(request, now=now)

        return rules.if_granted(ask)

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """As in the contract; `tx` is a SQLAlchemy `Connection`. The claim's row is locked by the commit alone, at the end.

        Statements of definition (CREATE, ALTER, …) in an effect are beyond any promise: MySQL commits at each of them.
        """
        with suppress(NotOurs), self._pool.transaction() as connection:
            driver = connection.connection.driver_connection
            row = send(driver, self._sql["record"], self._values(key=grant.key))[0].rows
            if rules.commit(_record(row[0]) if row else None, grant, Payload(b""), retain, 0) is None:
                raise NotOurs
            result = effect(connection)
            still_in(connection)
            names = ["commit"] if progress is None else ["commit", "remember_done", "advance_if_done"]
            together = ";\n".join(self._sql[name] for name in names)
            values = _commit_values(grant, result, retain, progress, None)
            if not send(driver, together, self._values(now, **values))[0].matched:
                raise NotOurs  # rolls back what the effect wrote
            return result
        return self._require_committed(grant)

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        state = "in_doubt" if in_doubt else "abandoned"
        text = None if error is None else _bytes(error)
        sent = self._send("abandon", now, key=grant.key, nonce=grant.nonce, state=state, error=text)
        # What was given back may be somebody else's by the time of the look, which is for what was given back before.
        return sent[0].matched > 0 or bool(sent[-1].rows)

    def load(self, run_id: str) -> StoredProgress | None:
        row = self._row("load", run=run_id)
        return None if row is None else _run(row)

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        return _run(self._send("save", now, **progress_values(progress))[2].rows[0])

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        return int(self._send("incarnate", now, run=run_id)[2].rows[0][0])

    def delete_run(self, run_id: str) -> bool:
        return self._send("delete_run", run=run_id)[0].matched > 0

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        found: dict[str, StoredRecord] = {}
        asked = iter(dict.fromkeys(keys))
        while some := list(islice(asked, _KEYS_MAX)):
            for at, *row in self._rows("read", now, keys=some):
                record = _record(row)
                if not rules.is_absent(record, at):
                    found[record.key] = record
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
        bounds = {"first": prefix, "end": after_prefix(prefix), "cursor": cursor or "", "limit": limit}
        rows = self._rows(name, now, run_id=run_id or "", **bounds)
        records = [(_record(row), at) for at, *row in rows]
        matching = [record for record, at in records if rules.is_listed(record, state, at)]
        return Page(matching, records[-1][0].key if len(records) == limit else None)

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        runs = [_run(row) for row in self._rows("runs", cursor=cursor or "", limit=limit)]
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
        def rule(record: StoredRecord, at: int) -> tuple[bool, StoredRecord | None]:
            return rules.resolve(record, seen, nonce=nonce, result=result, retain=retain, now=at)

        return self._decide(seen.key, now, rule) or False

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        def once() -> bool:
            with self._pool.single() as connection:
                record, at = self._lock(connection, seen.key, now)
                if record is None or not rules.matches(record, seen, at):
                    connection.rollback()
                    return False
                blob = None if record.result is None else record.result.blob
                send(connection, self._sql["delete"], self._values(key=seen.key, blob=blob))
                connection.commit()
                return True

        return again_after_deadlock(once)

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        ordered = sorted(records, key=lambda record: record.key)  # so that no two batches wait for each other
        stands = [self._place(record, now) for record in ordered]
        found = {record.key: record for record in stands}
        return [found[record.key] for record in records]

    def _place(self, record: StoredRecord, now: int | None) -> StoredRecord:
        sent = self._send("place", now, **record_values(record))
        return _record(sent[_PLACED].rows[0])

    def place_run(self, run: StoredProgress) -> StoredProgress:
        values = {**progress_values(run), "incarnation": run.incarnation, "updated_at": run.updated_at}
        return _run(self._send("place_run", **values)[2].rows[0])

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        for number, data in enumerate(chunks):
            self._send("put_chunk", now, blob=blob, number=number, data=data)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return [data for (data,) in self._rows("chunks", blob=blob)]

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        records = again_after_deadlock(lambda: self._sweep_records(limit, now))
        blobs = [blob for (blob,) in self._rows("orphans", now, limit=limit, age=rules.ORPHAN_AGE)]
        for blob in blobs:
            self._send("delete_chunks", blob=blob)
        return Swept(records, len(blobs), more=limit in (records, len(blobs)))

    def _sweep_records(self, limit: int, now: int | None) -> int:
        with self._pool.single() as connection:
            rows = send(connection, self._sql["past_retention"], self._values(now, limit=limit))[1].rows
            if not rows:
                connection.rollback()
                return 0
            send(connection, self._sql["delete"], *(self._values(key=key, blob=blob) for key, blob in rows))
            connection.commit()
            return len(rows)

    def time(self) -> int:
        return int(self._rows("time")[0][0])

    def setup(self) -> None:
        schema.migrate(self._pool, self._tables, "mysql")

    def check(self) -> Sequence[Finding]:
        return inspection.mysql(self._pool, self._tables)

    def classify(self, error: Exception) -> DurastoreError | None:
        return faults.mysql(error, self.scheme)

    def forked(self) -> None:
        self._pool.forked()

    def close(self) -> None:
        self._pool.close()

    def _values(self, now: int | None = None, **values: Any) -> dict[str, Any]:
        """Parameters: text as bytes, for all columns are binary."""
        given = {"namespace": self._namespace, "now": now, **values}
        return {name: _binary(value) for name, value in given.items()}

    def _send(self, name: str, now: int | None = None, **values: Any) -> list[Sent]:
        """What came of a named statement, or of several that travel together; committed by itself."""
        return sender(self._pool, self._sql[name], self._values(now, **values))

    def _rows(self, name: str, now: int | None = None, **values: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of the last statement."""
        return self._send(name, now, **values)[-1].rows

    def _row(self, name: str, now: int | None = None, **values: Any) -> tuple[Any, ...] | None:
        rows = self._rows(name, now, **values)
        return rows[0] if rows else None

    def _decide(
        self, key: str, now: int | None, rule: Callable[[StoredRecord, int], tuple[T, StoredRecord | None]]
    ) -> T | None:
        """Lock a record, and do with it what `rule` says; None when it is gone. What `rule` raises is passed on."""

        def once() -> T | None:
            with self._pool.single() as connection:
                record, at = self._lock(connection, key, now)
                answer, write = (None, None) if record is None else rule(record, at)
                if write is None:
                    connection.rollback()
                else:
                    send(connection, self._sql["put"], self._values(**record_values(write)))
                return answer

        return again_after_deadlock(once)

    def _lock(self, connection: Any, key: str, now: int | None) -> tuple[StoredRecord | None, int]:
        """The record, its row locked in a transaction, and the time once it was."""
        _, found, clock = send(connection, self._sql["lock"], self._values(now, key=key))
        return _record(found.rows[0]) if found.rows else None, clock.rows[0][0]


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


def _record(row: Sequence[Any]) -> StoredRecord:
    return record_of(_texts(row, _RESULT))


def _run(row: Sequence[Any]) -> StoredProgress:
    return run_of(_texts(row, _STATE))


def _texts(row: Sequence[Any], payload: int) -> list[Any]:
    """A row with its binary columns as text, except the payload."""
    return [
        value.decode() if isinstance(value, bytes) and index != payload else value for index, value in enumerate(row)
    ]


def _binary(value: Any) -> Any:
    if isinstance(value, str):
        return _bytes(value)
    return [_binary(item) for item in value] if isinstance(value, list) else value


def _bytes(text: str) -> bytes:
    """UTF-8; a lone surrogate, which an error's text may hold, as an escape."""
    return text.encode(errors="backslashreplace")
