"""Mutants of renew, commit, transact, abandon, resolve and delete."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from durastore import rules
from durastore.contract import Grant, Granted, Payload, StoredProgress, StoredRecord
from durastore.errors import ClaimLost
from tests.conformance.mutants import Mutant, breaks


def _as_holder(mutant: Mutant, grant: Grant) -> Grant:
    """The grant of whoever holds the key now."""
    record = mutant.records.get(grant.key)
    return grant if record is None else replace(grant, nonce=record.nonce)


@breaks("RENEW-1")
class LapsedNotRenewed(Mutant):
    """a lapsed claim that nobody replaced is not renewed"""

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        at = self.time() if now is None else now
        lapsed = {
            grant.nonce
            for grant in grants
            if (record := self.records.get(grant.key)) and (record.expires_at or at) < at
        }
        return [
            None if grant.nonce in lapsed else super(LapsedNotRenewed, self).renew([grant], now=now)[0]
            for grant in grants
        ]


@breaks("RENEW-2")
class AnybodyRenews(Mutant):
    """a zombie renews the new holder's claim"""

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        return super().renew([_as_holder(self, grant) for grant in grants], now=now)


@breaks("RENEW-2")
class RenewRevives(Mutant):
    """a renewal that comes after the give-back brings the claim back to life"""

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        for grant in grants:
            record = self.records.get(grant.key)
            if record is not None and record.nonce == grant.nonce and record.state == "abandoned":
                self.records[grant.key] = replace(record, state="claimed")
        return super().renew(grants, now=now)


@breaks("RENEW-2")
class LostOnesLeftOut(Mutant):
    """a renewal of several leaves the lost ones out of its answer"""

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        return [grant for grant in super().renew(grants, now=now) if grant is not None]


@breaks("RENEW-3")
class CommittedIsLost(Mutant):
    """a renewal after one's own commit says that the claim is lost"""

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        done = [(record := self.records.get(grant.key)) and record.state == "committed" for grant in grants]
        return [None if gone else grant for gone, grant in zip(done, super().renew(grants, now=now), strict=True)]


@breaks("COMMIT-1")
class LapsedNotCommitted(Mutant):
    """a lapsed claim that nobody replaced is not committed"""

    def commit(self, grant: Grant, *, now: int | None = None, **rest: Any) -> Granted | None:
        record = self.records.get(grant.key)
        if record is not None and record.expires_at is not None and record.expires_at <= (now or self.time()):
            raise ClaimLost("lapsed")
        return super().commit(grant, now=now, **rest)


@breaks("COMMIT-2")
class LostFence(Mutant):
    """a zombie commits over the new holder"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        return super().commit(_as_holder(self, grant), **rest)


@breaks("COMMIT-2")
class ThenAlthoughLost(Mutant):
    """the next key is claimed although the commit was refused"""

    def commit(self, grant: Grant, *, now: int | None = None, **rest: Any) -> Granted | None:
        try:
            return super().commit(grant, now=now, **rest)
        except ClaimLost:
            if rest.get("then") is not None:
                self.claim(rest["then"], now=now)
            raise


@breaks("COMMIT-2")
class ProgressAlthoughLost(Mutant):
    """a refused commit moves the progress on"""

    def commit(self, grant: Grant, *, now: int | None = None, **rest: Any) -> Granted | None:
        try:
            return super().commit(grant, now=now, **rest)
        except ClaimLost:
            if rest.get("progress") is not None:
                self.save(rest["progress"], now=now)
            raise


@breaks("COMMIT-3")
class DoubleCommit(Mutant):
    """a second commit of the same nonce replaces the result"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        record = self.records.get(grant.key)
        if record is not None and record.nonce == grant.nonce and record.state == "committed":
            self.records[grant.key] = replace(record, state="claimed")
        return super().commit(grant, **rest)


@breaks("COMMIT-3")
class OwnCommitIsLost(Mutant):
    """a commit whose answer was lost fails on its own success"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        record = self.records.get(grant.key)
        if record is not None and record.state == "committed":
            raise ClaimLost("not claimed")
        return super().commit(grant, **rest)


@breaks("COMMIT-4")
class CommitWithoutProgress(Mutant):
    """the progress is not saved with the result"""

    def commit(self, grant: Grant, *, progress: StoredProgress | None = None, **rest: Any) -> Granted | None:
        return super().commit(grant, **rest)


@breaks("COMMIT-4")
class CommitMovesBack(Mutant):
    """a commit with a lower step moves the progress back"""

    def commit(self, grant: Grant, *, progress: StoredProgress | None = None, **rest: Any) -> Granted | None:
        if progress is not None:
            self._space.runs.pop(progress.run_id, None)
        return super().commit(grant, progress=progress, **rest)


@breaks("COMMIT-5")
class AllOrNothing(Mutant):
    """a commit is refused when the next key is not free"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        held = rest.get("then") is not None and rest["then"].key in self.records
        if held:
            raise ClaimLost("the next key is held")
        return super().commit(grant, **rest)


@breaks("COMMIT-5")
class ThenIgnored(Mutant):
    """the next key is never claimed"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        return super().commit(grant, **(rest | {"then": None}))


@breaks("COMMIT-6")
class RetainedForEver(Mutant):
    """retention is not stored"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        return super().commit(grant, **(rest | {"retain": None}))


