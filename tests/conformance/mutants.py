"""Backends broken on purpose, each in one way: the suite must catch each by the clause that it breaks.

The mutants stand in ``mutants_*.py``. Here is what they share: the marker that says what they break, the harness that runs the
suite's tests on them in this process, and the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from durastore.conformance.catalogue import group_of
from durastore.conformance.suite import Conformance, required
from durastore.conformance.userdata import UserData, user_data_for
from durastore.contract import Backend
from durastore.memory import MemoryBackend, _Space

__all__ = ["MUTANTS", "Mutant", "MutantHarness", "Verdict", "breaks", "caught", "markdown", "text"]

MUTANTS: list[type[Mutant]] = []
SLOW = (
    "test_limit_3_largest_payload",
    "test_value_3_every_size",
    "test_value_3_missing_chunk",
    "test_setup_1_setup_at_once",
)
"""Run only for the mutants that they are there for."""
LAYERS = {"MODEL", "RACE", "LOST", "OUTAGE", "CRASH", "ZOMBIE", "CLOCK"}
"""Groups of clauses that stand above single calls."""
Kind = TypeVar("Kind", bound="type[Mutant]")


class Mutant(MemoryBackend):
    """The reference backend; each subclass breaks it. Its docstring says how."""

    clause = ""

    @property
    def records(self) -> dict[str, Any]:
        """The records, to break."""
        return self._space.records


def breaks(clause: str) -> Callable[[Kind], Kind]:
    """Mark a mutant with the clause that must catch it."""

    def mark(kind: Kind) -> Kind:
        kind.clause = clause
        MUTANTS.append(kind)
        return kind

    return mark


class MutantHarness:
    """A `durastore.conformance.Harness` over one mutant."""

    url = None
    clock_margin = 0

    def __init__(self, kind: type[MemoryBackend]) -> None:
        self._kind = kind
        self._space, self._other = _Space(), _Space()
        self.user_data: UserData | None = user_data_for("memory")

    def open(self) -> Backend:
        return self._kind(self._space)

    def elsewhere(self) -> Backend:
        return self._kind(self._space if getattr(self._kind, "shares_namespaces", False) else self._other)

    def describe(self) -> Mapping[str, str]:
        return {"store": self._kind.__name__, "url": "memory://"}


@dataclass(frozen=True)
class Verdict:
    """What the suite said of one mutant."""

    mutant: type[Mutant]
    failures: Mapping[str, str]
    """The tests that failed, and how."""
    seconds: float

    @property
    def clauses(self) -> set[str]:
        """The clauses that failed."""
        return {clause for test in self.failures for clause in required()[test]}


def tests_for(clause: str) -> Iterable[str]:
    """All fast tests, and every test of the clause. The layers above clauses run for their own mutants alone."""
    for test, clauses in required().items():
        layered = bool(LAYERS & set(map(group_of, clauses)))
        if clause in clauses or not (layered or test in SLOW):
            yield test


def caught(mutant: type[Mutant], tests: Iterable[str] | None = None) -> Verdict:
    """Run the suite, or some of its tests, on a mutant."""
    began = time.monotonic()
    failures: dict[str, str] = {}
    for test in tests_for(mutant.clause) if tests is None else tests:
        suite = Conformance()
        suite.shrinks = False
        try:
            getattr(suite, test)(MutantHarness(mutant))
        except (Exception, pytest.fail.Exception) as exc:
            failures[test] = f"{type(exc).__name__}: {exc}".split("\n", 1)[0][:120]
    return Verdict(mutant, failures, time.monotonic() - began)


Row = tuple[str, str, str, str]
HEAD: Row = ("broken backend", "breaks", "caught by", "also fails")


def _row(verdict: Verdict) -> Row:
    what = " ".join((verdict.mutant.__doc__ or "").split())
    by = [test for test in verdict.failures if verdict.mutant.clause in required()[test]]
    others = ", ".join(sorted(verdict.clauses - {verdict.mutant.clause})) or "-"
    return what, verdict.mutant.clause, ", ".join(by) or "NOTHING", others


def markdown(verdicts: Iterable[Verdict]) -> str:
    """The mutants, what they break, and what caught them, as a table in Markdown."""
    rows = [HEAD, ("---",) * 4, *map(_row, verdicts)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def text(verdicts: Sequence[Verdict]) -> str:
    """The same for a terminal, with the first test that caught each."""
    caught = sum(verdict.mutant.clause in verdict.clauses for verdict in verdicts)
    lines = [f"Backends broken on purpose: {caught} of {len(verdicts)} caught by the clause that they break"]
    for what, breaks_, by, _ in map(_row, verdicts):
        lines.append(f"  {breaks_:<14} {what[:62]:<62} {by.partition(',')[0]}")
    return "\n".join(lines) + "\n"
