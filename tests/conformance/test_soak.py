"""Half a minute of bad weather on each store; what was done and found goes to ``reports/``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from durastore.conformance.soak import soak
from durastore.errors import ConfigError
from durastore_pytest import SURFACE_VARIABLE
from tests.conformance import broken
from tests.conformance.test_stores import REPORTS, url_of

SECONDS = float(os.environ.get("DURASTORE_SOAK_SECONDS", "30"))
ASYNC_SHARE = 1 / 3
"""Of that time, in which the programs use `durastore.aio`."""
SECONDS_MAX = 120.0
"""A soak that finds nothing in a broken store by then is broken itself."""


@pytest.mark.parametrize("store", ["sqlite", "postgresql", "mysql", "firestore", "dynamodb"])
def test_soak(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes killed and frozen, requests and answers lost: each history makes sense, each effect is counted right, on the sync
    surface and on the async one.
    """
    REPORTS.mkdir(exist_ok=True)
    report = REPORTS / f"soak-{store}.txt"
    report.unlink(missing_ok=True)
    for surface, share in (("sync", 1 - ASYNC_SHARE), ("async", ASYNC_SHARE)):
        monkeypatch.setenv(SURFACE_VARIABLE, surface)
        found = soak(url_of(store, tmp_path), seconds=SECONDS * share)
        with report.open("a", encoding="utf-8") as file:
            file.write(found.to_text())
        assert found.surface == surface
        assert found.violations == [], found.to_text()
        assert found.faults["kill"] > 0
        assert found.faults["freeze"] > 0
        assert found.effects > 0


@pytest.mark.parametrize("wrap", [broken.Generous, broken.Unfenced, broken.Forgetful])
def test_broken_store(wrap: Any, tmp_path: Path) -> None:
    """A store that is broken is found out, shown by a short history or a count, with the command that tries again."""
    found = soak(f"sqlite:///{tmp_path}/soak.db", seconds=SECONDS_MAX, wrap=wrap)
    assert found.exit_code == 1
    assert found.violations[-1].startswith("replay: durastore conformance ")
    assert f"--seed {found.seed + found.rounds - 1}" in found.violations[-1]
    assert any("no order explains" in line or "effects under" in line for line in found.violations), found.to_text()


def test_unbroken_wrapper(tmp_path: Path) -> None:
    """It is the fault that is found, not the wrapper."""
    assert soak(f"sqlite:///{tmp_path}/soak.db", seconds=5, wrap=broken.Wrapper).violations == []


def test_memory_is_refused() -> None:
    """A store of one process can't be soaked, and that is said."""
    with pytest.raises(ConfigError, match="other processes"):
        soak("memory://", seconds=0)


def test_command(tmp_path: Path) -> None:
    """``durastore conformance URL --soak 0 --seed N``: one round, its figures on the screen and in files."""
    command = [sys.executable, "-m", "durastore.cli", "conformance", f"sqlite:///{tmp_path}/soak.db"]
    options = [
        "--soak",
        "0",
        "--seed",
        "7",
        "--report",
        str(tmp_path / "soak.json"),
        "--report",
        str(tmp_path / "soak.txt"),
    ]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no violation in 1 rounds" in done.stdout
    assert (tmp_path / "soak.txt").read_text() == done.stdout
    found = json.loads((tmp_path / "soak.json").read_text())
    assert (found["rounds"], found["seed"], found["violations"]) == (1, 7, [])
    assert found["operations"] > 0
