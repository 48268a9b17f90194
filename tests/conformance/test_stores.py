"""The suite on every store that this machine has. The reports go to ``reports/``, where `make test` shows them.

A store that is not to be had is reported as "not run", with the reason; where ``DURASTORE_REQUIRE`` names it, that fails.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
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


def built(store: str) -> bool:
    """Whether durastore has a backend for it yet."""
    points = entry_points(group="durastore.backends", name=store)
    return all(hasattr(import_module(point.module), point.attr) for point in points) and bool(points)


def missing(store: str) -> str:
    """Why a store cannot be tested here; empty when it can."""
    if not built(store):
        return "durastore has no backend for it yet"
    found = emulators.available(store)
    return str(found) if isinstance(found, emulators.NotRun) else ""


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgresql", "mysql", "firestore", "dynamodb"])
def test_conformant(store: str, tmp_path: Path) -> None:
    """Every clause passes, by the same command that anyone can run."""
    REPORTS.mkdir(exist_ok=True)
    files = [REPORTS / f"conformance-{store}.{suffix}" for suffix in ("txt", "json", "md")]
    for file in files:
        file.unlink(missing_ok=True)
    why = missing(store)
    if why:
        files[0].write_text(f"durastore conformance of {store}: NOT RUN: {why}\n", encoding="utf-8")
    if not built(store):
        pytest.skip(f"not run: {store}: {why}")
    report = run(url_of(store, tmp_path), report=files)
    assert report.conformant, report.to_text()
