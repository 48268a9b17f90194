"""The contract as pure functions: what a store answers and writes, given the record that it holds and the time.

Each takes the stored record (or None) and answers with what to return and what to write. A backend that can read and
write under one lock, or write on condition that nothing changed since it read, needs nothing else. Clause ids as in
:mod:`durastore.contract`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from durastore.contract import (
    Answer,
    ClaimRequest,
    Committed,
    Grant,
    Granted,
    Held,
    Payload,
    RecordState,
    StoredProgress,
    StoredRecord,
    TookOver,
)
from durastore.errors import ClaimLost, FingerprintMismatch

__all__ = [
    "ORPHAN_AGE",
    "abandon",
    "advance",
    "claim",
    "commit",
    "committed",
    "grant_of",
    "held",
    "if_granted",
    "is_absent",
    "is_listed",
    "lost",
    "matches",
    "mismatch",
    "mismatch_error",
    "next_incarnation",
    "place",
    "renew",
    "resolve",
    "state_at",
    "took_over",
]

ORPHAN_AGE = 24 * 3600 * 1_000_000
"""Microseconds that chunks nobody points to are left alone, so that `sweep` can't take them from a commit under way."""

Write: TypeAlias = StoredRecord | None
"""The record to write, None to write nothing."""


def is_absent(record: StoredRecord | None, now: int) -> bool:
    """Whether there is no record, or one past its retention (which is absent at once, deleted or not)."""
    return record is None or (
        record.state == "committed" and record.retain_until is not None and record.retain_until <= now
    )


def state_at(record: StoredRecord, now: int) -> RecordState:
    """The state by now: a claim whose lease has lapsed is in doubt."""
    if record.state == "claimed" and record.expires_at is not None and record.expires_at <= now:
        return "in_doubt"
    return record.state


def is_listed(record: StoredRecord, state: RecordState | None, now: int) -> bool:
    """SCAN-2: whether a listing of this state (None for any) shows the record by now."""
    return not is_absent(record, now) and state in (None, state_at(record, now))


def if_granted(ask: Callable[[], Answer]) -> Granted | None:
    """COMMIT-5: what becomes of `then`. None when its key is not free, or its fingerprint differs."""
    try:
        answer = ask()
    except FingerprintMismatch:
        return None
    return answer if isinstance(answer, Granted) else None


def grant_of(record: StoredRecord) -> Grant:
    """The grant that a claimed record stands for."""
    return Grant(
        key=record.key,
        run_id=record.run_id,
        owner=record.owner,
        nonce=record.nonce,
        token=record.token,
        attempt=record.attempt,
        lease=record.lease or 0,
        version=record.version,
    )


def claim(record: StoredRecord | None, request: ClaimRequest, now: int) -> tuple[Answer, Write]:
    """CLAIM-1 to CLAIM-10. Raises `FingerprintMismatch`."""
    if record is not None and record.nonce == request.nonce:
        return _same_nonce(record, now), None
    if record is None or is_absent(record, now) or record.state == "abandoned":
        return _granted(record, request, now, took_over=None)
    if mismatch(record.fingerprint, request.fingerprint):
        raise mismatch_error(record)
    if record.state == "committed":
        return committed(record), None
    if not _is_free(record, request, now):
        return held(record, now), None
    if not request.takeover:
        return replace(held(record, now), in_doubt=True), None
    return _granted(record, request, now, took_over=TookOver(record.owner, record.token, record.attempt, record.error))


def _same_nonce(record: StoredRecord, now: int) -> Answer:
    """CLAIM-5: the answer to a copy of the request that was granted, which may come long after."""
    if record.state == "claimed":
        return Granted(grant_of(record), took_over(record))
    return committed(record) if record.state == "committed" else held(record, now)


def _is_free(record: StoredRecord, request: ClaimRequest, now: int) -> bool:
    """Whether a claim may be taken over: in doubt, or of an earlier incarnation of the same run."""
    superseded = record.run_id == request.run_id and record.incarnation < request.incarnation
    return superseded or state_at(record, now) == "in_doubt"


def _granted(
    record: StoredRecord | None, request: ClaimRequest, now: int, *, took_over: TookOver | None
) -> tuple[Answer, Write]:
    absent = record is None or is_absent(record, now)
    fingerprint = request.fingerprint
    if took_over is not None and fingerprint is None and record is not None:
        fingerprint = record.fingerprint
    new = StoredRecord(
        key=request.key,
        run_id=request.run_id,
        state="claimed",
        token=now if record is None else record.token + 1,
        attempt=1 if absent or record is None else record.attempt + 1,
        nonce=request.nonce,
        owner=request.owner,
        lease=request.lease,
        expires_at=now + request.lease,
        incarnation=request.incarnation,
        fingerprint=fingerprint,
        error=None if absent or record is None else record.error,
        result=None,
        retain_until=None,
        taken_from=None if took_over is None else took_over.owner,
        created_at=now if absent or record is None else record.created_at,
        updated_at=now,
        version=None if record is None else record.version,
    )
    return Granted(grant_of(new), took_over), new


def committed(record: StoredRecord) -> Committed:
    """The answer to whoever asks for a committed key. A record without a result (damaged) answers an empty payload."""
    return Committed(record.result or Payload(b""), record.token)


