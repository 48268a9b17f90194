"""Mutants of the layer of lost answers: each is right as long as nothing is asked twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from durastore.contract import (
    Answer,
    ClaimRequest,
    Grant,
    Granted,
    Held,
    Payload,
    StoredProgress,
    StoredRecord,
    Swept,
)
from durastore.errors import ClaimLost
from durastore.memory import _Space
from tests.conformance.mutants import Mutant, breaks


class Once(Mutant):
    """remembers what was asked"""

    def __init__(self, space: _Space) -> None:
        super().__init__(space)
        self.asked: set[Any] = set()

    def again(self, *what: Any) -> bool:
        """Whether it was asked before."""
        known = what in self.asked
        self.asked.add(what)
        return known


@breaks("LOST-1")
class RivalOfItself(Once):
    """a claim that is asked for again is held by somebody else"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        if self.again("claim", request.nonce) and isinstance(answer, Granted):
            return Held(request.owner, request.run_id, request.lease, answer.grant.attempt, None, in_doubt=False)
        return answer


@breaks("LOST-2")
class TakesOverTwice(Once):
    """a takeover that is asked for again does not say what it took over"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        return Granted(answer.grant) if self.again(request.nonce) and isinstance(answer, Granted) else answer


@breaks("LOST-3")
class OwnRenewalFails(Once):
    """a renewal fails by its own earlier success"""

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        renewed = super().renew(grants, now=now)
        return [None if self.again(grant.nonce) else new for grant, new in zip(grants, renewed, strict=True)]


@breaks("LOST-4")
class CommitLostToItself(Once):
    """a commit that is repeated has lost its claim"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        if self.again(grant.nonce):
            raise ClaimLost("committed already")
        return super().commit(grant, **rest)


@breaks("LOST-5")
class NextClaimedTwice(Once):
    """a fused commit that is repeated claims the next key again, as a second attempt"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        then: ClaimRequest | None = rest.get("then")
        if then is not None and self.again(grant.nonce) and then.key in self.records:
            from dataclasses import replace

            self.records[then.key] = replace(self.records[then.key], attempt=2)
        return super().commit(grant, **rest)


@breaks("LOST-6")
class NoLongerOurs(Once):
    """a claim that is given back again is no longer its giver's"""

    def abandon(self, grant: Grant, **rest: Any) -> bool:
        return super().abandon(grant, **rest) and not self.again(grant.nonce)


@breaks("LOST-7")
class NumberDrawnTwice(Once):
    """an incarnation number is drawn, and drawn again by the next who asks, when its first answer may have been lost"""

    drawn = 0

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        self.drawn += 1
        if self.drawn % 2:
            return super().incarnate(run_id, now=now)
        loaded = self.load(run_id)
        assert loaded is not None
        return loaded.incarnation


@breaks("LOST-7")
class SavedTwice(Once):
    """progress that is saved again moves on by a step"""

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        from dataclasses import replace

        again = self.again("save", progress.run_id, progress.step)
        return super().save(replace(progress, step=progress.step + 1) if again else progress, now=now)


@breaks("LOST-8")
class EffectAgain(Once):
    """a transaction that is asked for again calls its effect again"""

    def transact(self, grant: Grant, effect: Callable[[Any], Payload], **rest: Any) -> Payload:
        if self.again(grant.nonce):
            return effect(self.user_data)
        return super().transact(grant, effect, **rest)


@breaks("LOST-9")
class ResolvedByAnother(Once):
    """a resolution that is repeated says that somebody else was faster"""

    def resolve(self, seen: StoredRecord, *, nonce: str, **rest: Any) -> bool:
        return super().resolve(seen, nonce=nonce, **rest) and not self.again(nonce)


@breaks("LOST-10")
class SweepsMoreAndMore(Once):
    """a sweep that is repeated takes what is to be kept, too"""

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        if self.again("sweep"):
            for key in [key for key, record in self.records.items() if record.state == "committed"]:
                del self.records[key]
        return super().sweep(limit=limit, now=now)


@breaks("LOST-11")
class EachStepTwice(Once):
    """a commit whose answer was lost is a success, but its mark is gone, so that the step is claimed and run again"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        granted = super().commit(grant, **rest)
        if self.again(grant.nonce):
            del self.records[grant.key]
        return granted
