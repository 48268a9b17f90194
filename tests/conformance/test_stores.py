"""The suite on every store that this machine has. The reports go to ``reports/``, where `make test` shows them.

A store that is not to be had is reported as "not run", with the reason; where ``DURASTORE_REQUIRE`` names it, that fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from durastore import emulators
from durastore.conformance.runner import run
from tests.conftest import shared

REPORTS = Path(__file__).parents[2] / "reports"


def url_of(store: str, folder: Path) -> str:
    if store == "memory":
        return "memory://"
    return f"sqlite:///{folder}/suite.db" if store == "sqlite" else shared(store)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgresql", "mysql", "firestore", "dynamodb"])
def test_conformant(store: str, tmp_path: Path) -> None:
    """Every clause passes, by the same command that anyone can run."""
    REPORTS.mkdir(exist_ok=True)
    files = [REPORTS / f"conformance-{store}.{suffix}" for suffix in ("txt", "json", "md")]
    for file in files:
        file.unlink(missing_ok=True)
    found = emulators.available(store)
    if isinstance(found, emulators.NotRun):
        files[0].write_text(f"durastore conformance of {store}: NOT RUN: {found}\n", encoding="utf-8")
    report = run(url_of(store, tmp_path), report=files)
    assert report.conformant, report.to_text()
