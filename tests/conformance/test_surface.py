"""The layers whose programs use the public API, through `durastore.aio`. The report goes to ``reports/``.

The clauses of bare verbs are not repeated: they are the backend's, which both surfaces call by the same protocol.
"""

from __future__ import annotations

import ast
import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore.agent import Summary
from durastore.aio.driving import Driver
from durastore.conformance import surface
from durastore.conformance.crashing import CrashClauses
from durastore.conformance.freezing import PHASES, ZombieClauses
from durastore.conformance.harness import UrlHarness
from durastore.conformance.losing import LostClauses
from durastore.conformance.runner import run
from durastore.memory import MemoryBackend, _Space
from tests.conformance.test_doors import execute, suite
from tests.conformance.test_stores import REPORTS, built, missing, url_of

LAYERS = {
    "value": ("VALUE-2", "VALUE-3"),
    "lost_11": ("LOST-11",),
    "outage": ("OUTAGE-1",),
    "crash": ("CRASH-1", "CRASH-2", "CRASH-3", "CRASH-4"),
    "zombie": ("ZOMBIE-1", "ZOMBIE-2"),
}
"""What of the names of tests selects each layer, and its clauses."""
PROGRAMS = {"crashing", "disturbing", "freezing", "lives", "losing", "soak", "soaker", "values"}
"""The suite's modules with programs that use the public API."""


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgresql", "mysql", "firestore", "dynamodb"])
def test_async(store: str, tmp_path: Path) -> None:
    """Every program of the suite keeps its promises under an event loop. Values do not depend on the store but once."""
    layers = {name: clauses for name, clauses in LAYERS.items() if name != "value" or store in ("memory", "sqlite")}
    REPORTS.mkdir(exist_ok=True)
    line, why = REPORTS / f"surface-{store}.txt", missing(store)
    line.write_text(f"durastore.aio on {store}: NOT RUN: {why}\n", encoding="utf-8")
    if not built(store):
        pytest.skip(f"not run: {store}: {why}")
    report = run(url_of(store, tmp_path), surface="async", extra_args=["-k", " or ".join(layers)])
    assert report.about["surface"] == "async"
    wanted = {clause for clauses in layers.values() for clause in clauses}
    found = {result.clause: result for result in report.clauses if result.clause in wanted}
    assert {clause: result.status for clause, result in found.items()} == dict.fromkeys(wanted, "pass"), (
        report.to_text()
    )
    line.write_text(
        f"durastore.aio on {store}: {', '.join(sorted(found))} pass in {report.seconds:.1f} s\n", encoding="utf-8"
    )


def test_both_kinds_of_effects() -> None:
    """Among the names of each layer some run as coroutine functions and some in threads."""
    names = {
        "crash": [f"{mode}-{target}" for mode in ("rerun", "halt", "probe") for target in range(1, 9)],
        "frozen in its effect": [f"{phase} {set_back}" for phase in PHASES[1:2] for set_back in (False, True)],
        "value": [f"key-{number}" for number in range(8)],
        "disturbed": ["weather", "outage"],
    }
    assert {layer: {surface.is_coroutine_for(name) for name in found} for layer, found in names.items()} == (
        {layer: {False, True} for layer in names}
    )


