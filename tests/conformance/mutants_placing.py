"""Mutants of placing: what a move between stores would lose, change or overwrite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from durastore import rules
from durastore.contract import StoredProgress, StoredRecord
from tests.conformance.mutants import Mutant, breaks


@breaks("PLACE-1")
class PlacedNow(Mutant):
    """a placed record gets a token of its own"""

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        token = self.time() if now is None else now
        return super().place([replace(record, token=token) for record in records], now=now)


@breaks("PLACE-1")
class PlacedRetentionAnew(Mutant):
    """the retention of a placed record begins when it is placed"""

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        at = self.time() if now is None else now
        return super().place([_retained_from(record, at) for record in records], now=now)


def _retained_from(record: StoredRecord, at: int) -> StoredRecord:
    until = record.retain_until
    return record if until is None else replace(record, retain_until=at + until - record.updated_at)


@breaks("PLACE-1")
class PlacedAttempts(Mutant):
    """a placed record begins at attempt 1"""

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        return super().place([replace(record, attempt=1) for record in records], now=now)


@breaks("PLACE-2")
class PlacedOver(Mutant):
    """a record is placed over what is there, if its token is higher"""

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        for record in records:
            there = self.records.get(record.key)
            if there is not None and there.token < record.token:
                del self.records[record.key]
        return super().place(records, now=now)


@breaks("PLACE-2")
class TokensFall(Mutant):
    """a record past retention makes way for any token"""

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        at = self.time() if now is None else now
        for record in records:
            if rules.is_absent(self.records.get(record.key), at):
                self.records.pop(record.key, None)
        return super().place(records, now=now)


@breaks("PLACE-2")
class PlacedUnheard(Mutant):
    """whoever places a record hears that it was placed, be it so or not"""

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        super().place(records, now=now)
        return records


@breaks("PLACE-3")
class PlacedRunSaved(Mutant):
    """a run is placed by saving its progress"""

    def place_run(self, run: StoredProgress) -> StoredProgress:
        return self.save(run, now=run.updated_at)


@breaks("PLACE-3")
class PlacedRunIncarnation(Mutant):
    """a placed run has no incarnation"""

    def place_run(self, run: StoredProgress) -> StoredProgress:
        return super().place_run(replace(run, incarnation=0))
