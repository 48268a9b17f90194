"""Mutants of claim."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from durastore import rules
from durastore.contract import Answer, ClaimRequest, Committed, Granted, Held, Payload
from durastore.errors import FingerprintMismatch
from tests.conformance.mutants import Mutant, breaks


@breaks("CLAIM-1")
class AttemptsGoOn(Mutant):
    """attempts are not counted anew after retention"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        answer = super().claim(request, now=now)
        if isinstance(answer, Granted) and old is not None and old.state == "committed" and old.nonce != request.nonce:
            self.records[request.key] = replace(self.records[request.key], attempt=old.attempt + 1)
            return replace(answer, grant=replace(answer.grant, attempt=old.attempt + 1))
        return answer


@breaks("CLAIM-2")
class ResultLost(Mutant):
    """a committed key answers without its result"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        return replace(answer, result=Payload(b"")) if isinstance(answer, Committed) else answer


@breaks("CLAIM-2")
class CommittedRunsAgain(Mutant):
    """a committed key is granted to other runs"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        if old is not None and old.state == "committed" and old.run_id != request.run_id:
            del self.records[request.key]
        return super().claim(request, now=now)


@breaks("CLAIM-3")
class EarlyExpiry(Mutant):
    """claims lapse at three quarters of their lease"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        if old is not None and old.expires_at is not None and old.nonce != request.nonce:
            self.records[request.key] = replace(old, expires_at=old.expires_at - old.lease // 4)
        answer = super().claim(request, now=now)
        if old is not None and not isinstance(answer, Granted):
            self.records[request.key] = old
        return answer


@breaks("CLAIM-3")
class WriteOnHeld(Mutant):
    """a refused claim prolongs the winner's lease"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        if isinstance(answer, Held) and not answer.in_doubt:
            record = self.records[request.key]
            self.records[request.key] = replace(record, updated_at=(now or 0) + 1, expires_at=record.expires_at + 1)
        return answer


@breaks("CLAIM-4")
class LateExpiry(Mutant):
    """claims lapse one microsecond after their lease's end"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        if old is not None and old.state == "claimed" and old.expires_at == now and old.nonce != request.nonce:
            now = None if now is None else now - 1
        return super().claim(request, now=now)


@breaks("CLAIM-4")
class TakeoverUnasked(Mutant):
    """expired claims are taken over although the caller said not to"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        return super().claim(replace(request, takeover=True), now=now)


@breaks("CLAIM-4")
class TookOverUntold(Mutant):
    """a takeover does not say that it is one"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        return replace(answer, took_over=None) if isinstance(answer, Granted) else answer


@breaks("CLAIM-5")
class NonceIgnored(Mutant):
    """a repeated claim is locked out of its own key"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        if request.key in self.records:
            request = replace(request, nonce=f"{request.nonce} again")
        return super().claim(request, now=now)


@breaks("CLAIM-5")
class TookOverLostOnRetry(Mutant):
    """a retried takeover forgets what it took over"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        again = old is not None and old.nonce == request.nonce
        answer = super().claim(request, now=now)
        return replace(answer, took_over=None) if again and isinstance(answer, Granted) else answer


@breaks("CLAIM-5")
class NonceGrantedTwice(Mutant):
    """a nonce whose claim was given back is granted again"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        if old is not None and old.nonce == request.nonce and old.state in ("abandoned", "in_doubt"):
            self.records[request.key] = replace(old, nonce="forgotten")
        return super().claim(request, now=now)


@breaks("CLAIM-5")
class RetryProlongs(Mutant):
    """a repeated claim begins its lease anew"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        record = self.records[request.key]
        if isinstance(answer, Granted):
            self.records[request.key] = replace(record, expires_at=(now or self.time()) + request.lease)
        return answer


@breaks("CLAIM-6")
class FingerprintIgnored(Mutant):
    """fingerprints are not compared"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        try:
            return super().claim(request, now=now)
        except FingerprintMismatch:
            return super().claim(replace(request, fingerprint=None), now=now)


@breaks("CLAIM-6")
class FingerprintForEver(Mutant):
    """a key that was given back keeps its first fingerprint"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        if old is not None and old.state == "abandoned" and rules.mismatch(old.fingerprint, request.fingerprint):
            raise rules.mismatch_error(old)
        return super().claim(request, now=now)


@breaks("CLAIM-6")
class FingerprintDropped(Mutant):
    """a takeover without a fingerprint drops the stored one"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        if isinstance(answer, Granted) and request.fingerprint is None:
            self.records[request.key] = replace(self.records[request.key], fingerprint=None)
        return answer


@breaks("CLAIM-7")
class TakeoverUnchecked(Mutant):
    """a takeover reads, pauses, and writes without looking again"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        at = self.time() if now is None else now
        answer, write = rules.claim(self.records.get(request.key), request, at)
        if isinstance(answer, Granted) and answer.took_over is not None:
            time.sleep(0.003)
        self._write(write)
        return answer


@breaks("CLAIM-8")
class ZeroMeansForEver(Mutant):
    """a lease of 0 is no lease"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        answer = super().claim(request, now=now)
        if isinstance(answer, Granted) and not request.lease:
            self.records[request.key] = replace(self.records[request.key], expires_at=None)
        return answer