@pytest.mark.parametrize("name", ["a", "b"])
def test_effects_run_where_they_should(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain effect runs in a task or in a thread, by its key's name or its run's; on the sync surface, where it is called."""
    monkeypatch.setenv(surface.SURFACE_VARIABLE, "async")

    def where() -> str:
        assert durastore.current() is not None
        if threading.current_thread().name.startswith("durastore-effect"):
            return "thread"
        return "task" if asyncio.current_task() else "caller"

    with surface.surfaced(durastore.Store(MemoryBackend(_Space()))) as store:
        expected = "task" if surface.is_coroutine_for(name) else "thread"
        ckpt = store.checkpoint(name, in_doubt=lambda _: durastore.Found(where()))
        assert ckpt.run_once(name, where) == (expected, "executed")
        assert surface.run_agent([1], ckpt, lambda _: where()).executed == 1
        assert store.record(f"{name}:step:0").result == expected
        with pytest.raises(ZeroDivisionError):
            ckpt.run_once("doubt", lambda: 1 / 0)
        assert ckpt.run_once("doubt", where) == (expected, "recovered")


def test_kinds_differ() -> None:
    """The two names above are of both kinds."""
    assert {surface.is_coroutine_for(name) for name in "ab"} == {False, True}


def test_every_program_uses_the_surface() -> None:
    """No module of the suite runs agents, or opens checkpoints, past the chosen surface."""
    for path in Path(surface.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        calls = {
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        }
        agents = {
            name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in ("durastore", "durastore.agent")
            for name in node.names
        }
        if path.stem == "surface":
            continue
        assert "run_agent" not in agents, path.stem
        if "Store" in calls or "checkpoint" in calls or "run_agent" in calls:
            assert path.stem in PROGRAMS, path.stem
        if "Store" in calls:
            assert "surfaced" in calls, path.stem


def _twice(real: Any) -> Any:
    async def effect(self: Any, step: Any) -> Any:
        await real(self, step)
        return await real(self, step)

    return effect


def _forgiving(real: Any) -> Any:
    async def drive(self: Any, steps: Any) -> Any:
        try:
            return await real(self, steps)
        except durastore.ClaimLost:
            return Summary(0, 0, 0, 0, 0)

    return drive


def _idle(real: Any) -> Any:
    async def effect(self: Any, step: Any) -> None:
        """Nothing is done."""

    return effect


@pytest.mark.parametrize(
    ("method", "broken", "layer", "test"),
    [
        ("_effect", _twice, CrashClauses, "test_crash_1_rerun"),
        ("_effect", _twice, LostClauses, "test_lost_11_whole_runs"),
        ("drive", _forgiving, ZombieClauses, "test_zombie_1_frozen"),
        ("_effect", _idle, CrashClauses, "test_crash_3_probe"),
    ],
)
def test_a_broken_driver_is_caught(
    method: str, broken: Any, layer: type[Any], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop's driver that runs effects twice or not at all, or hides a lost claim, fails, and only that one."""
    monkeypatch.setenv(surface.SURFACE_VARIABLE, "async")
    with UrlHarness("memory://") as harness:
        getattr(layer(), test)(harness)
    monkeypatch.setattr(Driver, method, broken(getattr(Driver, method)))
    with UrlHarness("memory://") as harness, pytest.raises((AssertionError, durastore.DurastoreError)):
        getattr(layer(), test)(harness)
    monkeypatch.setenv(surface.SURFACE_VARIABLE, "sync")
    with UrlHarness("memory://") as harness:
        getattr(layer(), test)(harness)


def test_doors(tmp_path: Path) -> None:
    """The option of each door, or the environment, chooses; the report says which it was; what there is not is refused."""
    few = ("-k", "value_2_deep")
    for options, variable, expected in (
        ((), "async", "async"),
        (("--durastore-surface", "sync"), "async", "sync"),
        ((), "", "sync"),
    ):
        done = suite(tmp_path, *few, *options, "--durastore-report", "r.txt", DURASTORE_CONFORMANCE_SURFACE=variable)
        assert done.returncode == 1, done.stdout + done.stderr  # the other clauses were left out
        assert f"  surface: {expected}\n" in (tmp_path / "r.txt").read_text()
    refused = suite(tmp_path, *few, DURASTORE_CONFORMANCE_SURFACE="wrong")
    assert refused.returncode == 4
    assert "DURASTORE_CONFORMANCE_SURFACE is one of sync, async, not 'wrong'" in refused.stderr


def test_soak(tmp_path: Path) -> None:
    """A round of a soak on the async surface; its report says so, and so does the command that would try again."""
    command = ("-m", "durastore.cli", "conformance", f"sqlite:///{tmp_path}/soak.db", "--soak", "0")
    done = execute(*command, "--surface", "async", "--report", "soak.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  surface: async\n" in done.stdout
    assert json.loads((tmp_path / "soak.json").read_text())["surface"] == "async"
    assert execute(*command, "--surface", "wrong", cwd=tmp_path).returncode == 2
