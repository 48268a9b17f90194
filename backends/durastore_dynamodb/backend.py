"""DynamoDB as a store: one conditional update for each verb.

**One request** for what is usual. A claim is one `UpdateItem` on condition that the key is absent; when that fails, the
answer brings the record as it was, `durastore.rules` decides, and *committed* and *held* are answered without another
request. What may be taken over is written on condition that it is as it was read. Commit, renew and abandon are one
update on condition of the nonce; commit with progress is one transaction of two updates.

**Fused or not.** A commit can claim the next key in one transaction: one round trip less for each step of a sequential
loop. But an item in a transaction costs twice the write units. A commit with progress is a transaction anyway, and the
next claim in it costs one unit more than by itself (9 instead of 8) for half the requests: fused. A commit alone is a
plain update, and a transaction for the sake of the next claim would cost 7 units instead of 5: not fused. ``?fuse=true``
and ``?fuse=false`` decide for both. A rival that touches the next key at the same moment does not delay the commit: it
then lands alone.

**Time**: see `clock`. A grant is checked against the ``Date`` of the answer that made it, and stamped anew before it is
returned when they differ by more than 2 s. `clock_margin` is by how much the end of a lease may be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

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
from durastore.errors import DurastoreError, PayloadError
from durastore_dynamodb import faults, looking, schema
from durastore_dynamodb.api import Api, Refused
from durastore_dynamodb.chunks import CHUNK, Chunks, Pointer
from durastore_dynamodb.clock import MARGIN
from durastore_dynamodb.items import Guard, Item, Update, conditional, number, record_of, retention, unchanged, whole
from durastore_dynamodb.layout import Names
from durastore_dynamodb.runs import Runs
from durastore_dynamodb.target import Target

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["DynamoDBBackend"]

_RESTAMPS = 3
_RENEWERS = 8
"""Threads that renew many claims; each renewal is a request of its own, since batches have no conditions."""
_TRANSACTION_ITEMS = 100
_OF_A_CLAIM = ("error", "expires_at", "todo", "due")
"""What a claimed record has and a committed one has not."""


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a commit writes."""

    grant: Grant
    result: Payload
    retain: int | None
    progress: StoredProgress | None
    now: int | None


