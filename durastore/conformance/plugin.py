"""The suite's pytest plugin: it watches what becomes of each clause's tests, and writes the report."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from durastore.conformance.harness import Harness
from durastore.conformance.marks import clauses_of, reason_of
from durastore.conformance.recording import Outcome, Recording
from durastore.conformance.rendering import plain, verdict, without_password
from durastore.conformance.report import Report, Status
from durastore.conformance.surface import chosen
from durastore.errors import ConfigError

__all__ = ["register"]

_LINES_MAX = 20
_SUITE, _ABOUT = "durastore suite", "durastore about"


def register(config: pytest.Config) -> None:
    """Watch this session. Raises `pytest.UsageError` where no result could be trusted."""
    if not __debug__:
        raise pytest.UsageError("the conformance suite asserts: run Python without -O")
    for target in config.option.durastore_report:
        if Path(target).suffix not in _RENDERERS:
            raise pytest.UsageError(f"--durastore-report {target}: the name ends in {', '.join(_RENDERERS)}")
    try:
        chosen()
    except ConfigError as exc:
        raise pytest.UsageError(str(exc)) from None
    if config.pluginmanager.has_plugin("durastore conformance"):
        return
    config.pluginmanager.register(Watcher(config), "durastore conformance")


class Watcher:
    """Notes at each test which clauses it bears (where tests run), and what became of it (where reports arrive)."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = time.monotonic()
        self._recordings: dict[str, Recording] = {}
        self._described: set[str] = set()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Attach a test's clauses, so that they travel with its reports, from other processes too."""
        from durastore.conformance.suite import Conformance, required

        if not isinstance(item, pytest.Function) or item.cls is None or not issubclass(item.cls, Conformance):
            return
        name = item.originalname
        original = getattr(Conformance, name, None)
        undeclared = original is not None and getattr(item.cls, name) is not original and not reason_of(item.obj)
        outcome = {
            "test": name,
            "clauses": sorted({*required().get(name, ()), *clauses_of(item.obj)}),
            "override": reason_of(item.obj) or "",
            "undeclared": undeclared,
        }
        item.user_properties.append((_SUITE, {"suite": item.cls.__name__, "outcome": outcome}))

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Hand on how many programs the model layer is to run."""
        examples = self._config.option.durastore_examples
        if examples is not None and any(name == _SUITE for name, _ in item.user_properties):
            item.instance.examples = examples  # type: ignore[attr-defined]  # a method of a suite has one

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let each suite's first report say what store it is about."""
        suite = next((value["suite"] for name, value in _properties(item) if name == _SUITE), None)
        harness = getattr(item, "funcargs", {}).get("harness")
        if suite is not None and harness is not None and suite not in self._described:
            self._described.add(suite)
            item.user_properties.append((_ABOUT, _about(harness)))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a test."""
        properties: dict[str, Any] = dict(report.user_properties)
        bears = properties.get(_SUITE)
        if bears is None:
            return
        recording = self._recordings.setdefault(bears["suite"], Recording(bears["suite"]))
        recording.about.update(properties.get(_ABOUT, {}))
        recording.note(Outcome(**bears["outcome"], status=_status(report), why=self._why(report)))

    def _why(self, report: pytest.TestReport) -> str:
        """The first line of what went wrong, without the store's password."""
        if _status(report) == "pass":
            return ""
        crash = getattr(report.longrepr, "reprcrash", None)
        lines = str(crash.message if crash else report.longreprtext or report.longrepr).strip().splitlines()
        if isinstance(report.longrepr, tuple):  # a skip: file, line, reason
            lines = [report.longrepr[2]]
        text = " ".join(line.strip() for line in lines[:3])
        return without_password(
            f"{report.when}: {text}" if report.when != "call" else text, self._config.option.durastore_url
        )

    def reports(self) -> list[Report]:
        """One report for each suite; one that says "nothing collected" when there was none."""
        found = list(self._recordings.values()) or [Recording("nothing")]
        return [recording.report(time.monotonic() - self._began) for recording in found]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the reports. A session whose store is not conformant does not succeed."""
        if hasattr(self._config, "workerinput") or self._config.option.collectonly:
            return
        reports = self.reports()
        for target in self._config.option.durastore_report:
            write(reports, target)
        if session.exitstatus == pytest.ExitCode.OK and not all(report.conformant for report in reports):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say the verdict, and what it is not green for."""
        if self._config.option.collectonly:
            return
        terminalreporter.section("durastore conformance")
        for report in self.reports():
            terminalreporter.line(f"{report.suite} ({plain(report.store)}) {verdict(report)}")
            for problem in report.problems:
                terminalreporter.line(f"  problem: {plain(problem)}")
            open_ends = sorted((r for r in report.clauses if r.status != "pass"), key=lambda r: r.status)
            for result in open_ends[:_LINES_MAX]:
                terminalreporter.line(f"  {result.clause}: {result.status}: {plain(result.reason)}")
            if len(open_ends) > _LINES_MAX:
                terminalreporter.line(f"  … and {len(open_ends) - _LINES_MAX} more clauses")


def _about(harness: Harness) -> dict[str, str]:
    """What the harness says; a store that is too broken to describe is what the suite is for."""
    try:
        return dict(harness.describe()) | {"surface": chosen()}
    except Exception as exc:  # noqa: BLE001  the tests show what is wrong
        return {"store": "unknown store", "description": f"failed: {type(exc).__name__}"}


def _properties(item: pytest.Item) -> list[tuple[str, Any]]:
    return item.user_properties


def _status(report: pytest.TestReport) -> Status:
    """An expected failure proves nothing, whether it fails or passes."""
    if hasattr(report, "wasxfail") or report.skipped:
        return "not run"
    return "pass" if report.passed else "fail"


def write(reports: list[Report], target: str) -> None:
    """Write reports to a file whose suffix says the format; ``{suite}`` in its name is each suite's own."""
    path = Path(target)
    render = _RENDERERS[path.suffix]
    for report in reports:
        name = path.name.replace("{suite}", report.suite)
        if len(reports) > 1 and "{suite}" not in path.name:
            name = f"{path.stem}-{report.suite}{path.suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(name).write_text(render(report), encoding="utf-8")


_RENDERERS = {".txt": Report.to_text, ".json": Report.to_json, ".md": Report.to_markdown}