@breaks("CLAIM-9")
class TokenResetAfterAbandon(Mutant):
    """the token starts anew once a claim was given back"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        if old is not None and old.state == "abandoned" and old.nonce != request.nonce:
            self.records[request.key] = replace(old, token=0)
        return super().claim(request, now=now)


@breaks("CLAIM-9")
class TokensFromOne(Mutant):
    """tokens of an absent key start at 1, so that they fall when a record was forgotten"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        known = request.key in self.records
        answer = super().claim(request, now=now)
        if isinstance(answer, Granted) and not known:
            self.records[request.key] = replace(self.records[request.key], token=1)
            return replace(answer, grant=replace(answer.grant, token=1))
        return answer


@breaks("CLAIM-10")
class EqualSupersedes(Mutant):
    """an equal incarnation takes over, so that two sandboxes steal from each other in turns"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        if old is not None and old.incarnation == request.incarnation > 0:
            self.records[request.key] = replace(old, incarnation=old.incarnation - 1)
        return super().claim(request, now=now)


@breaks("CLAIM-10")
class OthersSupersede(Mutant):
    """a higher incarnation takes over other runs' claims, too"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        if old is not None and old.incarnation < request.incarnation and old.state == "claimed":
            self.records[request.key] = replace(old, run_id=request.run_id)
        return super().claim(request, now=now)


@breaks("TIME-1")
class ClientClock(Mutant):
    """claims lapse by the client's clock"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        return super().claim(request)


@breaks("TIME-1")
class Milliseconds(Mutant):
    """the store's clock counts milliseconds"""

    def time(self) -> int:
        return super().time() // 1000


class Renaming(Mutant):
    """A backend that merges keys; not a mutant by itself."""

    @staticmethod
    def fold(key: str) -> str:
        return key

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        return super().claim(replace(request, key=self.fold(request.key)), now=now)

    def commit(self, grant: Any, **rest: Any) -> Granted | None:
        return super().commit(replace(grant, key=self.fold(grant.key)), **rest)

    def read(self, keys: Any, *, now: int | None = None) -> Any:
        return super().read([self.fold(key) for key in keys], now=now)


@breaks("KEY-1")
class CaseFolded(Renaming):
    """a collation merges keys that differ in case"""

    fold = staticmethod(str.casefold)


@breaks("KEY-1")
class Padded(Renaming):
    """trailing blanks of keys do not count"""

    fold = staticmethod(str.rstrip)


@breaks("KEY-1")
class Normalised(Renaming):
    """keys are normalised (NFC)"""

    @staticmethod
    def fold(key: str) -> str:
        from unicodedata import normalize

        return normalize("NFC", key)


@breaks("LIMIT-1")
class ShortKeys(Renaming):
    """keys are cut to 255 characters"""

    @staticmethod
    def fold(key: str) -> str:
        return key[:255]


@breaks("RETRY-1")
class FusedRetryForgotten(Mutant):
    """a retried commit does not answer the next claim that it was granted"""

    def commit(self, grant: Any, **rest: Any) -> Granted | None:
        record = self.records.get(grant.key)
        again = record is not None and record.state == "committed"
        answer = super().commit(grant, **rest)
        return None if again else answer


@breaks("RACE-1")
class EarlyTakeoverForReal(Mutant):
    """by the real clock, long leases lapse after 5 ms"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        if now is None and request.lease > 100_000:
            answer = super().claim(replace(request, lease=5_000))
            return (
                replace(answer, grant=replace(answer.grant, lease=request.lease))
                if isinstance(answer, Granted)
                else answer
            )
        return super().claim(request, now=now)


@breaks("RACE-2")
class DoubleGrant(Mutant):
    """a claim reads, pauses, and writes without a lock"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        at = self.time() if now is None else now
        answer, write = rules.claim(self.records.get(request.key), request, at)
        time.sleep(0.002)
        self._write(write)
        return answer


@breaks("MODEL-1")
class ErrorForgottenBySettling(Mutant):
    """settling for a retry forgets the error of the attempt, where no clause's own test looks"""

    def resolve(self, seen: Any, **rest: Any) -> bool:
        done = super().resolve(seen, **rest)
        if done and self.records[seen.key].state == "abandoned":
            self.records[seen.key] = replace(self.records[seen.key], error=None)
        return done


@breaks("MODEL-1")
class IncarnationNeverFalls(Mutant):
    """a key that a later incarnation gave back stays that incarnation's"""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        old = self.records.get(request.key)
        answer = super().claim(request, now=now)
        if isinstance(answer, Granted) and old is not None and old.incarnation > request.incarnation:
            self.records[request.key] = replace(self.records[request.key], incarnation=old.incarnation)
        return answer
