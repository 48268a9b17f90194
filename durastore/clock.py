"""The clocks that the client side reads. The store's own clock decides about leases; this one paces the client."""

from __future__ import annotations

import time

__all__ = ["MICROSECONDS", "Clock", "microseconds"]

MICROSECONDS = 1_000_000
"""Microseconds in a second: seconds outside, microseconds inside."""


class Clock:
    """Real time. Tests put a virtual one in its place."""

    def now(self) -> int | None:
        """Microseconds to hand to the store as `now`; None (here always) for the store's own clock."""
        return None

    monotonic = staticmethod(time.monotonic)
    """Seconds, for durations inside this process."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * MICROSECONDS)
