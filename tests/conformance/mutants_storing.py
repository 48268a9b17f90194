"""Mutants of progress, listings, payloads, sweeps and set-up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from durastore import rules
from durastore.contract import Granted, Limits, Page, Payload, StoredProgress, StoredRecord, Swept
from durastore.errors import DurastoreError, StoreUnavailable
from tests.conformance.mutants import Mutant, breaks


@breaks("PROGRESS-1")
class SaveMovesBack(Mutant):
    """a late save moves the progress back"""

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        self._space.runs.pop(progress.run_id, None)
        return super().save(progress, now=now)


@breaks("PROGRESS-2")
class EqualStepIgnored(Mutant):
    """an equal step does not replace the state"""

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        stored = self._space.runs.get(progress.run_id)
        return stored if stored and stored.step == progress.step else super().save(progress, now=now)


@breaks("PROGRESS-3")
class StepAndStateApart(Mutant):
    """step and state are written one after the other"""

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        stored = self._space.runs.get(progress.run_id)
        if rules.advance(stored, progress, 0) is None:
            return stored or progress
        time.sleep(0.002)
        latest = self._space.runs.get(progress.run_id, progress)
        self._space.runs[progress.run_id] = replace(progress, step=max(progress.step, latest.step))
        time.sleep(0.002 * (4 - progress.step % 4))
        latest = self._space.runs[progress.run_id]
        self._space.runs[progress.run_id] = replace(latest, state=progress.state)
        return self._space.runs[progress.run_id]


@breaks("PROGRESS-4")
class StaleLoad(Mutant):
    """a client remembers what it loaded"""

    def load(self, run_id: str) -> StoredProgress | None:
        memory: dict[str, StoredProgress | None] = self.__dict__.setdefault("memory", {})
        return memory.setdefault(run_id, super().load(run_id))


@breaks("PROGRESS-5")
class RunNeverForgotten(Mutant):
    """a removed run keeps its step"""

    def delete_run(self, run_id: str) -> bool:
        return run_id in self._space.runs


@breaks("INCARNATION-1")
class IncarnationsFromOne(Mutant):
    """incarnation numbers start at 1 again when the run was removed"""

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        return super().incarnate(run_id, now=1)


@breaks("INCARNATION-1")
class IncarnationsTwice(Mutant):
    """a number is read, and written a moment later"""

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        write = rules.next_incarnation(self._space.runs.get(run_id), run_id, self.time() if now is None else now)
        time.sleep(0.002)
        self._space.runs[run_id] = write
        return write.incarnation


@breaks("INCARNATION-2")
class IncarnationResets(Mutant):
    """a new incarnation starts at step 0"""

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        number = super().incarnate(run_id, now=now)
        self._space.runs[run_id] = replace(self._space.runs[run_id], step=0, state=None)
        return number


@breaks("READ-1")
class OnceEach(Mutant):
    """a key that is asked twice is answered once"""

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        return super().read(list(dict.fromkeys(keys)), now=now)


@breaks("READ-1")
class HundredKeys(Mutant):
    """only the first 100 keys are read"""

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        return [*super().read(keys[:100], now=now), *[None for _ in keys[100:]]]


@breaks("SCAN-1")
class CursorOffByOne(Mutant):
    """each page begins with the last record of the one before"""

    def scan(self, *, cursor: str | None = None, **rest: Any) -> Page[StoredRecord]:
        page = super().scan(cursor=cursor and cursor[:-1], **rest)
        return page if page.cursor != cursor else super().scan(cursor=cursor, **rest)


@breaks("SCAN-1")
class PrefixWithWildcards(Mutant):
    """a prefix is an SQL pattern"""

    def scan(self, *, prefix: str = "", limit: int = 100, **rest: Any) -> Page[StoredRecord]:
        import re

        pattern = re.compile(re.escape(prefix).replace("%", ".*").replace("_", "."), re.DOTALL)
        page = super().scan(limit=10_000, **rest)
        found = [record for record in page.items if pattern.match(record.key)]
        return Page(found, None) if prefix else super().scan(limit=limit, **rest)


@breaks("SCAN-2")
class ExpiredAsClaimed(Mutant):
    """an expired claim is listed as claimed"""

    def scan(self, *, state: Any = None, limit: int = 100, **rest: Any) -> Page[StoredRecord]:
        if state is None:
            return super().scan(limit=limit, **rest)
        return Page([record for record in super().scan(limit=10_000, **rest).items if record.state == state], None)


@breaks("SCAN-3")
class NoLimit(Mutant):
    """a page holds everything"""

    def scan(self, *, limit: int = 100, **rest: Any) -> Page[StoredRecord]:
        return super().scan(limit=10_000, **rest)


@breaks("SCAN-3")
class LookingWrites(Mutant):
    """listing marks expired claims as in doubt"""

    def scan(self, *, now: int | None = None, **rest: Any) -> Page[StoredRecord]:
        for key, record in list(self.records.items()):
            self.records[key] = replace(record, state=rules.state_at(record, now or self.time()))
        return super().scan(now=now, **rest)


@breaks("SCAN-4")
class OnlyRunsWithState(Mutant):
    """runs that were only incarnated are not listed"""

    def scan_runs(self, **rest: Any) -> Page[StoredProgress]:
        page = super().scan_runs(**rest)
        return Page([run for run in page.items if run.state is not None], page.cursor)


@breaks("CHUNK-1")
class ChunksOnlyOnce(Mutant):
    """chunks that are written again are appended"""

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        super().put_chunks(blob, [*self.get_chunks(blob), *chunks], now=now)


@breaks("CHUNK-2")
class ChunksByName(Mutant):
    """chunk 10 comes before chunk 2"""

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        numbered = sorted(enumerate(super().get_chunks(blob)), key=lambda pair: str(pair[0]))
        return [chunk for _, chunk in numbered]


@breaks("SWEEP-1")
class SweepsClaims(Mutant):
    """a sweep removes lapsed claims"""

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        at = self.time() if now is None else now
        for key, record in list(self.records.items()):
            if rules.state_at(record, at) == "in_doubt" and record.state == "claimed":
                del self.records[key]
        return super().sweep(limit=limit, now=now)


@breaks("SWEEP-2")
class SweepsChunksAtOnce(Mutant):
    """a sweep takes the chunks of a commit under way"""

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        at = self.time() if now is None else now
        swept = super().sweep(limit=limit, now=at)
        for blob in self._orphans(at + rules.ORPHAN_AGE):
            del self._space.chunks[blob]
        return swept


@breaks("SWEEP-2")
class SweepsNoChunks(Mutant):
    """orphaned chunks stay for ever"""

    def _orphans(self, now: int) -> list[str]:
        return []


@breaks("SWEEP-2")
class SweepsChunksOfRuns(Mutant):
    """a sweep forgets that runs point to chunks, too"""

    def _orphans(self, now: int) -> list[str]:
        runs, self._space.runs = self._space.runs, {}
        try:
            return super()._orphans(now)
        finally:
            self._space.runs = runs


@breaks("RETAIN-1")
class RetentionByDeletion(Mutant):
    """records past retention are there until they are swept"""

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        return [self.records.get(key) for key in keys]


@breaks("LIMIT-2")
class InlineCut(Mutant):
    """a result of the inline limit is cut"""

    def commit(self, grant: Any, *, result: Payload, **rest: Any) -> Granted | None:
        return super().commit(grant, result=replace(result, data=result.data[: self.limits.inline - 1]), **rest)


@breaks("LIMIT-3")
class OneRequest(Mutant):
    """chunks beyond the first 16 MiB are dropped"""

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        return super().get_chunks(blob)[: 16 * 1024 * 1024 // self.limits.chunk]


@breaks("VALUE-1")
class EmptyIsNone(Mutant):
    """an empty state comes back as none"""

    def load(self, run_id: str) -> StoredProgress | None:
        stored = super().load(run_id)
        return replace(stored, state=None) if stored and stored.state and not stored.state.data else stored


@breaks("VALUE-1")
class TextColumn(Mutant):
    """results are stored as text"""

    def commit(self, grant: Any, *, result: Payload, **rest: Any) -> Granted | None:
        text = result.data.decode("utf-8", "replace").encode()
        return super().commit(grant, result=replace(result, data=text), **rest)


@breaks("VALUE-2")
class NoneForFalsy(Mutant):
    """falsy values come back as None"""

    def commit(self, grant: Any, *, result: Payload, **rest: Any) -> Granted | None:
        falsy = result.data.partition(b"\n")[2] in (b"{}", b"[]", b"0", b"false", b'""')
        return super().commit(grant, result=Payload(b"json\nnull") if falsy else result, **rest)


@breaks("VALUE-2")
class JsonColumn(Mutant):
    """a jsonb column sorts keys and rounds numbers"""

    def commit(self, grant: Any, *, result: Payload, **rest: Any) -> Granted | None:
        import json

        head, _, body = result.data.partition(b"\n")
        if head == b"json":
            value = json.loads(body.decode("utf-8", "surrogatepass"), parse_int=float)
            result = Payload(head + b"\n" + json.dumps(value, sort_keys=True).encode())
        return super().commit(grant, result=result, **rest)


@breaks("VALUE-3")
class LastChunkLost(Mutant):
    """the last of many chunks is lost"""

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        super().put_chunks(blob, chunks[:-1] if len(chunks) > 1 else chunks, now=now)


@breaks("SPACE-1")
class OneNamespace(Mutant):
    """all namespaces are one"""

    shares_namespaces = True


@breaks("SETUP-1")
class SetupWipes(Mutant):
    """setting up again empties the store"""

    def setup(self) -> None:
        self.records.clear()


@breaks("ERROR-1")
class EverythingTransient(Mutant):
    """every exception counts as the store's, and is tried again"""

    def classify(self, error: Exception) -> DurastoreError | None:
        return StoreUnavailable(str(error))


@breaks("LIMIT-2")
class DishonestLimits(Mutant):
    """chunks of the size that it promises are refused"""

    limits = Limits(inline=64 * 1024, chunk=512 * 1024)

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        if any(len(chunk) > 400_000 for chunk in chunks):
            raise RuntimeError("item size exceeded")
        super().put_chunks(blob, chunks, now=now)
