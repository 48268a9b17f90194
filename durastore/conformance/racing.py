"""RACE: several processes on few keys, by the store's own clock. Each object's history must be linearizable."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from threading import Barrier
from typing import Any

from durastore.conformance.environment import inherited
from durastore.conformance.harness import Harness
from durastore.conformance.history import Event, by_object
from durastore.conformance.linear import explain, furthest
from durastore.conformance.marks import clause
from durastore.conformance.patient import patient
from durastore.conformance.racer import Job, Racer, command, plain
from durastore.conformance.sequential import KeyState, RunState, key_step, run_step
from durastore.contract import Backend, Granted

__all__ = ["RaceClauses", "double_grants", "last_look", "unexplained"]

PROCESSES, ROUNDS, CALLS = 4, 12, 24
CLOCK_SLACK = 10_000_000
"""Nanoseconds that a store's clock and this machine's may drift apart within one race."""
_MICROSECOND = 1_000
_WAIT_SECONDS_MAX = 120.0


def race(harness: Harness, *, settling: bool) -> list[Event]:
    """The history of a race, closed by a look at what is left of each object."""
    jobs = [Job(number, 1, ROUNDS, CALLS, settling) for number in range(PROCESSES)]
    url = harness.url
    events = _with_threads(harness, jobs) if url is None else _with_processes(url, jobs)
    return [*events, *last_look(harness.open(), events)]


def _with_threads(harness: Harness, jobs: Sequence[Job]) -> list[Event]:
    gate = Barrier(len(jobs))

    def run(job: Job) -> list[Event]:
        racer = Racer(harness.open(), job)
        for number in range(job.rounds):
            gate.wait(_WAIT_SECONDS_MAX)
            racer.round(number)
        return racer.events

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [event for events in pool.map(run, jobs) for event in events]


def _with_processes(url: str, jobs: Sequence[Job]) -> list[Event]:
    runners = [_Runner(job, url) for job in jobs]
    try:
        for _ in range(jobs[0].rounds):
            for runner in runners:
                runner.expect("ready")
            for runner in runners:
                runner.say("go\n")
        return [event for runner in runners for event in runner.events()]
    finally:
        for runner in runners:
            runner.stop()


class _Runner:
    """A racing process. Its URL goes by standard input, where no list of processes shows its password."""

    def __init__(self, job: Job, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "durastore.conformance.racer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=inherited(),
        )
        self.say(command(job, url))

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def expect(self, word: str) -> None:
        assert self._line() == word, "a racing process failed; its error is in the captured output"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def events(self) -> list[Event]:
        line = self._line()
        assert line, "a racing process failed; its error is in the captured output"
        found: list[Event] = pickle.loads(base64.b64decode(line))  # noqa: S301  written by our own child
        return found

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def last_look(opened: Backend, events: Sequence[Event]) -> list[Event]:
    """What another client reads when all is over."""
    backend = patient(opened)
    found = []
    for name in by_object(events):
        kind, _, key = name.partition(" ")
        invoked = time.monotonic_ns()
        answer = plain(backend.read([key])[0] if kind == "key" else backend.load(key))
        verb = "read" if kind == "key" else "load"
        found.append(Event(-1, name, verb, None, answer, invoked, time.monotonic_ns()))
    return found


def unexplained(events: Sequence[Event], clock_margin: int) -> str | None:
    """The first history that is not linearizable, cut to where it goes wrong; None when all are.

    `clock_margin`: microseconds by which the store may be wrong about a lease's end.
    """
    margin = clock_margin * _MICROSECOND + CLOCK_SLACK
    for name, history in by_object(events).items():
        known = all(event.certain for event in history)
        is_key = name.startswith("key ")
        initial: Any = KeyState() if is_key else RunState()
        step: Any = key_step(margin, tokens=known) if is_key else run_step
        if furthest(history, initial, step) < len(history):
            return f"{name}: no order explains\n{explain(history, initial, step)}"
    return None


def double_grants(events: Sequence[Event], clock_margin: int) -> list[str]:
    """Pairs of grants of one key that may not be: tokens out of order, or both alive at once."""
    margin = clock_margin * _MICROSECOND + CLOCK_SLACK
    found = []
    for history in by_object(events).values():
        grants = [event for event in history if isinstance(event.answer, Granted)]
        for one, other in combinations(grants, 2):
            first, second = sorted((one, other), key=lambda event: int(event.answer.grant.token))
            if first.answer.grant.token == second.answer.grant.token or second.answered < first.invoked:
                found.append(f"tokens out of order:\n{first}\n{second}")
            elif second.answered < _alive_until(first, history) - margin:
                found.append(f"granted while another claim was alive:\n{first}\n{second}")
    return found


def _alive_until(grant: Event, history: Sequence[Event]) -> int:
    """When a granted claim may have ended at the earliest: given back, or lapsed."""
    nonce, lease = grant.answer.grant.nonce, grant.answer.grant.lease * _MICROSECOND
    ends = [event.invoked for event in history if event.verb in ("abandon", "commit") and event.given[0].nonce == nonce]
    return min([*ends, grant.invoked + int(lease)])


class RaceClauses:
    """One test for each RACE clause."""

    @clause("RACE-1")
    def test_race_1_linearizable(self, harness: Harness) -> None:
        """Claims, renewals, commits, give-backs, resolutions, removals, saves: an order explains all answers of each object."""
        events = race(harness, settling=True)
        problem = unexplained(events, harness.clock_margin)
        assert problem is None, problem

    @clause("RACE-2")
    def test_race_2_one_result(self, harness: Harness) -> None:
        """Without removals: one committed result at most, which stays; tokens grow; no two claims live at once."""
        events = race(harness, settling=False)
        for name, history in by_object(events).items():
            results = {event.given[1] for event in history if event.verb == "commit" and event.answer is True}
            assert len(results) <= 1, f"{name} was committed with {results}"
            if results and name.startswith("key "):
                left = history[-1].answer
                assert left is not None, f"{name} is gone"
                assert (left.state, {left.result and left.result.data}) == ("committed", results), name
        assert double_grants(events, harness.clock_margin) == []
