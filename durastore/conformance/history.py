"""What several processes did to one store: each call with its answer and when it was under way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from durastore.contract import ClaimRequest, Committed, Granted, Held, StoredProgress, StoredRecord

__all__ = ["UNKNOWN", "Event", "by_object", "digest"]

UNKNOWN = "unknown"
"""The answer of a call that failed on the way."""


@dataclass(frozen=True, slots=True)
class Event:
    """One call on one object (a key or a run). Times are nanoseconds of a clock that all processes share."""

    process: int
    name: str
    """The object: ``key a`` or ``run r``. A call on several objects is one event for each."""
    verb: str
    given: Any
    """What the call was given, as far as it matters: a request, a nonce and lease, …"""
    answer: Any
    invoked: int
    answered: int
    certain: bool = True
    """False for a call that may have been applied, or not, or be so later."""

    def __str__(self) -> str:
        span = f"{self.invoked / 1e6:.3f} to {self.answered / 1e6:.3f} ms"
        return f"process {self.process}, {span}: {self.verb}({_brief(self.given)}) -> {self.answer}"


def _brief(given: Any) -> str:
    if isinstance(given, ClaimRequest):
        return (
            f"nonce={given.nonce[:6]}, lease={given.lease}, takeover={given.takeover}, incarnation={given.incarnation}"
        )
    return str(given)


def by_object(events: Iterable[Event]) -> Mapping[str, list[Event]]:
    """The history of each key and run, in the order of invocation."""
    found: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.invoked):
        found.setdefault(event.name, []).append(event)
    return found


def digest(answer: Any) -> Any:
    """An answer without what depends on the exact time or is opaque: tuples that compare."""
    if isinstance(answer, Granted):
        took = answer.took_over and (answer.took_over.owner, answer.took_over.token, answer.took_over.attempt)
        return ("granted", answer.grant.nonce, answer.grant.token, answer.grant.attempt, took)
    if isinstance(answer, Committed):
        return ("committed", answer.result.data, answer.token)
    if isinstance(answer, Held):
        return ("held", answer.owner, answer.attempt, answer.in_doubt)
    if isinstance(answer, StoredRecord):
        result = answer.result and answer.result.data
        return ("record", answer.state, answer.nonce, answer.owner, answer.token, answer.attempt, result)
    if isinstance(answer, StoredProgress):
        return ("progress", answer.step, answer.state and answer.state.data)
    return answer
