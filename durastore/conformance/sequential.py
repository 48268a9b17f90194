"""The sequential model of one key and of one run, for the linearizability check: :mod:`durastore.rules`, but for the time.

When exactly a claim lapsed is not known from outside: its lease began somewhere between a call and its answer. So a claim has a
window; before it the claim is live, after it lapsed, and within it either may be seen. That makes the check lenient by the
length of a call, and never wrong: a history that it refuses has no explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from durastore import rules
from durastore.conformance.history import UNKNOWN, Event, digest
from durastore.contract import Granted, Payload, StoredProgress, StoredRecord
from durastore.errors import ClaimLost

__all__ = ["KeyState", "RunState", "key_step", "run_step"]

_MICROSECOND = 1_000
_LIVE, _LAPSED = 0, 10
"""Two moments, before and at the end of every lease."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key's record, and when it lapses: at the earliest, at the latest (nanoseconds)."""

    record: StoredRecord | None = None
    earliest: int = 0
    latest: int = 0
    last_token: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """A run's progress."""

    stored: StoredProgress | None = None


def key_step(margin: int, *, tokens: bool = True) -> Any:
    """The step function for keys. `margin`: nanoseconds by which the store may be wrong about a lease's end. `tokens` False
    leaves them out: after a call with an unknown outcome nobody knows the last one.
    """

    def step(state: KeyState, event: Event) -> Iterable[KeyState]:
        for now in _moments(state, event):
            answer, written = _apply(state, event, now)
            if _same(answer, event, tokens=tokens):
                yield _after(state, event, written, margin)

    return step


def _moments(state: KeyState, event: Event) -> Iterator[int]:
    """Whether the claim may be live, and whether it may have lapsed, at some moment of the call."""
    if state.record is None or state.record.state != "claimed":
        yield _LIVE
        return
    if event.invoked <= state.latest:
        yield _LIVE
    if not event.certain or event.answered >= state.earliest:
        yield _LAPSED


_GONE = object()
"""What a call writes that removes the record."""


def _apply(state: KeyState, event: Event, now: int) -> tuple[Any, Any]:
    """The model's answer and what it writes: a record, `_GONE`, or None for nothing."""
    record, given = state.record, event.given
    if event.verb in ("claim", "then"):
        answer, written = rules.claim(record, given, now)
        if record is None and isinstance(answer, Granted) and written is not None:
            return _first_token(answer, written, state, event)
        return answer, written
    if event.verb == "renew":
        grant, written = rules.renew(record, given, now)
        return grant is not None, written
    if event.verb == "commit":
        try:
            return True, rules.commit(record, given[0], Payload(given[1]), None, now)
        except ClaimLost:
            return False, None
    if event.verb == "abandon":
        grant, error, in_doubt = given
        return rules.abandon(record, grant, error=error, in_doubt=in_doubt, now=now)
    if event.verb == "read":
        return record, None
    return _settle(record, event)


def _settle(record: StoredRecord | None, event: Event) -> tuple[Any, Any]:
    """RESOLVE and FORGET: by nonce and state; what was seen may have lapsed since, or not."""
    seen, nonce = event.given
    matches = record is not None and (record.nonce, record.state) == (seen.nonce, seen.state)
    if record is not None and record.nonce == seen.nonce and {record.state, seen.state} <= {"claimed", "in_doubt"}:
        matches = event.answer is not False
    if event.verb == "delete":
        return matches, _GONE if matches else None
    if record is not None and record.nonce == nonce:
        return True, None
    if record is None or not matches:
        return False, None
    return True, replace(record, state="abandoned", nonce=nonce, result=None, expires_at=None)


def _first_token(answer: Granted, written: StoredRecord, state: KeyState, event: Event) -> tuple[Any, Any]:
    """The first token is the store's time, which is for the store to say; it must be above all earlier ones."""
    token = event.answer.grant.token if isinstance(event.answer, Granted) else state.last_token + 1
    if token <= state.last_token:
        return None, None
    return Granted(replace(answer.grant, token=token)), replace(written, token=token)


def _same(answer: Any, event: Event, *, tokens: bool) -> bool:
    if event.answer == UNKNOWN:
        return True
    if event.verb == "then" and not isinstance(answer, Granted):
        return event.answer is None
    given, model = digest(event.answer), digest(answer)
    return bool(given == model if tokens else _tokenless(given) == _tokenless(model))


def _tokenless(digested: Any) -> Any:
    if not isinstance(digested, tuple):
        return digested
    if digested[0] == "granted":
        took = digested[4] and (digested[4][0], digested[4][2])
        return (*digested[:2], digested[3], took)
    return digested[:2] if digested[0] == "committed" else (*digested[:4], *digested[5:])


def _after(state: KeyState, event: Event, written: Any, margin: int) -> KeyState:
    if written is None:
        return state
    if written is _GONE:
        return KeyState(last_token=state.last_token)
    plain = replace(written, created_at=0, updated_at=0, version=None)
    if plain.state != "claimed":
        return KeyState(plain, last_token=plain.token)
    lease = (plain.lease or 0) * _MICROSECOND
    answered = event.answered if event.certain else 1 << 62
    return KeyState(
        record=replace(plain, expires_at=_LAPSED),
        earliest=event.invoked + lease - margin,
        latest=answered + lease + margin,
        last_token=plain.token,
    )


def run_step(state: RunState, event: Event, *, gaps: bool = False) -> Iterable[RunState]:
    """The step function for runs. `gaps`: numbers of incarnations may be left out, where answers get lost below the backend: its
    driver asks again, and draws the next one.
    """
    stored, given = state.stored, event.given
    if event.verb == "load":
        if digest(event.answer) == digest(stored):
            yield state
    elif event.verb == "incarnate":
        yield from _incarnated(state, event, gaps=gaps)
    else:
        written = rules.advance(stored, given, 0)
        after = stored if written is None else written
        if event.answer in (UNKNOWN, None) or digest(event.answer) == digest(after):
            yield RunState(after)


def _incarnated(state: RunState, event: Event, *, gaps: bool) -> Iterator[RunState]:
    number = rules.next_incarnation(state.stored, event.given, 0)
    if state.stored is None or not state.stored.incarnation:
        known = event.answer if isinstance(event.answer, int) else 0
        yield RunState(replace(number, incarnation=known, updated_at=0))
    elif event.answer in (UNKNOWN, number.incarnation):
        yield RunState(number)
    elif gaps and event.answer > number.incarnation:
        yield RunState(replace(number, incarnation=event.answer))
