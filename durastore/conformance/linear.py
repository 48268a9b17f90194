"""Is a history linearizable? That is: can each call be put at one moment while it was under way, so that one after another they
make sense?

The search of Wing and Gong (Testing and Verifying Concurrent Objects, 1993) with the memory of Lowe (Testing for
Linearizability, 2017): a set of calls done and the state after them need not be tried twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from durastore.conformance.history import UNKNOWN, Event

__all__ = ["explain", "furthest"]

State = TypeVar("State", bound=Hashable)
Step = Callable[[State, Event], Iterable[State]]
"""The states that a call may leave behind, none if its answer is impossible. Several, where time is not known exactly."""


def furthest(events: Sequence[Event], initial: State, step: Step[State], again: Sequence[Event] = ()) -> int:
    """How many calls can be put in a sensible order at most; ``len(events)`` when the history is linearizable.

    A call that is not certain may come at any time after it was made, or never. One of `again` may have come twice: its driver
    sent it again, and what is answered is the second.
    """
    firsts = {id(event): replace(event, answer=UNKNOWN, certain=False) for event in again}
    ordered = sorted([*events, *firsts.values()], key=lambda event: event.invoked)
    numbers = {id(event): number for number, event in enumerate(ordered)}
    seconds = {numbers[id(first)]: numbers[second] for second, first in firsts.items()}
    everything = (1 << len(ordered)) - 1
    optional = sum(1 << number for number, event in enumerate(ordered) if not event.certain)
    counted = everything & ~sum(1 << number for number in seconds)
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(everything, initial)]
    best = 0
    while stack:
        left, state = stack.pop()
        if left & ~optional == 0:
            return len(events)
        best = max(best, len(events) - (left & counted).bit_count())
        for number in _possible(ordered, left):
            if not left >> seconds.get(number, number) & 1:
                continue  # a first one after its second
            rest = left & ~(1 << number)
            for after in step(state, ordered[number]):
                if (rest, after) not in seen:
                    seen.add((rest, after))
                    stack.append((rest, after))
    return best


def _possible(ordered: Sequence[Event], left: int) -> Iterable[int]:
    """The calls that may come next: those that were made before any other that is left was answered."""
    numbers = [number for number in range(len(ordered)) if left >> number & 1]
    first_answer = min((ordered[number].answered for number in numbers if ordered[number].certain), default=None)
    for number in reversed(numbers):
        if first_answer is None or ordered[number].invoked <= first_answer:
            yield number


def explain(events: Sequence[Event], initial: State, step: Step[State]) -> str | None:
    """None for a linearizable history, else the shortest part of it that is not: what was answered by then, or under way."""
    finished = sorted(events, key=lambda event: event.answered)
    for length in range(1, len(finished) + 1):
        cut = finished[length - 1].answered
        pending = [replace(event, certain=False) for event in finished[length:] if event.invoked <= cut]
        part = [*finished[:length], *pending]
        if furthest(part, initial, step) < len(part):
            return "\n".join(str(event) for event in sorted(part, key=lambda event: event.invoked))
    return None
