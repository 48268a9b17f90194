"""CLOCK: clients whose wall clock is an hour fast or slow, or jumps. By the store's own clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from durastore.conformance.client import payload, request
from durastore.conformance.harness import Harness
from durastore.conformance.marks import clause
from durastore.conformance.patient import patient
from durastore.conformance.skewed import Skewed
from durastore.contract import Grant, Granted, Held

__all__ = ["ClockClauses"]

HOUR = 3600.0
SHORT, LONG = 200_000, 60_000_000
"""Leases, microseconds: one to outlive, and one that lives on."""
LATE_SECONDS_MAX = 30.0
"""What a loaded machine may add; an hour is not to be mistaken for it."""
_PAUSE = 0.02


def _pairs(harness: Harness) -> Iterator[tuple[Skewed, Skewed, str]]:
    """(One whose clock is wrong, one whose clock is right, a key); where they share a clock, it is wrong for both."""
    for seconds in (HOUR, -HOUR):
        wrong, right = (Skewed(patient(harness.open()), by) for by in (seconds, 0.0))
        if getattr(wrong, "shares_clock", False):
            right.seconds = seconds
        yield wrong, right, f"{seconds:+.0f}"


def _claimed(client: Any, key: str, lease: int) -> Grant:
    answer = client.claim(request(key, lease=lease))
    assert isinstance(answer, Granted), f"{key}: a free key is granted"
    return answer.grant


def _held(client: Any, key: str, margin: int) -> None:
    answer = client.claim(request(key))
    assert isinstance(answer, Held), f"{key}: taken over although its holder's lease had not lapsed"
    assert not answer.in_doubt, key
    assert LONG - LATE_SECONDS_MAX * 1e6 - margin <= (answer.lease_left or 0) <= LONG + margin, f"{key}: lease left"


def _taken_over(client: Any, key: str, began: float, margin: int) -> Grant:
    """As soon as the lease has lapsed, not before it; counted from before it was asked for."""
    while True:
        answer = client.claim(request(key))
        took = time.monotonic() - began
        if isinstance(answer, Granted):
            assert answer.took_over is not None, key
            assert took >= (SHORT - margin) / 1e6, f"{key}: taken over {took:.3f} s after it was asked for"
            return answer.grant
        assert took < LATE_SECONDS_MAX + margin / 1e6, f"{key}: a lapsed claim is not to be had"
        time.sleep(_PAUSE)


class ClockClauses:
    """The tests of the CLOCK clause."""

    @clause("CLOCK-1")
    def test_clock_1_live_claims(self, harness: Harness) -> None:
        """Nobody takes a live claim over: neither whose clock is wrong, nor from one whose clock is wrong."""
        for wrong, right, sign in _pairs(harness):
            for holder, rival, who in ((wrong, right, "holder"), (right, wrong, "rival")):
                key = f"{who} {sign}"
                grant = _claimed(holder, key, LONG)
                _held(rival, key, harness.clock_margin)
                holder.commit(grant, result=payload("result"))

    @clause("CLOCK-1")
    def test_clock_1_lapsed_claims(self, harness: Harness) -> None:
        """A lapsed claim is to be had when it has lapsed, by whoever asks."""
        for wrong, right, sign in _pairs(harness):
            for holder, rival, who in ((wrong, right, "holder"), (right, wrong, "rival")):
                key, began = f"{who} {sign}", time.monotonic()
                _claimed(holder, key, SHORT)
                grant = _taken_over(rival, key, began, harness.clock_margin)
                rival.commit(grant, result=payload("result"))

    @clause("CLOCK-1")
    def test_clock_1_jumps(self, harness: Harness) -> None:
        """A clock that jumps in mid-lease changes nothing: the claim lives, is renewed, and commits."""
        for wrong, right, sign in _pairs(harness):
            if getattr(wrong, "shares_clock", False):
                continue  # its owner's jump is everybody's: see the store's documentation
            jump, wrong.seconds = wrong.seconds, 0.0
            grant = _claimed(wrong, f"jump {sign}", LONG)
            wrong.seconds = jump
            (renewed,) = wrong.renew([grant])
            assert renewed is not None, f"jump {sign}: the claim is its holder's"
            _held(right, grant.key, harness.clock_margin)
            wrong.seconds = -jump
            wrong.commit(renewed, result=payload("result"))
