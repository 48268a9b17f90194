"""Mutants of the layers of crashes, zombies and clocks: right as long as nobody dies, stands still, or has a wrong clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from durastore.contract import Answer, ClaimRequest, Grant, Granted, Payload, StoredProgress
from durastore.errors import ClaimLost
from tests.conformance.mutants import Mutant, breaks


@breaks("CRASH-1")
class MapBeforeCargo(Mutant):
    """a commit saves the progress in a write of its own, which a crash parts from the result"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        if isinstance(answer, Granted):
            loaded = self.load(request.run_id)
            self.save(StoredProgress(request.run_id, 1 + (loaded.step if loaded else 0), Payload(b"json\n{}")), now=now)
        return answer


@breaks("CRASH-1")
class DeadForEver(Mutant):
    """a fused claim has no lease: when its holder dies before it begins, nobody ever gets it"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        granted = super().commit(grant, **rest)
        if granted is not None:
            self.records[granted.grant.key] = replace(self.records[granted.grant.key], expires_at=None)
        return granted


@breaks("CRASH-2")
class HaltGoesOn(Mutant):
    """a lapsed claim is granted to whoever may not take it over"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        return super().claim(replace(request, takeover=True), now=now)


@breaks("CRASH-3")
class NotTold(Mutant):
    """a takeover is not told, so that no probe is asked"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        return Granted(answer.grant) if isinstance(answer, Granted) else answer


@breaks("CRASH-4")
class RowsAtOnce(Mutant):
    """what an effect writes stands before the mark does"""

    def transact(self, grant: Grant, effect: Callable[[Any], Payload], **rest: Any) -> Payload:
        def at_once(tx: Any) -> Payload:
            return effect(self.user_data)

        return super().transact(grant, at_once, **rest)


@breaks("ZOMBIE-1")
class ZombieCommits(Mutant):
    """whoever was granted the key once commits it"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        record = self.records.get(grant.key)
        if record is not None and record.state == "committed" and record.nonce != grant.nonce:
            self.records[grant.key] = replace(record, nonce=grant.nonce, result=rest["result"])
            return None
        return super().commit(grant, **rest)


@breaks("ZOMBIE-1")
class ZombieIsTold(Mutant):
    """a zombie's commit changes nothing, but counts as a success, so that it carries on"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        try:
            return super().commit(grant, **rest)
        except ClaimLost:
            return None


@breaks("ZOMBIE-2")
class ZombieRenews(Mutant):
    """a zombie that asks whether its claim is still its own is told so, and its commit is believed"""

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        super().renew(grants, now=now)
        return list(grants)

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        record = self.records.get(grant.key)
        if record is not None and record.state == "committed":
            self.records[grant.key] = replace(record, nonce=grant.nonce, result=rest["result"])
        return super().commit(grant, **rest)


class Client(Mutant):
    """says that its clock is its own"""

    shares_clock = False


@breaks("CLOCK-1")
class ClientsClock(Client):
    """leases are judged by the client's clock"""


@breaks("CLOCK-1")
class StampedByClient(Client):
    """a claim is stamped by the client's clock, and judged by the store's"""

    ahead = time.time() - time.monotonic()

    def time(self) -> int:
        return int((time.monotonic() + self.ahead) * 1_000_000)

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        if isinstance(answer, Granted) and now is None:
            stamped = int(time.time() * 1_000_000) + request.lease
            self.records[request.key] = replace(self.records[request.key], expires_at=stamped)
        return answer


@breaks("OUTAGE-1")
class LapsedIsLost(Mutant):
    """a holder that could not renew in time has lost its claim, although nobody replaced it"""

    def commit(self, grant: Grant, **rest: Any) -> Granted | None:
        record = self.records.get(grant.key)
        if record is not None and record.expires_at is not None and record.expires_at <= self.time():
            raise ClaimLost("lapsed")
        return super().commit(grant, **rest)