@breaks("TRANSACT-1")
class TransactWithoutProgress(Mutant):
    """a transaction leaves the progress out"""

    def transact(self, grant: Grant, effect: Callable[[Any], Payload], **rest: Any) -> Payload:
        return super().transact(grant, effect, **(rest | {"progress": None}))


@breaks("TRANSACT-2")
class NotRolledBack(Mutant):
    """what an effect wrote before it raised remains"""

    def transact(self, grant: Grant, effect: Callable[[Any], Payload], **rest: Any) -> Payload:
        return super().transact(grant, lambda _: effect(self.user_data), **rest)


@breaks("TRANSACT-2")
class ErrorsReplaced(Mutant):
    """an effect's exception is replaced by another"""

    def transact(self, grant: Grant, effect: Callable[[Any], Payload], **rest: Any) -> Payload:
        try:
            return super().transact(grant, effect, **rest)
        except ClaimLost:
            raise
        except Exception as exc:
            raise RuntimeError("transaction failed") from exc


@breaks("TRANSACT-3")
class WritesOfZombies(Mutant):
    """what the effect of a lost claim wrote remains"""

    def transact(self, grant: Grant, effect: Callable[[Any], Payload], **rest: Any) -> Payload:
        try:
            return super().transact(grant, effect, **rest)
        except ClaimLost:
            effect(self.user_data)
            raise


@breaks("TRANSACT-4")
class EffectAgain(Mutant):
    """a repeated transaction calls its effect again"""

    def transact(self, grant: Grant, effect: Callable[[Any], Payload], **rest: Any) -> Payload:
        record = self.records.get(grant.key)
        if record is not None and record.nonce == grant.nonce and record.state == "committed":
            effect({})
        return super().transact(grant, effect, **rest)


@breaks("ABANDON-1")
class AbandonDeletes(Mutant):
    """a claim that is given back is deleted, and with it its token"""

    def abandon(self, grant: Grant, **rest: Any) -> bool:
        done = super().abandon(grant, **rest)
        if done:
            self.records.pop(grant.key, None)
        return done


@breaks("ABANDON-1")
class DoubtForgotten(Mutant):
    """a claim left in doubt counts as given back"""

    def abandon(self, grant: Grant, **rest: Any) -> bool:
        return super().abandon(grant, **(rest | {"in_doubt": False}))


@breaks("ABANDON-2")
class UnconditionalAbandon(Mutant):
    """a late failure of an expired owner gives the live owner's claim back"""

    def abandon(self, grant: Grant, **rest: Any) -> bool:
        return super().abandon(_as_holder(self, grant), **rest)


@breaks("ABANDON-2")
class AbandonsCommitted(Mutant):
    """giving back a key after one's commit takes the result away"""

    def abandon(self, grant: Grant, **rest: Any) -> bool:
        record = self.records.get(grant.key)
        if record is not None and record.nonce == grant.nonce and record.state == "committed":
            self.records[grant.key] = replace(record, state="claimed")
        return super().abandon(grant, **rest)


@breaks("ABANDON-3")
class OwnAbandonIsLost(Mutant):
    """a give-back whose answer was lost says that the claim is no longer ours"""

    def abandon(self, grant: Grant, **rest: Any) -> bool:
        record = self.records.get(grant.key)
        return super().abandon(grant, **rest) and record is not None and record.state == "claimed"


@breaks("ABANDON-4")
class ErrorsForgotten(Mutant):
    """errors are not kept"""

    def abandon(self, grant: Grant, **rest: Any) -> bool:
        return super().abandon(grant, **(rest | {"error": None}))


@breaks("RACE-1")
class AbandonAnswersLater(Mutant):
    """a give-back is written, and its answer read a moment later, when somebody else may hold the key"""

    def abandon(self, grant: Grant, **rest: Any) -> bool:
        super().abandon(grant, **rest)
        time.sleep(0.004)
        record = self.records.get(grant.key)
        return record is not None and record.nonce == grant.nonce and record.state in ("abandoned", "in_doubt")


@breaks("RESOLVE-1")
class ResolveIgnoresNonce(Mutant):
    """a record is settled although somebody else holds it by now"""

    def resolve(self, seen: StoredRecord, **rest: Any) -> bool:
        record = self.records.get(seen.key)
        return super().resolve(seen if record is None else record, **rest)


@breaks("RESOLVE-2")
class FormerHolderStays(Mutant):
    """a settled record keeps its nonce, so that the former holder can still write"""

    def resolve(self, seen: StoredRecord, **rest: Any) -> bool:
        done = super().resolve(seen, **rest)
        if done:
            self.records[seen.key] = replace(self.records[seen.key], nonce=seen.nonce)
        return done


@breaks("RESOLVE-3")
class OwnResolveIsLost(Mutant):
    """settling whose answer was lost says that it did nothing"""

    def resolve(self, seen: StoredRecord, *, nonce: str, **rest: Any) -> bool:
        record = self.records.get(seen.key)
        if record is not None and record.nonce == nonce:
            return False
        return super().resolve(seen, nonce=nonce, **rest)


@breaks("FORGET-1")
class UnconditionalDelete(Mutant):
    """a record is removed although it changed since it was seen"""

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        record = self.records.get(seen.key)
        return super().delete(seen if record is None else record, now=now)


@breaks("FORGET-1")
class ChunksLeft(Mutant):
    """a removed record leaves its chunks behind"""

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        at = self.time() if now is None else now
        return rules.matches(self.records.get(seen.key), seen, at) and self.records.pop(seen.key, None) is not None
