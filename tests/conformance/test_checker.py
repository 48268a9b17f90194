"""The linearizability checker: known good histories pass, known bad ones are refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from durastore import rules
from durastore.conformance.history import UNKNOWN, Event
from durastore.conformance.linear import explain, furthest
from durastore.conformance.racing import double_grants, unexplained
from durastore.conformance.sequential import KeyState, RunState, key_step, run_step
from durastore.conformance.shrinking import unexplained_briefly
from durastore.contract import ClaimRequest, Committed, Granted, Payload, StoredProgress, StoredRecord

MILLISECOND = 1_000_000
LEASE = 10_000
"""Microseconds, that is 10 ms."""
MARGIN = MILLISECOND


class Story:
    """Writes histories: a store of its own gives true answers, which a test may then falsify or move in time."""

    def __init__(self) -> None:
        self.record: StoredRecord | None = None
        self.events: list[Event] = []

    def note(self, verb: str, given: object, answer: object, start: float, end: float) -> Event:
        event = Event(0, "key k", verb, given, answer, int(start * MILLISECOND), int(end * MILLISECOND))
        self.events.append(event)
        return event

    def claim(self, nonce: str, start: float, end: float, *, at: float | None = None, lease: int = LEASE) -> Event:
        request = ClaimRequest("k", "r", nonce, nonce, lease)
        answer, write = rules.claim(self.record, request, int((start if at is None else at) * 1000))
        self.record = write or self.record
        return self.note("claim", request, answer, start, end)

    def commit(self, grant: Event, start: float, end: float) -> Event:
        data = grant.answer.grant.nonce.encode()
        try:
            write = rules.commit(self.record, grant.answer.grant, Payload(data), None, int(start * 1000))
            self.record = write or self.record
        except rules.ClaimLost:
            return self.note("commit", (grant.answer.grant, data), False, start, end)
        return self.note("commit", (grant.answer.grant, data), True, start, end)

    def read(self, start: float, end: float) -> Event:
        return self.note("read", None, self.record, start, end)


def fits(events: list[Event], *, tokens: bool = True) -> bool:
    return furthest(events, KeyState(), key_step(MARGIN, tokens=tokens)) == len(events)


def test_sequential_life() -> None:
    """A life one call after another, with a takeover, is accepted."""
    story = Story()
    first = story.claim("a", 100, 101)
    story.claim("b", 102, 103)
    second = story.claim("b2", 120, 121)
    story.commit(first, 122, 123)
    story.commit(second, 124, 125)
    story.read(126, 127)
    story.claim("c", 128, 129)
    assert [type(event.answer) for event in story.events[-1:]] == [Committed]
    assert fits(story.events)
    assert explain(story.events, KeyState(), key_step(MARGIN)) is None


def test_overlapping_calls_may_be_reordered() -> None:
    """Calls that overlap may have happened in either order; calls that do not, may not."""
    story = Story()
    grant = story.claim("a", 100, 101)
    story.read(110, 111)
    story.commit(grant, 102, 109)
    moved = replace(story.events[1], invoked=103 * MILLISECOND, answered=108 * MILLISECOND)
    assert fits([story.events[0], moved, story.events[2]])
    assert not fits(story.events), "a read after the commit's answer must see it"


def test_two_live_grants() -> None:
    """Two grants within one lease are refused, and named."""
    story = Story()
    story.claim("a", 100, 101)
    one = story.events[0]
    story.record = None
    story.claim("b", 102, 103)
    assert not fits(story.events)
    assert unexplained(story.events, 0)
    assert len(double_grants(story.events, 0)) == 0, "they are not closer than the clocks' slack"
    long = Story()
    long.claim("a", 100, 101, lease=LEASE * 100)
    long.record = None
    long.claim("b", 130, 131)
    assert len(double_grants(long.events, 0)) == 1
    assert one.answer != long.events[0].answer


def test_early_takeover() -> None:
    """A takeover that was answered before the lease can have lapsed is refused; one within the window is accepted."""
    for start, accepted in ((104, False), (108, False), (109, True), (115, True)):
        story = Story()
        story.claim("a", 100, 101)
        story.claim("b", start, start + 0.5, at=120)
        assert fits(story.events) is accepted, start


def test_late_takeover() -> None:
    """A claim that is reported as live long after its lease is refused."""
    for start, accepted in ((109, True), (112, True), (113, False), (130, False)):
        story = Story()
        story.claim("a", 100, 101)
        story.claim("b", start, start + 0.5, at=101)
        assert fits(story.events) is accepted, start


def test_lost_result() -> None:
    """A committed result that a later claim does not see is refused; so is another result."""
    story = Story()
    story.commit(story.claim("a", 100, 101), 102, 103)
    late = story.claim("b", 104, 105)
    assert fits(story.events)
    other = replace(late, answer=Committed(Payload(b"other"), late.answer.token))
    assert not fits([*story.events[:-1], other])
    again = Story()
    again.claim("b", 104, 105)
    assert not fits([*story.events[:-1], again.events[0]])


def test_two_commits() -> None:
    """Two commits of one key that both report success are refused."""
    story = Story()
    first = story.claim("a", 100, 101)
    second = story.claim("b", 120, 121)
    story.commit(second, 122, 123)
    zombie = story.commit(first, 124, 125)
    assert zombie.answer is False
    assert fits(story.events)
    assert not fits([*story.events[:-1], replace(zombie, answer=True)])


def test_tokens() -> None:
    """A token that does not grow by one is refused, unless tokens are left out."""
    story = Story()
    story.claim("a", 100, 101)
    second = story.claim("b", 120, 121)
    assert fits(story.events)
    grant = second.answer.grant
    wrong = replace(second, answer=Granted(replace(grant, token=grant.token + 1), second.answer.took_over))
    assert not fits([story.events[0], wrong])
    assert fits([story.events[0], wrong], tokens=False)


def test_unknown_outcome() -> None:
    """A call without an answer may have happened, late even, or not at all; it must not have happened twice."""
    story = Story()
    grant = story.claim("a", 100, 101)
    commit = replace(story.commit(grant, 102, 103), answer=UNKNOWN, certain=False)
    before = Story()
    before.record = None
    before.claim("a", 100, 101)
    seen = before.read(104, 105)
    done = story.read(106, 107)
    assert fits([grant, commit, seen, done], tokens=False), "it happened after the first read"
    assert fits([grant, commit, seen], tokens=False), "it never happened"
    undone = replace(seen, invoked=108 * MILLISECOND, answered=109 * MILLISECOND)
    assert not fits([grant, commit, seen, done, undone], tokens=False), "it does not un-happen"


def run_event(verb: str, given: object, answer: object, start: int) -> Event:
    return Event(0, "run r", verb, given, answer, start, start + 1)


def test_runs() -> None:
    """A run's history: steps that only grow, states with their steps, numbers that grow by one."""
    one, two = (StoredProgress("r", step, Payload(b"%d" % step)) for step in (1, 2))
    good = [
        run_event("load", "r", None, 0),
        run_event("save", two, two, 10),
        run_event("save", one, two, 20),
        run_event("incarnate", "r", 700, 30),
        run_event("incarnate", "r", 701, 40),
        run_event("load", "r", two, 50),
    ]
    assert furthest(good, RunState(), run_step) == len(good)
    for number, wrong in ((2, one), (4, 700), (4, 702), (5, one), (5, replace(two, state=one.state))):
        bad = [*good]
        bad[number] = replace(good[number], answer=wrong)
        assert furthest(bad, RunState(), run_step) == number, f"event {number} is the one that does not fit"


