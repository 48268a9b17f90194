"""The suite is itself tested: backends broken on purpose, each caught by the clause that it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from durastore.conformance.catalogue import catalogue
from durastore.conformance.suite import required
from tests.conformance import (
    mutants_claiming,
    mutants_dying,
    mutants_holding,
    mutants_losing,
    mutants_placing,
    mutants_storing,
)
from tests.conformance.mutants import MUTANTS, Mutant, Verdict, caught, markdown, text

__all__ = [
    "mutants_claiming",
    "mutants_dying",
    "mutants_holding",
    "mutants_losing",
    "mutants_placing",
    "mutants_storing",
]

REPORTS = Path(__file__).parents[2] / "reports"


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    """What the suite said of each. The table goes to ``reports/``, where `make test` shows it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durastore.conformance.client.LISTED_SECONDS_MAX", 0.05)  # nothing is eventual in memory
        patch.setattr("durastore.conformance.patient.DEADLINE", 0.05)
        patch.setattr("durastore.conformance.clocks.LATE_SECONDS_MAX", 1.0)
        patch.setattr("durastore.conformance.disturbing.PATIENCE", 0.2)
        found = [caught(mutant) for mutant in MUTANTS]
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / "mutants.md").write_text(f"# Backends broken on purpose\n\n{markdown(found)}", encoding="utf-8")
    (REPORTS / "mutants.txt").write_text(text(found), encoding="utf-8")
    return found


def test_each_is_caught_by_its_clause(verdicts: list[Verdict]) -> None:
    """Among the clauses that fail is the one that the mutant breaks."""
    escaped = {
        verdict.mutant.__name__: sorted(verdict.clauses)
        for verdict in verdicts
        if verdict.mutant.clause not in verdict.clauses
    }
    assert escaped == {}


def test_every_clause_catches_one() -> None:
    """No clause whose tests could not fail: each has a mutant that it catches."""
    assert {mutant.clause for mutant in MUTANTS} == set(catalogue())


def test_the_unbroken_one_passes() -> None:
    """It is the fault that is caught, not the harness: the same tests pass on the unbroken backend."""
    assert caught(Mutant, required()).failures == {}
