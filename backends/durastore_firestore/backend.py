"""Firestore as a store: conditional commits, no transactions.

**One round trip** for what is usual. A claim of a key that is not known creates its document (``exists=false``); a commit
patches the document on condition that it is as the grant left it (`Grant.version` is its `update_time`), and writes the
progress and the next claim beside it. When a condition fails (one's own renewal came between, an answer was lost, a rival was
faster), the documents are read, `durastore.rules` decides, and what it says is written on condition that nothing changed since
that read. So a pause anywhere overwrites nothing, and nobody waits for a lock: contended read-then-write transactions take 2 to
4 s each on the emulator, conditional commits milliseconds.

**Read first or create first.** Medians on the emulator (a `create()` of the official client takes 0.92 ms)::

                      new key            known key
    create first      1 RPC, 0.77 ms     2 RPCs, 1.45 ms
    read first        2 RPCs, 1.36 ms    1 RPC, 0.64 ms

So each run remembers how its last claim went. New keys are created first; after an answer that found a record the next claim
reads first, as does the first claim of a run that was loaded and has progress. A replay pays one RPC more where it ends, and
at most one where it begins.

**Time** is `update_time` and `read_time` of the answers (see `documents`). **Progress**: a run's document takes about one
sustained write per second. `commit` writes it with the result, always, since both land together or not at all; who makes more
steps per second than that saves the map less often instead (`progress_interval` says how often is well), and loses nothing: the
results carry the truth, and the steps since the last save are replayed at one read for hundreds of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from durastore.errors import DurastoreError
from durastore_firestore import faults, looking, wire
from durastore_firestore.chunks import CHUNK
from durastore_firestore.documents import beat, expiry, record_fields
from durastore_firestore.draft import Draft
from durastore_firestore.effects import EffectBatch
from durastore_firestore.memo import Memo
from durastore_firestore.runs import Runs
from durastore_firestore.space import Space
from durastore_firestore.target import Target
from durastore_firestore.wire import Fields, Message

__all__ = ["FirestoreBackend"]

_ESTIMATE_OFF = 60_000_000
"""Microseconds that the estimate of the server's time may be off before the end of retention is written anew."""