def took_over(record: StoredRecord) -> TookOver | None:
    """What the grant that this record stands for replaced. Kept in the record, so that a retried request hears it too."""
    if record.taken_from is None:
        return None
    return TookOver(record.taken_from, record.token - 1, record.attempt - 1, record.error)


def held(record: StoredRecord, now: int) -> Held:
    """The answer to whoever may not have a key now."""
    left = None if record.expires_at is None else max(0, record.expires_at - now)
    return Held(
        owner=record.owner,
        run_id=record.run_id,
        lease_left=left if record.state == "claimed" else 0,
        attempt=record.attempt,
        error=record.error,
        in_doubt=state_at(record, now) == "in_doubt",
    )


def mismatch(stored: str | None, given: str | None) -> bool:
    """CLAIM-6: None is neither stored nor compared."""
    return stored is not None and given is not None and stored != given


def mismatch_error(record: StoredRecord) -> FingerprintMismatch:
    """The error for a key that is known with another fingerprint."""
    return FingerprintMismatch(
        f"key {record.key!r} was {record.state.replace('_', ' ')} by run {record.run_id!r} for other inputs: use another "
        f"key, or forget this one if the inputs changed on purpose"
    )


def renew(record: StoredRecord | None, grant: Grant, now: int) -> tuple[Grant | None, Write]:
    """RENEW-1 to RENEW-3."""
    if record is None or record.nonce != grant.nonce:
        return None, None
    if record.state == "committed":
        return grant, None
    if record.state != "claimed":
        return None, None
    return grant, replace(record, lease=grant.lease, expires_at=now + grant.lease, updated_at=now)


def commit(record: StoredRecord | None, grant: Grant, result: Payload, retain: int | None, now: int) -> Write:
    """COMMIT-1 to COMMIT-3, COMMIT-6: the record to write, None when the same nonce has committed. Raises `ClaimLost`."""
    if record is not None and record.nonce == grant.nonce:
        if record.state == "committed":
            return None
        if record.state == "claimed":
            return _as_committed(record, grant.nonce, result, retain, now)
    raise lost(grant, record)


def _as_committed(record: StoredRecord, nonce: str, result: Payload, retain: int | None, now: int) -> StoredRecord:
    return replace(
        record,
        state="committed",
        nonce=nonce,
        result=result,
        error=None,
        expires_at=None,
        retain_until=None if retain is None else now + retain,
        updated_at=now,
    )


def lost(grant: Grant, record: StoredRecord | None) -> ClaimLost:
    """The error for a grant that no longer stands."""
    if record is None:
        what = "its record was forgotten"
    elif record.nonce == grant.nonce:
        what = f"it was given back ({record.state.replace('_', ' ')})"
    else:
        what = f"it is now {record.state.replace('_', ' ')} under {record.owner!r} of run {record.run_id!r}"
    return ClaimLost(
        f"the claim of key {grant.key!r} (token {grant.token}, {grant.owner!r}) is lost: {what}. Nothing of this attempt "
        f"was stored"
    )


def abandon(
    record: StoredRecord | None, grant: Grant, *, error: str | None, in_doubt: bool, now: int
) -> tuple[bool, Write]:
    """ABANDON-1 to ABANDON-4."""
    if record is None or record.nonce != grant.nonce or record.state == "committed":
        return False, None
    if record.state != "claimed":
        return True, None
    state: RecordState = "in_doubt" if in_doubt else "abandoned"
    return True, replace(record, state=state, error=error, expires_at=None, updated_at=now)


def resolve(
    record: StoredRecord | None,
    seen: StoredRecord,
    *,
    nonce: str,
    result: Payload | None,
    retain: int | None,
    now: int,
) -> tuple[bool, Write]:
    """RESOLVE-1 to RESOLVE-3."""
    if record is not None and record.nonce == nonce:
        return True, None
    if record is None or not matches(record, seen, now):
        return False, None
    if result is not None:
        return True, _as_committed(record, nonce, result, retain, now)
    return True, replace(
        record, state="abandoned", nonce=nonce, result=None, expires_at=None, retain_until=None, updated_at=now
    )


def matches(record: StoredRecord | None, seen: StoredRecord, now: int) -> bool:
    """Whether nonce and state (by now) are still those that somebody saw: RESOLVE-1 and FORGET-1."""
    return (
        record is not None
        and not is_absent(record, now)
        and record.nonce == seen.nonce
        and state_at(record, now) == state_at(seen, now)
    )


def place(record: StoredRecord | None, given: StoredRecord, now: int) -> tuple[StoredRecord, Write]:
    """PLACE-1 and PLACE-2: the record that stands afterwards, and the one to write."""
    if record is None or (is_absent(record, now) and record.token < given.token):
        placed = replace(given, version=None if record is None else record.version)
        return placed, placed
    return record, None


def advance(stored: StoredProgress | None, new: StoredProgress, now: int) -> StoredProgress | None:
    """PROGRESS-1 to PROGRESS-3: the progress to write, None when the stored one is further. The incarnation stays."""
    if stored is not None and stored.step > new.step:
        return None
    return replace(new, incarnation=0 if stored is None else stored.incarnation, updated_at=now)


def next_incarnation(stored: StoredProgress | None, run_id: str, now: int) -> StoredProgress:
    """INCARNATION-1 and INCARNATION-2: the progress to write; its incarnation is the number drawn."""
    if stored is None:
        return StoredProgress(run_id, 0, None, now, now)
    return replace(stored, incarnation=stored.incarnation + 1 if stored.incarnation else now)
