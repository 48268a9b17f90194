"""The README's figures and plots: ``python -m tests.bench.page docs/measured --into README.md --plots docs``.

The folder holds what ``durastore bench --report`` wrote, one file for each store, ``sqlite-empty.json`` with ``--cold``; what
``durastore bench granularity --json`` said; and what ``python -m tests.bench.scale`` said.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from textwrap import fill
from typing import Any

from durastore.bench.experiment import Trial
from durastore.bench.measuring import FLOOR, Report
from durastore.bench.plot import bars, curves
from durastore.conformance import matrix

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
STORES = ("sqlite", "sqlite-empty", "postgresql", "dynamodb", "firestore")
_KINDS = {
    "run_once, executed": "`run_once`, executed",
    "run_once, skipped": "`run_once`, skipped",
    "run_agent over a list": "`run_agent` over a list, progress included",
    "run_agent over a generator": "`run_agent` over a generator",
    "run_agent, concurrency=16": "`run_agent`, `concurrency=16`",
    "run_agent, replayed": "`run_agent`, replayed",
}
_PLOTTED = ("run_agent over a list", "run_once, executed", "run_once, skipped", "run_agent, replayed")


def section(folder: Path) -> str:
    """What stands between the markers."""
    reports = {name: Report.from_json(_read(folder, name)) for name in STORES}
    return (
        f"{_how(reports)}\n\n{_table(reports)}\n![what a step costs](docs/steps.svg)\n\n"
        f"{_scale(_read(folder, 'scale'))}\n\n{_granularity(_read(folder, 'granularity'))}\n\n"
        "![saving every n steps](docs/granularity.svg)\n"
    )


def plots(folder: Path) -> dict[str, str]:
    """The plots by file name."""
    reports = {name: Report.from_json(_read(folder, name)) for name in STORES if name != "sqlite-empty"}
    groups = [
        (report.store.partition(" at ")[0], [(row.name, row.floors) for row in report.rows if row.name in _PLOTTED])
        for report in reports.values()
    ]
    found = _read(folder, "granularity")
    trials = [Trial(**trial) for trial in found["trials"]]
    return {
        "steps.svg": bars("What a step costs, in durable writes by the raw driver", groups, "floors"),
        "granularity.svg": curves(trials, found["young_daly"]),
    }


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def _how(reports: dict[str, Report]) -> str:
    one = reports["sqlite"]
    return _paragraph(f"""
        What a step costs, in *floors*: a floor is one durable write by the raw driver, taken in turns in the same run. Medians,
        an effect that does nothing, one process, Python {one.python}, {one.cpus} cores; by `durastore bench`, which measures
        yours. Steady state, the second column excepted: on an empty file SQLite's writes are cheaper until its log is first moved
        over. DynamoDB and Firestore are emulators on the same machine, whose own work counts: on the network the requests do, and
        those are one for a step of a list, two for an executed `run_once`, one for a skipped one; tests count them.
    """)


def _paragraph(text: str) -> str:
    return fill(" ".join(text.split()), 128, break_long_words=False, break_on_hyphens=False)


def _table(reports: dict[str, Report]) -> str:
    heads = [""]
    for name, report in reports.items():
        store = report.store.partition(" at ")[0] + (", empty file" if name == "sqlite-empty" else "")
        heads.append(f"{store} (floor {_row(report, FLOOR).median:,.0f} µs, n = {report.steps:,})")
    rows = [
        [text, *(f"{_row(report, name).floors:.2f}" for report in reports.values())] for name, text in _KINDS.items()
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *rows))


def _row(report: Report, name: str) -> Any:
    return next(row for row in report.rows if row.name == name)


def _scale(found: dict[str, Any]) -> str:
    shares, keys, memory = found["processes"], found["keys"], found["memory"]
    raw = shares["floor_steps"]
    return _paragraph(f"""
        Eight processes on one SQLite file reach {shares["part_of_floor"]:.2f} of what eight raw writers do, of whom one makes
        {max(raw) / sum(raw):.0%} of the writes; here the slowest reaches {shares["slowest_by_mean"]:.2f} of the mean, and none
        sees "database is locked". With {keys["keys"]:,} keys in the file, a step costs {keys["executed"]:.2f} and a skipped one
        {keys["skipped"]:.2f} times what it does with 1,000. A run of {memory["steps"]:,} steps over a generator peaks at
        {memory["peak_mib"]:.0f} MiB.
    """)


def _granularity(found: dict[str, Any]) -> str:
    trials = [Trial(**trial) for trial in found["trials"]]
    worst = max((trial for trial in trials if trial.mode == "progress"), key=lambda trial: trial.redone)
    redone = max(trial.redone for trial in trials if trial.mode == "durastore")
    return _paragraph(f"""
        How often to save: {trials[0].steps:,} steps of {found["step"] * 1000:g} ms, the worker killed at the end of step
        {found["kill_at"]}. A loop that saves every {worst.saved_every} steps does {worst.redone} again; durastore does {redone},
        the one in doubt, however often it saves, and pays a write for each step. Where a step is dearer than a write (a model's
        answer is, by far), that is the better bargain. By Young and Daly the plain loop would save every
        {found["young_daly"]} steps here.
    """)


def insert(page: str, text: str) -> str:
    """The page with the text between its markers. Raises `ValueError` when they are missing."""
    return matrix.insert(page, text, BEGIN, END)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--plots", type=Path, required=True)
    given = parser.parse_args()
    page = given.into.read_text(encoding="utf-8")
    given.into.write_text(insert(page, section(given.folder)), encoding="utf-8")
    for name, plot in plots(given.folder).items():
        (given.plots / name).write_text(plot, encoding="utf-8")


if __name__ == "__main__":
    main()