def test_explanation_is_short() -> None:
    """The explanation ends where the history goes wrong."""
    story = Story()
    story.claim("a", 100, 101)
    story.record = None
    story.claim("b", 102, 103)
    story.read(104, 105)
    said = explain(story.events, KeyState(), key_step(MARGIN))
    assert said is not None
    assert said.count("\n") == 1


@pytest.mark.parametrize("verb", ["delete", "resolve"])
def test_settling(verb: str) -> None:
    """A record that was removed or given back under another nonce is not its holder's any more."""
    story = Story()
    grant = story.claim("a", 100, 101)
    seen = story.record
    story.note(verb, (seen, "new"), True, 102, 103)
    lost = story.note("commit", (grant.answer.grant, b"a"), False, 104, 105)
    assert fits(story.events)
    assert not fits([*story.events[:-1], replace(lost, answer=True)])


def test_numbers_left_out() -> None:
    """An incarnation that nobody heard of may leave a gap where answers get lost, and only there; none is drawn twice."""
    drawn = [Event(0, "run r", "incarnate", "r", number, start, start + 1) for start, number in ((0, 7), (2, 9))]
    assert furthest(drawn, RunState(), run_step) < len(drawn)
    assert furthest(drawn, RunState(), partial(run_step, gaps=True)) == len(drawn)
    twice = [drawn[0], replace(drawn[1], answer=7)]
    assert furthest(twice, RunState(), partial(run_step, gaps=True)) < len(twice)


def landed_twice(again: str) -> list[Event]:
    """A claim lands and is seen, its answer gets lost, it is taken over and given back. Then its driver sends it again; or a
    rival has the key by then (another nonce `again`), and it is answered so.
    """
    story = Story()
    first = story.claim("a", 100, 101)
    seen = story.read(102, 103)
    story.claim("b", 120, 121)
    assert story.record is not None
    _, story.record = rules.abandon(
        story.record, story.events[-1].answer.grant, error=None, in_doubt=False, now=122_000
    )
    story.note("abandon", (story.events[-1].answer.grant, None, False), True, 122, 123)
    second = story.claim(again, 124, 125)
    answered = replace(second, given=first.given, invoked=first.invoked) if again == "a" else second
    events = [seen, *story.events[2:4], answered]
    if again != "a":
        held = story.claim("c", 126, 127)
        assert story.record is not None
        events += [held, replace(first, answer=replace(held.answer), answered=held.answered)]
    return events


@pytest.mark.parametrize("again", ["a", "rival"])
def test_a_call_that_landed_twice(again: str) -> None:
    """Others saw its first landing, it heard the answer to the second: that makes sense to a soak, where answers get lost."""
    events = landed_twice(again)
    assert not fits(events)
    assert unexplained_briefly(events, MARGIN // 1000) is None


def test_a_call_that_landed_twice_explains_no_more_than_that() -> None:
    """Neither an attempt that nobody made, nor a grant beside a live claim, nor a landing after its answer."""
    events = landed_twice("a")
    *others, answered = events
    grant = answered.answer.grant
    assert grant.attempt == 3
    wrong = replace(answered, answer=Granted(replace(grant, attempt=4)))
    assert unexplained_briefly([*others, wrong], MARGIN // 1000) is not None
    later = replace(others[0], invoked=130 * MILLISECOND, answered=131 * MILLISECOND)
    assert unexplained_briefly([*others[1:], answered, later], MARGIN // 1000) is not None
    story = Story()
    story.claim("a", 100, 101)
    mine = story.events[-1]
    beside = replace(mine.answer.grant, nonce="b", owner="b", attempt=2, token=mine.answer.grant.token + 1)
    story.note("claim", replace(mine.given, nonce="b", owner="b"), Granted(beside), 102, 103)
    assert unexplained_briefly(story.events, MARGIN // 1000) is not None
