"""The store's time, from the ``Date`` of its own answers.

DynamoDB has no clock in conditions, and the machine's wall clock is not to be trusted: it is wrong, jumps, or was
restored from a snapshot. So each answer's ``Date`` (whole seconds, rounded down) gives two bounds: when the request was
sent, the store's time was at most ``Date`` + 1 s; when the answer had arrived, at least ``Date``. The monotonic clock
carries the bounds on, answers narrow them (to a few milliseconds, as a rule), and an answer that contradicts them
replaces them: then the monotonic clock stood still or jumped, as it does when a machine is frozen.

Leases are *stamped* with the upper bound and *judged* by the lower one, so nobody takes over early; late by at most 1 s
and the time of one round trip.
"""

from __future__ import annotations

import threading
import time
from email.utils import parsedate_to_datetime

__all__ = ["MARGIN", "REMEMBERED", "StoreClock"]

SECOND = 1_000_000
MARGIN = 2 * SECOND
"""Microseconds by which a stamp may be off the bounds of the answer that it came back with; beyond, it is written anew."""
REMEMBERED = 3600 * SECOND
"""Microseconds for which the last token of a key, or incarnation of a run, outlives it when that is removed. First numbers are
stamps, made before their request is sent; a rival's may come and go meanwhile, and be higher. What is left of it refuses that.
"""
_FAR = 365 * 24 * 3600 * SECOND
"""Microseconds: a number further ahead of the store's time was not made by its clock, but by virtual time."""
_DRIFT = 200e-6
"""Seconds per second by which the monotonic clock may go wrong between two answers."""


class StoreClock:
    """Bounds of the store's time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamped = 0
        self._bounds: tuple[float, float, float] | None = None
        """Store's time less monotonic time, lowest and highest, in seconds; and when, by the monotonic clock, that was so."""

    @property
    def known(self) -> bool:
        """Whether there was an answer yet."""
        return self._bounds is not None

    def heard(self, date: str | None, sent: float, received: float) -> None:
        """Take in the ``Date`` of an answer; `sent` and `received` are monotonic seconds around its request."""
        second = _second(date)
        if second is None:
            return
        low, high = second - received, second + 1 - sent
        with self._lock:
            before = self._bounds
            if before is not None:
                old_low, old_high = _widened(before, received)
                if low <= old_high and high >= old_low:
                    low, high = max(low, old_low), min(high, old_high)
            self._bounds = (low, high, received)

    def bounds(self, at: float | None = None) -> tuple[int, int]:
        """The earliest and the latest that the store's time may be, in microseconds, now or `at` that monotonic time."""
        bounds = self._bounds
        assert bounds is not None, "no answer yet"
        when = time.monotonic() if at is None else at
        low, high = _widened(bounds, when)
        return int((low + when) * SECOND), int((high + when) * SECOND)

    def stamp(self) -> int:
        """The time to write: the latest that it may be, and not before the last one, by which the bounds may have narrowed."""
        high = self.bounds()[1]
        with self._lock:
            if not high < self._stamped < high + SECOND:
                self._stamped = high
            return self._stamped

    def remembers(self, number: int) -> bool:
        """Whether what is removed now must leave this number behind."""
        low = self.bounds()[0]
        return low - REMEMBERED <= number <= low + _FAR

    def may_be_forgotten(self, stamp: int) -> bool:
        """Whether a stamp is so old that a higher number may have come, gone, and been forgotten since. By half, to be sure."""
        return self.bounds()[1] > stamp + REMEMBERED // 2

    def is_off(self, stamp: int, sent: float, *, landed: bool = False) -> bool:
        """Whether a stamp made for a request `sent` then turns out, by what was heard since, to be off by more than `MARGIN`.

        `landed`: also if the request was so long on its way (in a frozen process, or on the wire) that the stamp was old by
        the time of its answer.
        """
        low, high = self.bounds(sent)
        if landed:
            low = self.bounds()[0]
        return not low - MARGIN <= stamp <= high + MARGIN


def _widened(bounds: tuple[float, float, float], at: float) -> tuple[float, float]:
    low, high, since = bounds
    drift = abs(at - since) * _DRIFT
    return low - drift, high + drift


def _second(date: str | None) -> float | None:
    if date is None:
        return None
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:  # a proxy's invention
        return None
