"""From what became of each test to what the report says of each clause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from durastore.conformance.catalogue import catalogue
from durastore.conformance.report import ClauseResult, Report, Status

__all__ = ["Outcome", "Recording"]

_WORSE: tuple[Status, ...] = ("pass", "not run", "fail")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test, or of one phase of it."""

    test: str
    clauses: Sequence[str]
    status: Status
    why: str = ""
    override: str = ""
    """Why this test stands in for the suite's own, as declared."""
    undeclared: bool = False
    """It replaces the suite's own without saying so."""


class Recording:
    """All outcomes of one suite."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.about: dict[str, str] = {}
        self._outcomes: dict[str, Outcome] = {}

    def note(self, outcome: Outcome) -> None:
        """Add an outcome; of several of one test (phases, parameters) the worst counts."""
        known = self._outcomes.get(outcome.test)
        if known is None or _WORSE.index(outcome.status) > _WORSE.index(known.status):
            self._outcomes[outcome.test] = outcome

    def report(self, seconds: float) -> Report:
        """The report, with every clause of the catalogue in it."""
        expected = self._expected()
        return Report(
            suite=self.suite,
            about=dict(self.about),
            clauses=[_result(clause, text, expected) for clause, text in catalogue().items()],
            problems=self._problems(),
            notes=[note for name, note in _NOTES.items() if self.about.get(name) == "no"],
            seconds=round(seconds, 1),
        )

    def _expected(self) -> list[Outcome]:
        """Every test of the suite and every further one; those of the suite that nobody heard of were not run."""
        from durastore.conformance.suite import required

        missing = {
            name: Outcome(name, clauses, "not run", f"{name} was not collected, or was deselected")
            for name, clauses in required().items()
        }
        return list((missing | self._outcomes).values())

    def _problems(self) -> list[str]:
        undeclared = [outcome.test for outcome in self._outcomes.values() if outcome.undeclared]
        problems = [f"{test} replaces the suite's own without @instead_of(…, reason=…)" for test in undeclared]
        return problems if self._outcomes else ["nothing was collected", *problems]


_NOTES = {"shared between processes": "no other process can open this store, so that the races ran with threads"}


def _result(clause: str, text: str, outcomes: Sequence[Outcome]) -> ClauseResult:
    bearing = [outcome for outcome in outcomes if clause in outcome.clauses]
    if not bearing:
        return ClauseResult(clause, text, "not run", "the suite has no test for it")
    worst = max(bearing, key=lambda outcome: _WORSE.index(outcome.status))
    result = ClauseResult(clause, text, worst.status, tests=len(bearing))
    overridden = tuple(f"{outcome.test}: {outcome.override}" for outcome in bearing if outcome.override)
    reason = worst.why if worst.status == "not run" else f"{worst.test}: {worst.why}"
    return replace(result, overridden=overridden, reason="" if worst.status == "pass" else reason)
