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

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from durastore.errors import DurastoreError
from durastore_dynamodb import faults, looking, schema
from durastore_dynamodb.api import Api, Refused
from durastore_dynamodb.chunks import CHUNK, Chunks
from durastore_dynamodb.claims import WRITERS, Claims
from durastore_dynamodb.clock import MARGIN
from durastore_dynamodb.commits import Commits
from durastore_dynamodb.items import are_remains
from durastore_dynamodb.layout import Names
from durastore_dynamodb.runs import Runs
from durastore_dynamodb.target import Target

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["DynamoDBBackend"]


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
        self._claims = Claims(self._api, self._names, self._chunks)
        self._commits = Commits(self._api, self._names, self._chunks, self._claims, self._runs, fuse=self.target.fuse)

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

    # Claims and commits

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        return self._claims.claim(request, now)

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        return self._claims.renew(grants, now)

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        return self._claims.abandon(grant, error=error, in_doubt=in_doubt, now=now)

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
        return self._commits.commit(grant, result=result, retain=retain, progress=progress, then=then, now=now)

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
        return self._commits.transact(grant, effect, retain=retain, progress=progress, now=now)

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
        record = self._claims.record(self._api.get(self._names.record(seen.key)))
        while True:
            at = self._api.judged(now)
            answer, write = rules.resolve(record, seen, nonce=nonce, result=result, retain=retain, now=at)
            if write is None:
                return answer
            landed = self._claims.write(write, record, now)
            if not isinstance(landed, Refused):
                return True
            record = self._claims.record(landed.item)

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        record = self._claims.record(self._api.get(self._names.record(seen.key)))
        while record is not None and rules.matches(record, seen, self._api.judged(now)):
            refused = self._claims.remove(record, now)
            if refused is None:
                return True
            record = self._claims.record(refused.item)
        return False

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        if len(records) <= 1:
            return [self._place(record, now) for record in records]
        with ThreadPoolExecutor(min(WRITERS, len(records))) as pool:
            return list(pool.map(lambda record: self._place(record, now), records))

    def _place(self, record: StoredRecord, now: int | None) -> StoredRecord:
        before: StoredRecord | None = None
        while True:
            standing = None if before is None or are_remains(before) else before
            stands, write = rules.place(standing, record, self._api.judged(now))
            landed = None if write is None else self._claims.write(write, before, now)
            if not isinstance(landed, Refused):
                return stands
            before = self._claims.record(landed.item)

    def place_run(self, run: StoredProgress) -> StoredProgress:
        return self._runs.place(run)

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        self._chunks.put(blob, chunks, now)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return self._chunks.get(blob)

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        records, more = looking.sweep(self._api, self._names, self._claims, limit=limit, now=now)
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