class FirestoreBackend:
    """The backend for one namespace of one database."""

    scheme = "firestore"
    limits = Limits(inline=256 * 1024, chunk=CHUNK)
    creates_itself = False
    progress_interval = 1.0
    """Seconds between two writes of one run's progress that Firestore sustains."""

    def __init__(self, target: Target, interceptors: Sequence[Any] = ()) -> None:
        """`interceptors`: gRPC client interceptors, outermost first."""
        self.target = target
        self._space = Space(target, interceptors)
        self._forget()

    def _forget(self) -> None:
        self._runs = Runs(self._space)
        self._reads_first: Memo[bool] = Memo()
        """Whether a run's next claim reads before it writes."""
        self._client: Any = None

    # Claims

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        if not self._reads_first.get(request.run_id):
            granted = self._create(request, now)
            if granted is not None:
                return granted
        answer, draft = self._space.decide(lambda draft: _claimed(draft, request), keys=[request.key], now=now)
        if not isinstance(answer, Granted):
            self._reads_first.put(request.run_id, True)
            return answer
        grant = draft.grant(answer.grant)
        self._reads_first.put(request.run_id, grant is answer.grant)
        return replace(answer, grant=grant)

    def _create(self, request: ClaimRequest, now: int | None) -> Granted | None:
        """One RPC: the key is ours unless somebody has it already."""
        write, grant = self._fresh(request, now)
        times = self._space.rpc.attempt([write])
        return None if times is None else Granted(_born(grant, times[0], now))

    def _fresh(self, request: ClaimRequest, now: int | None) -> tuple[Message, Grant]:
        """The write that claims a key that is not there yet, and the grant it makes, but for its token."""
        _, record = rules.claim(None, request, 0)
        assert record is not None
        fields = record_fields(record, self._space.rpc.clock, now=now, fresh=True)
        return wire.create(self._space.names.record(request.key), fields), rules.grant_of(record)

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        known = {grant.key: grant for grant in grants if grant.version is not None}  # a request takes a document once
        times = self._space.rpc.each([self._renewal(grant, now) for grant in known.values()])
        renewed = {
            grant.nonce: replace(grant, version=at)
            for grant, at in zip(known.values(), times, strict=True)
            if at is not None
        }
        return [renewed.get(grant.nonce) or self._renew(grant, now) for grant in grants]

    def _renewal(self, grant: Grant, now: int | None) -> Message:
        return self._patch(grant, {"lease": grant.lease, "beat": beat(), "at": now})

    def _renew(self, grant: Grant, now: int | None) -> Grant | None:
        def decide(draft: Draft) -> Grant | None:
            answer, write = rules.renew(draft.record(grant.key), grant, draft.now)
            draft.write(write)
            return answer

        answer, draft = self._space.decide(decide, keys=[grant.key], now=now)
        return None if answer is None else draft.grant(answer)

    def _patch(self, grant: Grant, fields: Fields) -> Message:
        """Change the record on condition that it is as the grant left it."""
        return wire.patch(self._space.names.record(grant.key), {**fields, "token": grant.token}, grant.version)

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        state = "in_doubt" if in_doubt else "abandoned"
        patch = self._patch(grant, {"state": state, "error": error, "at": now})
        if grant.version is not None and self._space.rpc.attempt([patch]):
            return True

        def decide(draft: Draft) -> bool:
            record = draft.record(grant.key)
            answer, write = rules.abandon(record, grant, error=error, in_doubt=in_doubt, now=draft.now)
            draft.write(write)
            return answer

        return self._space.decide(decide, keys=[grant.key], now=now)[0]

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
        done, granted = self._commit_at_once(grant, result, retain, progress, then, now)
        if done:
            return granted

        def decide(draft: Draft) -> Granted | None:
            _commit(draft, grant, result, retain, progress)
            return None if then is None else _next(draft, then)

        keys = [grant.key] if then is None else [grant.key, then.key]
        answer, draft = self._space.decide(decide, keys=keys, runs=_run_ids(progress), now=now)
        self._runs.remember(draft)
        return None if answer is None else replace(answer, grant=draft.grant(answer.grant))

    def _commit_at_once(
        self,
        grant: Grant,
        result: Payload,
        retain: int | None,
        progress: StoredProgress | None,
        then: ClaimRequest | None,
        now: int | None,
    ) -> tuple[bool, Granted | None]:
        """One RPC, if all is as this process last saw it; (False, None) if not, and nothing was written."""
        saving = [] if progress is None else self._runs.save_writes(progress, now)
        if grant.version is None or saving is None or (then is not None and then.key == grant.key):
            return False, None
        due = expiry(retain, self._space.rpc.clock, now)
        writes = [self._patch(grant, _committed_fields(result, due, now)), *saving]
        writes += self._space.chunks.follow(None, result.blob, due["sweep_after"])
        next_grant = None
        if then is not None:
            write, next_grant = self._fresh(then, now)
            writes.append(write)
        times = self._space.rpc.attempt(writes)
        if times is None:
            return False, None
        self._correct_expiry(grant, due, times[0], now)
        if progress is not None:
            self._runs.saved(progress, times[1], now)
        return True, None if next_grant is None else Granted(_born(next_grant, times[-1], now))

    def _correct_expiry(self, grant: Grant, due: dict[str, int | None], at: int, now: int | None) -> None:
        """Write the end of retention anew when the server's time was far from our estimate (this process was frozen)."""
        retain, after = due["retain"], due["sweep_after"]
        if retain is None or after is None or now is not None or abs(at + retain - after) <= _ESTIMATE_OFF:
            return
        again = expiry(retain, self._space.rpc.clock, None)
        self._space.rpc.each([wire.patch(self._space.names.record(grant.key), again, at)])

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """As in the contract; `tx` is a `google.cloud.firestore.WriteBatch`, and ``tx.client`` the client of its references."""
        batch = EffectBatch(self.client)

        def decide(draft: Draft) -> Payload:
            batch.clear()
            record = draft.record(grant.key)
            if record is not None and rules.commit(record, grant, Payload(b""), retain, draft.now) is None:
                return rules.committed(record).result
            if record is None:
                raise rules.lost(grant, None)
            result = effect(batch)
            _commit(draft, grant, result, retain, progress)
            return result

        result, draft = self._space.decide(decide, keys=[grant.key], runs=_run_ids(progress), now=now, batch=batch)
        self._runs.remember(draft)
        return result

    @property
    def client(self) -> Any:
        """The `google.cloud.firestore.Client` that shares this backend's channel, for user code."""
        if self._client is None:
            self._client = self.target.client(self._space.rpc.channel)
        return self._client

    # Progress

    def load(self, run_id: str) -> StoredProgress | None:
        found = self._runs.load(run_id)
        self._reads_first.put(run_id, found is not None)
        return found

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        return self._runs.save(progress, now)

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        return self._runs.incarnate(run_id, now)

    def delete_run(self, run_id: str) -> bool:
        return self._runs.delete(run_id)

    # Looking

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        return looking.read(self._space, keys, now)

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
        return looking.records(
            self._space, run_id=run_id, state=state, prefix=prefix, cursor=cursor, limit=limit, now=now
        )

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        return looking.runs(self._space, cursor, limit)

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
        def decide(draft: Draft) -> bool:
            record = draft.record(seen.key)
            answer, write = rules.resolve(record, seen, nonce=nonce, result=result, retain=retain, now=draft.now)
            draft.write(write)
            return answer

        return self._space.decide(decide, keys=[seen.key], now=now)[0]

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        def decide(draft: Draft) -> StoredRecord | None:
            record = draft.record(seen.key)
            if record is None or not rules.matches(record, seen, draft.now):
                return None
            draft.drop(seen.key)
            return record

        deleted, _ = self._space.decide(decide, keys=[seen.key], now=now)
        if deleted is not None and deleted.result is not None and deleted.result.blob is not None:
            looking.delete_chunks(self._space, [deleted.result.blob])
        return deleted is not None

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        stands: list[StoredRecord] = []
        for some in looking.portions(records):
            stands += self._place(some, now)
        return stands

    def _place(self, records: Sequence[StoredRecord], now: int | None) -> list[StoredRecord]:
        def decide(draft: Draft) -> list[StoredRecord]:
            decided = [rules.place(draft.record(record.key), record, draft.now) for record in records]
            for _, write in decided:
                draft.place(write)
            return [stands for stands, _ in decided]

        return self._space.decide(decide, keys=[record.key for record in records], now=now)[0]

    def place_run(self, run: StoredProgress) -> StoredProgress:
        return self._runs.place(run)

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        self._space.chunks.put(blob, chunks, now)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return self._space.chunks.get(blob)

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        at = self.time() if now is None else now
        records, more_records = looking.sweep(self._space, at, limit)
        chunks, more_chunks = self._space.chunks.sweep(at, limit)
        return Swept(records, chunks, more_records or more_chunks)

    # The store itself

    def time(self) -> int:
        return self._space.rpc.get([self._space.names.run("")]).read_time

    def setup(self) -> None:
        """Collections need no making. Raises when the database cannot be read."""
        self.time()

    def check(self) -> Sequence[Finding]:
        return faults.check(self.target, self._space.names, self._space.rpc)

    def classify(self, error: Exception) -> DurastoreError | None:
        return faults.classify(error, self.target)

    def forked(self) -> None:
        self._space.rpc.forked()
        self._forget()

    def close(self) -> None:
        self._space.rpc.close()


def _claimed(draft: Draft, request: ClaimRequest) -> Answer:
    answer, write = rules.claim(draft.record(request.key), request, draft.now)
    draft.write(write)
    return answer


def _next(draft: Draft, request: ClaimRequest) -> Granted | None:
    return rules.if_granted(lambda: _claimed(draft, request))


def _commit(draft: Draft, grant: Grant, result: Payload, retain: int | None, progress: StoredProgress | None) -> None:
    write = rules.commit(draft.record(grant.key), grant, result, retain, draft.now)
    draft.write(write)
    if progress is not None and write is not None:
        draft.advance(rules.advance(draft.run(progress.run_id), progress, draft.now))


def _run_ids(progress: StoredProgress | None) -> Sequence[str]:
    return () if progress is None else (progress.run_id,)


def _born(grant: Grant, version: int, now: int | None) -> Grant:
    """The grant of a key that was not there: its token is the time of the write."""
    return replace(grant, token=version if now is None else now, version=version)


def _committed_fields(result: Payload, due: Fields, now: int | None) -> Fields:
    done: Fields = {"state": "committed", "result": result.data, "blob": result.blob, "error": None, "at": now}
    return {**done, **due}
