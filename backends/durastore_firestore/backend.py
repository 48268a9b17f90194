"""Firestore as a store: conditional commits, no transactions.

**One round trip** for what is usual. A claim of a key that is not known creates its document (``exists=false``); a commit
patches the document on condition that it is as the grant left it (`Grant.version` is its `update_time`), and writes the
progress and the next claim beside it. When a condition fails (one's own renewal came between, an answer was lost, a rival was
faster), the documents are read, `durastore.rules` decides, and what it says is written on condition that nothing changed since
that read. So a pause anywhere overwrites nothing, and nobody waits for a lock: contended read-then-write transactions take 2 to
4 s each on the emulator, conditional commits milliseconds.

**Read first or create first.** A claim that creates first costs 1 RPC on a new key and 2 on a known one; one that reads first
costs 2 and 1. Each run remembers how its last claim went: new keys are created first, and after an answer that found a record
the next claim reads first, as does the first claim of a run that was loaded and has progress. So a replay pays at most one RPC
more where it begins, and one where it ends.

**Time** is `update_time` and `read_time` of the answers (see `documents`). **Progress**: a run's document takes about one
sustained write per second. `commit` writes it with the result, always, since both land together or not at all; who makes more
steps per second than that saves the map less often instead (`progress_interval` says how often is well), and loses nothing: the
results carry the truth, and the steps since the last save are replayed at one read for hundreds of keys.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import grpc

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
from durastore.errors import DurastoreError, FingerprintMismatch
from durastore_firestore import faults, listing, wire
from durastore_firestore.chunks import CHUNK, Chunks
from durastore_firestore.documents import (
    Names,
    Run,
    beat,
    expiry,
    record_fields,
    record_of,
    retain_until,
    run_fields,
    run_of,
)
from durastore_firestore.draft import Draft, blob_of
from durastore_firestore.effects import EffectBatch, refused
from durastore_firestore.memo import Memo, remember_run
from durastore_firestore.rpc import Rpc, is_stale
from durastore_firestore.target import Target
from durastore_firestore.wire import Fields, Message

__all__ = ["FirestoreBackend"]

T = TypeVar("T")
_CONTENTION = 8.0
"""Seconds that a verb goes on reading and deciding anew while rivals write the same documents."""
_PAUSE_FIRST, _PAUSE_MAX = 0.002, 0.25
"""Seconds, at most, before deciding anew; doubled each time."""
_ABORTED = grpc.StatusCode.ABORTED
_READ_MAX = 300
"""Documents in one read."""
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
        self._rpc = Rpc(target, interceptors)
        self._names = Names(target.path, target.collection, target.namespace)
        self._chunks = Chunks(self._rpc, self._names)
        self._forget()

    def _forget(self) -> None:
        self._runs: Memo[Run] = Memo()
        self._reads_first: Memo[bool] = Memo()
        self._client: Any = None

    # Claims

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        if not self._reads_first.get(request.run_id):
            granted = self._create(request, now)
            if granted is not None:
                return granted
        answer, draft = self._decide(lambda draft: _claimed(draft, request), keys=[request.key], now=now)
        if not isinstance(answer, Granted):
            self._reads_first.put(request.run_id, True)
            return answer
        grant = draft.grant(answer.grant)
        self._reads_first.put(request.run_id, answer.grant is grant)
        return replace(answer, grant=grant)

    def _create(self, request: ClaimRequest, now: int | None) -> Granted | None:
        """One RPC: the key is ours unless somebody has it already."""
        write, grant = self._fresh(request, now)
        times = self._try([write])
        return None if times is None else Granted(_born(grant, times[0], now))

    def _fresh(self, request: ClaimRequest, now: int | None) -> tuple[Message, Grant]:
        """The write that claims a key that is not there yet, and the grant it makes, but for its token."""
        _, record = rules.claim(None, request, 0)
        assert record is not None
        fields = record_fields(record, self._rpc.clock, now=now, fresh=True)
        return wire.create(self._names.record(request.key), fields), rules.grant_of(record)

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        at_once = {
            grant.key: grant for grant in grants if grant.version is not None
        }  # one request takes each document once
        times = self._rpc.each([self._renewal(grant, now) for grant in at_once.values()])
        renewed = {
            grant.nonce: replace(grant, version=at)
            for grant, at in zip(at_once.values(), times, strict=True)
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

        answer, draft = self._decide(decide, keys=[grant.key], now=now)
        return None if answer is None else draft.grant(answer)

    def _patch(self, grant: Grant, fields: Fields) -> Message:
        """Change the record on condition that it is as the grant left it."""
        return wire.patch(self._names.record(grant.key), {**fields, "token": grant.token}, grant.version)

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
            write = rules.commit(draft.record(grant.key), grant, result, retain, draft.now)
            draft.write(write)
            if progress is not None and write is not None:
                draft.advance(rules.advance(draft.run(progress.run_id), progress, draft.now))
            return None if then is None else _next(draft, then)

        keys = [grant.key] if then is None else [grant.key, then.key]
        runs = [] if progress is None else [progress.run_id]
        answer, draft = self._decide(decide, keys=keys, runs=runs, now=now)
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
        saved = None if progress is None else self._save_write(progress, now)
        if grant.version is None or (progress is not None and saved is None) or (then and then.key == grant.key):
            return False, None
        due = expiry(retain, self._rpc.clock, now)
        writes = [self._patch(grant, _committed_fields(result, due, now))]
        writes += [] if saved is None else [saved]
        claim, next_grant = (None, None) if then is None else self._fresh(then, now)
        writes += [] if claim is None else [claim]
        extra = self._chunks.follow(None, result.blob, due["sweep_after"]) + self._follow_state(progress)
        times = self._try([*writes, *extra])
        if times is None:
            return False, None
        self._correct_expiry(grant, due, times[0], now)
        if progress is not None:
            self._saved(progress, times[1], now)
        return True, None if next_grant is None else Granted(_born(next_grant, times[len(writes) - 1], now))

    def _correct_expiry(self, grant: Grant, due: Fields, at: int, now: int | None) -> None:
        """Write the end of retention anew when the server's time was far from our estimate (this process was frozen)."""
        retain, after = due["retain"], due["sweep_after"]
        if (
            now is None
            and isinstance(retain, int)
            and isinstance(after, int)
            and abs(at + retain - after) > _ESTIMATE_OFF
        ):
            self._rpc.each([wire.patch(self._names.record(grant.key), expiry(retain, self._rpc.clock, None), at)])

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
            result = effect(batch)
            draft.write(rules.commit(record, grant, result, retain, draft.now))
            if progress is not None:
                draft.advance(rules.advance(draft.run(progress.run_id), progress, draft.now))
            return result

        runs = [] if progress is None else [progress.run_id]
        return self._decide(decide, keys=[grant.key], runs=runs, now=now, batch=batch)[0]

    @property
    def client(self) -> Any:
        """The `google.cloud.firestore.Client` that shares this backend's channel, for user code."""
        if self._client is None:
            self._client = self.target.client(self._rpc.channel)
        return self._client

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        state = "in_doubt" if in_doubt else "abandoned"
        if grant.version is not None and self._try([self._patch(grant, {"state": state, "error": error, "at": now})]):
            return True

        def decide(draft: Draft) -> bool:
            answer, write = rules.abandon(draft.record(grant.key), grant, error=error, in_doubt=in_doubt, now=draft.now)
            draft.write(write)
            return answer

        return self._decide(decide, keys=[grant.key], now=now)[0]

    # Progress

    def load(self, run_id: str) -> StoredProgress | None:
        draft = self._draft([], [run_id], None)
        self._remember(draft)
        found = draft.run(run_id)
        self._reads_first.put(run_id, found is not None)
        return found

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        write = self._save_write(progress, now)
        times = None if write is None else self._try([write, *self._follow_state(progress)])
        if times is not None:
            return self._saved(progress, times[0], now)

        def decide(draft: Draft) -> None:
            draft.advance(rules.advance(draft.run(progress.run_id), progress, draft.now))

        _, draft = self._decide(decide, runs=[progress.run_id], now=now)
        return draft.runs()[progress.run_id].progress

    def _save_write(self, progress: StoredProgress, now: int | None) -> Message | None:
        """The write on condition that the run is as we last saw it; None when it has to be read first."""
        known = self._runs.get(progress.run_id)
        if known is None or known.progress.step > progress.step:
            return None
        fields = run_fields(replace(progress, incarnation=known.progress.incarnation), now=now)
        return wire.replace(self._names.run(progress.run_id), fields, known.version)

    def _follow_state(self, progress: StoredProgress | None) -> list[Message]:
        """What to write so that the chunks of the state are kept, and those of the state before are let go."""
        known = None if progress is None else self._runs.get(progress.run_id)
        if progress is None or known is None:
            return []
        before = known.progress.state
        return self._chunks.follow(blob_of(before), blob_of(progress.state), None)

    def _saved(self, progress: StoredProgress, version: int, now: int | None) -> StoredProgress:
        known = self._runs.get(progress.run_id)
        incarnation = 0 if known is None else known.progress.incarnation
        stored = replace(progress, incarnation=incarnation, updated_at=version if now is None else now)
        remember_run(self._runs, Run(stored, version))
        return stored

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        def decide(draft: Draft) -> None:
            draft.draw(rules.next_incarnation(draft.run(run_id), run_id, draft.now))

        _, draft = self._decide(decide, runs=[run_id], now=now)
        return draft.runs()[run_id].progress.incarnation

    def delete_run(self, run_id: str) -> bool:
        def decide(draft: Draft) -> bool:
            if draft.run(run_id) is None:
                return False
            draft.drop_run(run_id)
            return True

        return self._decide(decide, runs=[run_id])[0]

    # Looking

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        found: list[StoredRecord | None] = []
        for start in range(0, len(keys), _READ_MAX):
            part = keys[start : start + _READ_MAX]
            draft = self._draft(part, [], now)
            records = [draft.record(key) for key in part]
            found += [None if rules.is_absent(record, draft.now) else record for record in records]
        return found

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
        query = listing.records(self._names.records, run_id=run_id, state=state, prefix=prefix).limit(limit)
        if cursor is not None:
            query.after(cursor if prefix else f"{self._names.root}/{self._names.records}/{cursor}", name=not prefix)
        seen = self._rpc.query(self._names.root, query.build(), large=True)
        at = seen.read_time if now is None else now
        records = [record_of(document) for document in seen.documents.values()]
        matching = [
            record
            for record in records
            if not rules.is_absent(record, at) and state in (None, rules.state_at(record, at))
        ]
        if len(records) < limit:
            return Page(matching, None)
        return Page(matching, records[-1].key if prefix else _last_id(seen.documents))

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        query = listing.Query(self._names.runs).order("__name__").limit(limit)
        if cursor is not None:
            query.after(f"{self._names.root}/{self._names.runs}/{cursor}", name=True)
        documents = self._rpc.query(self._names.root, query.build(), large=True).documents
        runs = [run_of(document).progress for document in documents.values()]
        return Page(runs, _last_id(documents) if len(runs) == limit else None)

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
            answer, write = rules.resolve(
                draft.record(seen.key), seen, nonce=nonce, result=result, retain=retain, now=draft.now
            )
            draft.write(write)
            return answer

        return self._decide(decide, keys=[seen.key], now=now)[0]

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        def decide(draft: Draft) -> str | None:
            record = draft.record(seen.key)
            if record is None or not rules.matches(record, seen, draft.now):
                return None
            draft.drop(seen.key)
            return (record.result and record.result.blob) or ""

        blob, _ = self._decide(decide, keys=[seen.key], now=now)
        if blob:
            self._delete_chunks([blob])
        return blob is not None

    def _delete_chunks(self, blobs: Sequence[str]) -> None:
        """Delete payloads that were let go; should this fail, `sweep` finds them."""
        for about in self._chunks.about(blobs).values():
            self._rpc.lands(self._chunks.deletion(about))

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        self._chunks.put(blob, chunks, now)

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return self._chunks.get(blob)

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        at = self.time() if now is None else now
        records, more_records = self._sweep_records(at, limit)
        chunks, more_chunks = self._chunks.sweep(at, limit)
        return Swept(records, chunks, more_records or more_chunks)

    def _sweep_records(self, at: int, limit: int) -> tuple[int, bool]:
        query = listing.Query(self._names.records).where("sweep_after", "<=", at).order("sweep_after").limit(limit)
        query.select("state", "at", "retain", "blob")
        found = [(doc, wire.values(doc)) for doc in self._rpc.query(self._names.root, query.build()).documents.values()]
        due = [(document, fields) for document, fields in found if _is_due(document, fields, at)]
        writes = [wire.delete(document.name, wire.micros(document.update_time)) for document, _ in due]
        swept = [fields for (_, fields), landed in zip(due, self._rpc.each(writes), strict=True) if landed is not None]
        self._delete_chunks([fields["blob"] for fields in swept if "blob" in fields])
        return len(swept), len(found) == limit and bool(swept)

    # The store itself

    def time(self) -> int:
        return self._rpc.get([self._names.run("")]).read_time

    def setup(self) -> None:
        """Collections need no making. Raises when the database cannot be read."""
        self.time()

    def check(self) -> Sequence[Finding]:
        return faults.check(self.target, self._names, self._rpc)

    def classify(self, error: Exception) -> DurastoreError | None:
        return faults.classify(error, self.target)

    def forked(self) -> None:
        self._rpc.forked()
        self._forget()

    def close(self) -> None:
        self._rpc.close()

    # Reading, deciding, writing

    def _draft(self, keys: Sequence[str], runs: Sequence[str], now: int | None) -> Draft:
        names = [*(self._names.record(key) for key in keys), *(self._names.run(run_id) for run_id in runs)]
        return Draft(self._rpc.get(names), keys, runs, self._names, now)

    def _decide(
        self,
        decide: Callable[[Draft], T],
        *,
        keys: Sequence[str] = (),
        runs: Sequence[str] = (),
        now: int | None = None,
        batch: EffectBatch | None = None,
    ) -> tuple[T, Draft]:
        """Read, decide, and write what was decided if nothing changed since; else again, with what there is now."""
        give_up = time.monotonic() + _CONTENTION
        pause = _PAUSE_FIRST
        while True:
            draft = self._draft(keys, runs, now)
            answer = decide(draft)
            writes = draft.writes(self._chunks, self._rpc.clock)
            try:
                if writes:
                    draft.written(self._rpc.commit([*writes, *(batch.writes if batch else ())]))
            except grpc.RpcError as error:
                if not is_stale(error) or time.monotonic() > give_up:
                    raise
                if batch is not None and error.code() is not _ABORTED and self._is_unchanged(draft, keys, runs):
                    raise refused(error) from error
                time.sleep(random.uniform(0, pause))  # noqa: S311  jitter
                pause = min(2 * pause, _PAUSE_MAX)
                continue
            self._remember(draft)
            return answer, draft

    def _is_unchanged(self, draft: Draft, keys: Sequence[str], runs: Sequence[str]) -> bool:
        """Whether our documents are as they were, so that it was a condition of the effect's own that failed."""
        return draft.versions() == self._draft(keys, runs, None).versions()

    def _remember(self, draft: Draft) -> None:
        for run in draft.runs().values():
            remember_run(self._runs, run)

    def _try(self, writes: Sequence[Message]) -> list[int] | None:
        """Commit; None, and nothing written, when a condition does not hold."""
        try:
            return self._rpc.commit(writes)
        except grpc.RpcError as error:
            if not is_stale(error):
                raise
            return None


def _claimed(draft: Draft, request: ClaimRequest) -> Answer:
    answer, write = rules.claim(draft.record(request.key), request, draft.now)
    draft.write(write)
    return answer


def _next(draft: Draft, request: ClaimRequest) -> Granted | None:
    try:
        answer = _claimed(draft, request)
    except FingerprintMismatch:
        return None
    return answer if isinstance(answer, Granted) else None


def _born(grant: Grant, version: int, now: int | None) -> Grant:
    """The grant of a key that was not there: its token is the time of the write."""
    return replace(grant, token=version if now is None else now, version=version)


def _committed_fields(result: Payload, due: Fields, now: int | None) -> Fields:
    done: Fields = {"state": "committed", "result": result.data, "blob": result.blob, "error": None, "at": now}
    return {**done, **due}


def _is_due(document: Message, fields: dict[str, Any], at: int) -> bool:
    until = retain_until(fields, wire.micros(document.update_time))
    return until is not None and until <= at


def _last_id(documents: dict[str, Message]) -> str:
    return next(reversed(documents)).rpartition("/")[2]
