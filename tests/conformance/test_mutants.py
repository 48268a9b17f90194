"""The suite is itself tested: backends broken on purpose, each caught by the clause that it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from durastore.conformance.catalogue import catalogue
from durastore.conformance.suite import required
from tests.conformance import mutants_claiming, mutants_holding, mutants_storing
from tests.conformance.mutants import MUTANTS, Mutant, Verdict, caught, table

__all__ = ["mutants_claiming", "mutants_holding", "mutants_storing"]

REPORT = Path(__file__).parents[2] / "reports" / "mutants.md"


@pytest.fixture(scope="module")
def verdicts() -> Iterator[list[Verdict]]:
    """What the suite said of each; the table is written at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durastore.conformance.client.LISTED_SECONDS_MAX", 0.05)  # nothing is eventual in memory
        patch.setattr("durastore.conformance.patient.DEADLINE", 0.05)
        found = [caught(mutant) for mutant in MUTANTS]
    yield found
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(f"# Backends broken on purpose\n\n{table(found)}", encoding="utf-8")


def test_each_is_caught_by_its_clause(verdicts: list[Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    """Among the clauses that fail is the one that the mutant breaks."""
    with capsys.disabled():
        print(f"\n{table(verdicts)}")
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