class DynamoDBBackend:
    """The backend for one namespace of one table."""

    scheme = "dynamodb"
    limits = Limits(inline=64 * 1024, chunk=CHUNK)
    """A skip is billed by the size of the record, so that it is kept far below the 400 KB that an item takes."""
    creates_itself = False
    clock_margin = MARGIN
    """Microseconds by which the end of a lease may be wrong: late as a rule, early only where the process was frozen."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._names = Names(target.namespace)
        self._connect()

    def _connect(self) -> None:
        self._api = Api(self.target, schema.look)
        self._chunks = Chunks(self._api, self._names)
        self._runs = Runs(self._api, self._names, self._chunks)

    @property
    def client(self) -> DynamoDBClient:
        """The low-level boto3 client, also for user code."""
        return self._api.client

    def look(self) -> None:
        """Refuse a table in several regions. Raises `ConfigError`; a store out of reach is left to the first verb."""
        try:
            self._api.ready()
        except (ClientError, BotoCoreError):
            return

    # Claims

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        record: StoredRecord | None = None
        while True:
            sent = time.monotonic()
            answer, write = rules.claim(record, request, self._api.judged(now))
            if write is None and not isinstance(answer, Granted):
                return answer
            stamped = record if write is None else self._stamped(write, record, now)
            assert stamped is not None, "a claim is granted by a record"
            landed = stamped if write is None else self._write(stamped, record, now)
            if not isinstance(landed, Refused):
                landed = self._settled(stamped, sent, now)
            if not isinstance(landed, Refused):
                assert isinstance(answer, Granted), "only a grant writes"
                return Granted(rules.grant_of(landed), answer.took_over)
            record = self._record(landed.item)

    def _record(self, item: Item | None) -> StoredRecord | None:
        return None if item is None else record_of(item, self._names)

    def _stamped(self, write: StoredRecord, before: StoredRecord | None, now: int | None) -> StoredRecord:
        """A new claim with the time to write instead of the time to judge by."""
        if now is not None:
            return write
        stamp = self._api.stamp(now)
        fresh = write.created_at == write.updated_at
        return replace(
            write,
            token=stamp if before is None else write.token,
            expires_at=self._expiry(stamp, write.lease or 0),
            created_at=stamp if fresh else write.created_at,
            updated_at=stamp,
        )

    def _expiry(self, stamp: int, lease: int) -> int:
        """When a lease from a stamp ends. One of 0 has lapsed at once, for everybody: nobody judges by a time a margin ago."""
        return stamp + lease if lease else self._api.judged(None) - MARGIN

    def _write(self, record: StoredRecord, before: StoredRecord | None, now: int | None) -> StoredRecord | Refused:
        """Write a whole record if nothing changed since it was read, and what that does to payloads."""
        update = whole(record, before, self._names, physical=now is None)
        pointer = Pointer(update.key, _blob(before), _blob(record), record.retain_until)
        beside = self._chunks.follow(pointer)
        if not beside:
            answer = self._api.update(update)
            return answer if isinstance(answer, Refused) else record
        reasons = self._api.transact([{"Update": one.arguments(self._api.table)} for one in (update, *beside)])
        refused = None if reasons is None else reasons[0]
        return refused or record

    def _settled(self, record: StoredRecord, sent: float, now: int | None) -> StoredRecord | Refused:
        """The claim, stamped anew if the answer's time says that the stamp was wrong, or had grown old on its way."""
        for _ in range(_RESTAMPS):
            if now is not None or record.expires_at is None:
                break
            if not self._api.clock.is_off(record.updated_at, sent, landed=True):
                break
            sent, stamp = time.monotonic(), self._api.stamp(None)
            fresh = record.token == record.created_at
            again = replace(
                record,
                token=stamp if fresh else record.token,
                created_at=stamp if fresh else record.created_at,
                expires_at=self._expiry(stamp, record.lease or 0),
                updated_at=stamp,
            )
            landed = self._write(again, record, None)
            if isinstance(landed, Refused):
                return landed
            record = again
        return record

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        if len(grants) <= 1:
            return [self._renew(grant, now) for grant in grants]
        with ThreadPoolExecutor(min(_RENEWERS, len(grants))) as pool:
            return list(pool.map(lambda grant: self._renew(grant, now), grants))

    def _renew(self, grant: Grant, now: int | None) -> Grant | None:
        for _ in range(_RESTAMPS):
            sent, stamp = time.monotonic(), self._api.stamp(now)
            expiry = stamp + grant.lease if now is not None else self._expiry(stamp, grant.lease)
            times = {"lease": grant.lease, "expires_at": expiry, "updated_at": stamp}
            landed = self._api.update(self._held(grant, {name: number(value) for name, value in times.items()}))
            if isinstance(landed, Refused):
                return rules.renew(self._record(landed.item), grant, stamp)[0]
            if now is not None or not self._api.clock.is_off(stamp, sent):
                break
        return grant

    def _held(self, grant: Grant, set: Item, remove: Sequence[str] = ()) -> Update:  # noqa: A002  as in `Update`
        """Change the record if the grant still stands."""
        values = {":nonce": {"S": grant.nonce}, ":claimed": {"S": "claimed"}}
        return Update(
            self._names.record(grant.key), Guard("#nonce = :nonce AND #state = :claimed", values), set, remove
        )

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        item: Item = {
            "state": {"S": "in_doubt" if in_doubt else "abandoned"},
            "updated_at": number(self._api.stamp(now)),
        }
        if error is not None:
            item["error"] = {"S": error}
        landed = self._api.update(
            self._held(grant, item, ("expires_at",) if error is not None else ("expires_at", "error"))
        )
        if not isinstance(landed, Refused):
            return True
        record = self._record(landed.item)
        return rules.abandon(record, grant, error=error, in_doubt=in_doubt, now=0)[0]

    # Commits

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
        commit = _Commit(grant, result, retain, progress, now)
        if then is None:
            self._commit(commit)
            return None
        fuse = progress is not None if self.target.fuse is None else self.target.fuse
        if fuse and then.key != grant.key:
            granted = self._fused(commit, then)
            if granted is not None:
                return granted
        else:
            self._commit(commit)
        return self._next(then, now)

    def _next(self, then: ClaimRequest, now: int | None) -> Granted | None:
        return rules.if_granted(lambda: self.claim(then, now=now))

    def _fused(self, commit: _Commit, then: ClaimRequest) -> Granted | None:
        """Commit and claim an absent key at once; None when the commit landed alone."""
        sent = time.monotonic()
        answer, write = rules.claim(None, then, self._api.judged(commit.now))
        assert write is not None, "an absent key is granted"
        record = self._stamped(write, None, commit.now)
        update = whole(record, None, self._names, physical=commit.now is None)
        if not self._commit(commit, [{"Update": update.arguments(self._api.table)}], optional=True):
            return None
        settled = self._settled(record, sent, commit.now)
        if isinstance(settled, Refused) or not isinstance(answer, Granted):
            return None
        return Granted(rules.grant_of(settled))

    def _commit(self, commit: _Commit, extra: Sequence[Any] = (), *, optional: bool = False) -> bool:
        """Write a commit, and `extra` items of a transaction with it; whether those landed too.

        `optional`: when a condition of theirs fails, the commit lands alone. Else that is raised as the client raises it.
        """
        seen: Item | None = None
        while True:
            sent, stamp = time.monotonic(), self._api.stamp(commit.now)
            items = self._items(commit, seen, stamp)
            reasons = self._write_commit(items, extra, optional=optional)
            if reasons is None:
                self._settle_retention(commit, stamp, sent)
                return bool(extra) or not optional
            if reasons[0] is not None:
                rules.commit(self._record(reasons[0].item), commit.grant, commit.result, commit.retain, stamp)
                return False
            saving = None if commit.progress is None else reasons[1]
            if saving is not None:
                seen = saving.item
            elif optional and any(reasons[len(items) :]):
                extra = ()

    def _items(self, commit: _Commit, seen: Item | None, stamp: int) -> list[Any]:
        """The record, the progress, and what that does to payloads."""
        mark = self._mark(commit, stamp)
        pointers = [Pointer(mark.key, None, commit.result.blob, self._until(commit, stamp))]
        items = [{"Update": mark.arguments(self._api.table)}]
        if commit.progress is not None:
            saving = self._runs.saving(commit.progress, seen, stamp)
            items.append(saving.item)
            pointers += [] if saving.pointer is None else [saving.pointer]
        return items + [{"Update": one.arguments(self._api.table)} for one in self._chunks.follow(*pointers)]

    def _until(self, commit: _Commit, stamp: int) -> int | None:
        """When retention ends; like a lease of 0, one of 0 has ended at once, for everybody."""
        if commit.retain is None:
            return None
        return stamp + commit.retain if commit.now is not None else self._expiry(stamp, commit.retain)

    def _mark(self, commit: _Commit, stamp: int) -> Update:
        item: Item = {
            "state": {"S": "committed"},
            "result": {"B": commit.result.data},
            "updated_at": number(stamp),
            **retention(commit.grant.key, self._until(commit, stamp), self._names, physical=commit.now is None),
        }
        if commit.result.blob is not None:
            item["blob"] = {"S": commit.result.blob}
        return self._held(commit.grant, item, [name for name in _OF_A_CLAIM if name not in item])

    def _write_commit(self, items: list[Any], extra: Sequence[Any], *, optional: bool) -> list[Refused | None] | None:
        if len(items) == 1 and not extra:
            try:
                self._api.call("update_item", **items[0]["Update"])
            except ClientError as error:
                refused = self._api.refused(error)
                if refused is None:
                    raise
                return [refused]
            return None
        if len(items) + len(extra) > _TRANSACTION_ITEMS:
            raise PayloadError(
                f"one transaction takes {_TRANSACTION_ITEMS} items, {len(items)} of which are durastore's; transact() wrote "
                f"{len(extra)}. Write fewer"
            )
        return self._api.transact([*items, *extra], ours=len(items), optional=optional)

    def _settle_retention(self, commit: _Commit, stamp: int, sent: float) -> None:
        """Write the end of retention anew if the answer's time says that it was wrong."""
        if not commit.retain or commit.now is not None or not self._api.clock.is_off(stamp, sent):
            return
        until, key = self._api.stamp(None) + commit.retain, commit.grant.key
        values = {":nonce": {"S": commit.grant.nonce}, ":committed": {"S": "committed"}}
        guard = Guard("#nonce = :nonce AND #state = :committed", values)
        self._api.update(Update(self._names.record(key), guard, retention(key, until, self._names, physical=True)))

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """As in the contract; `tx` is a list to which `effect` appends items of `transact_write_items`, as the low-level
        client takes them. A condition of theirs that fails is raised as boto3 raises it, and the claim stands.
        """
        record = self._record(self._api.get(self._names.record(grant.key)))
        if rules.commit(record, grant, Payload(b""), retain, self._api.judged(now)) is None:
            return _result(record)
        tx: list[Any] = []
        result = effect(tx)
        if not self._commit(_Commit(grant, result, retain, progress, now), tx):
            return _result(self._record(self._api.get(self._names.record(grant.key))))
        return result

    # Progress

    def load(self, run_id: str) -> StoredProgress | None:
        return self._runs.load(run_id)

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        return self._runs.save(progress, now)

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        return self._runs.incarnate(run_id, now)

    def delete_run(self, run_id: str) -> bool:
        return self._runs.delete(run_id)

    # Looking

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        return looking.read(self._api, self._names, keys, now) if keys else []

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
        """As in the contract. By run, and by state alone unless ``committed``, the newest records may be missing for a moment:
        the index that finds them is eventually consistent. What is listed is read consistently.
        """
        return looking.records(
            self._api, self._names, run_id=run_id, state=state, prefix=prefix, cursor=cursor, limit=limit, now=now
        )

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        return looking.runs(self._api, self._names, cursor, limit)

    # Settling and removing

    def resolve(
        self,
        seen: StoredRecord,
        *,
        nonce: str,
        result: Payload | None,
        retain: int | None = None,
        now: int | None = None,
    ) -> bool:
        record = self._record(self._api.get(self._names.record(seen.key)))
        while True:
            at = self._api.judged(now)
            answer, write = rules.resolve(record, seen, nonce=nonce, result=result, retain=retain, now=at)
            if write is None:
                return answer
            landed = self._write(write, record, now)
            if not isinstance(landed, Refused):
                return True
            record = self._record(landed.item)

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        key = self._names.record(seen.key)
        record = self._record(self._api.get(key))
        while record is not None and rules.matches(record, seen, self._api.judged(now)):
            self._api.outlast(record.token, now)
            refused = self._delete(record)
            if refused is None or (refused.item is None and refused.again):
                blob = _blob(record)
                if blob is not None:
                    self._chunks.drop(blob)
                return True
            record = self._record(refused.item)
        return False

    def _delete(self, record: StoredRecord) -> Refused | None:
        """Delete a record as it was read; its payload is let go in the same transaction."""
        key, guard = self._names.record(record.key), unchanged(record)
        beside = self._chunks.follow(Pointer(key, _blob(record), None))
        if not beside:
            answer = self._api.delete(key, guard)
            return answer if isinstance(answer, Refused) else None
        items = [{"Delete": conditional(self._api.table, key, guard)}]
        reasons = self._api.transact(items + [{"Update": one.arguments(self._api.table)} for one in beside])
        return None if reasons is None else reasons[0]

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        if len(records) <= 1:
            return [self._place(record, now) for record in records]
        with ThreadPoolExecutor(min(_RENEWERS, len(records))) as pool:
            return list(pool.map(lambda record: self._place(record, now), records))

    def _place(self, record: StoredRecord, now: int | None) -> StoredRecord:
        before: StoredRecord | None = None
        while True:
            stands, write = rules.place(before, record, self._api.judged(now))
            landed = None if write is None else self._write(write, before, now)
            if not isinstance(landed, Refused):
                return stands
            before = self._record(landed.item)

    def place_run(self, run: StoredProgress) -> StoredProgress:
        return self._runs.place(run)

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        self._chunks.put(blob, chunks, now)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return self._chunks.get(blob)

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        records, more = looking.sweep(self._api, self._names, self._chunks, limit=limit, now=now)
        orphans, more_orphans = self._chunks.sweep(self._api.judged(now), limit)
        return Swept(records, orphans, more or more_orphans)

    # The store itself

    def time(self) -> int:
        """The middle of what the store's time may be by an answer just heard; to about half a second."""
        self._api.get(self._names.run("-"))
        low, high = self._api.clock.bounds()
        return (low + high) // 2

    def setup(self) -> None:
        schema.setup(self._api)

    def check(self) -> Sequence[Finding]:
        return schema.check(self._api, self.target.namespace)

    def classify(self, error: Exception) -> DurastoreError | None:
        return faults.classify(error, self.target)

    def forked(self) -> None:
        """The child gets a client of its own."""
        self._connect()

    def close(self) -> None:
        self._api.client.close()


def _blob(record: StoredRecord | None) -> str | None:
    return None if record is None or record.result is None else record.result.blob


def _result(record: StoredRecord | None) -> Payload:
    assert record is not None, "it is committed"
    return rules.committed(record).result
