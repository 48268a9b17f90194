"""A history that makes no sense, cut down to what a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from durastore.conformance.history import Event
from durastore.conformance.linear import explain, furthest
from durastore.conformance.racing import CLOCK_SLACK
from durastore.conformance.sequential import KeyState, RunState, key_step, run_step
from durastore.contract import Committed, Held

__all__ = ["unexplained_briefly"]

_MICROSECOND = 1_000


def unexplained_briefly(history: Sequence[Event], clock_margin: int) -> str | None:
    """None for a history of one object that is linearizable, else the shortest part that is not, without idle calls.

    `clock_margin`: microseconds by which the store may be wrong about a lease's end.
    """
    margin = clock_margin * _MICROSECOND + CLOCK_SLACK
    is_key = history[0].name.startswith("key ")
    known = all(event.certain for event in history)
    initial: Any = KeyState() if is_key else RunState()
    step: Any = key_step(margin, tokens=known) if is_key else partial(run_step, gaps=True)
    if furthest(history, initial, step) == len(history):
        return None
    if is_key and _sent_again(history, initial, key_step(margin, tokens=False)):
        return None
    left = list(history)
    for event in history:
        rest = [other for other in left if other is not event]
        if _wrote_nothing(event) and furthest(rest, initial, step) < len(rest):
            left = rest
    return f"{history[0].name}: no order explains\n{explain(left, initial, step)}"


def _sent_again(history: Sequence[Event], initial: Any, step: Any) -> bool:
    """Whether it makes sense if some calls came twice, as where answers get lost below the backend: its driver sends a request
    again, perhaps after others saw and removed what it did. Such calls are looked for one by one, the best one each time.
    """
    again: list[Event] = []
    reached = furthest(history, initial, step)
    while reached < len(history):
        others = [event for event in history if event.verb != "read" and event not in again]
        tried = [(furthest(history, initial, step, [*again, event]), number) for number, event in enumerate(others)]
        best, number = max(tried, default=(0, 0))
        if best <= reached:
            return False
        again.append(others[number])
        reached = best
    return True


def _wrote_nothing(event: Event) -> bool:
    """Whether it can be left out without changing what the others saw."""
    idle = event.verb in ("read", "load") or event.answer is False or isinstance(event.answer, (Held, Committed))
    return event.certain and idle
