"""``durastore bench``: what it prints, and that it leaves nothing behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from durastore.bench.measuring import FLOOR, Report
from durastore.cli.exits import Exit

from .conftest import Shell, eventually


def test_report(shell: Shell) -> None:
    """Each kind has as many samples as were asked for; the floor is one floor; the file says what stdout says."""
    found = shell.json("bench", "--steps", "50", "--cold", "--replayed", "40", "--report", "bench.json")
    report = Report.from_json(found)
    rows = {row.name: row for row in report.rows}
    assert (report.steps, report.replayed, report.warmed_up) == (50, 40, False)
    assert rows[FLOOR].floors == 1
    assert rows["run_once, executed"].samples == rows["run_agent over a list"].samples == 50
    assert all(0 < row.median <= row.p95 for row in report.rows)
    assert rows["run_once, skipped"].median < rows["run_once, executed"].median
    assert json.loads(Path("bench.json").read_text()) == found


def test_table(shell: Shell) -> None:
    """People get a table, and hear what is under way."""
    result = shell("bench", "--steps", "25", "--cold", "--replayed", "10")
    assert "run_once, executed" in result.stdout
    assert "SQLite" in result.stdout
    assert "durastore: measuring\n" in result.stderr


def test_a_file_of_ones_own_is_left_alone(shell: Shell) -> None:
    """On a SQLite URL it works beside that file, and takes its own away."""
    with shell.store() as store:
        store.checkpoint("mine").run_once("key", lambda: 1)
    before = sorted(Path().iterdir())
    shell("bench", "--url", shell.url, "--steps", "25", "--cold", "--replayed", "10")
    assert sorted(Path().iterdir()) == before
    with shell.store() as store:
        assert [record.key for record in store.records()] == ["key"]


def test_interrupted(shell: Shell) -> None:
    """Ctrl-C ends it with one line and 130, and nothing is left."""
    process = shell.start("bench", "--url", shell.url, "--steps", "100000", "--cold")
    assert process.stderr is not None
    eventually(lambda: b"measuring" in process.stderr.readline(), "it measures")  # type: ignore[union-attr]  # just looked
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (Exit.INTERRUPTED, b"durastore: interrupted\n")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory://", "no raw driver to compare with"),
        ("sqlite:///nowhere/at/all.db", "does not exist"),
        ("sqlite://", "names no file"),
        ("nonsense", "not a store URL"),
        ("redis://x", "no raw driver"),
    ],
)
def test_bad_urls(shell: Shell, url: str, says: str) -> None:
    """One line that says what to write instead."""
    for command in (("bench",), ("bench", "granularity")):
        result = shell(*command, "--url", url, code=Exit.USAGE)
        assert says in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert list(Path().iterdir()) == []


def test_bad_options(shell: Shell) -> None:
    """What makes no sense is said before any work."""
    assert "below the last step" in shell("bench", "granularity", "--kill-at", "999", code=Exit.USAGE).stderr
    assert "no duration" in shell("bench", "granularity", "--step", "soon", code=Exit.USAGE).stderr
    assert "not writable" in shell("bench", "--report", "no/such/folder/x.json", code=Exit.USAGE).stderr
    assert "not writable" in shell("bench", "granularity", "--plot", "no/such/x.svg", code=Exit.USAGE).stderr


def test_granularity(shell: Shell) -> None:
    """The worker that saves every n steps does again what came since; durastore does the one step again that was in doubt."""
    found = json.loads(
        shell("bench", "granularity", "--steps", "60", "--kill-at", "37", "--json", "--plot", "plot.svg").stdout
    )
    redone = {(trial["mode"], trial["saved_every"]): trial["redone"] for trial in found["trials"]}
    assert redone == {
        **{("progress", every): 37 - 37 // every * every + 1 for every in (1, 5, 10, 25, 50)},
        **dict.fromkeys([("durastore", every) for every in (1, 5, 10, 25, 50, 0)], 1),
    }
    assert found["young_daly"] >= 1
    words = "".join(ET.fromstring(Path("plot.svg").read_text()).itertext())
    assert "durastore" in words
    assert "progress only" in words


def test_granularity_by_the_groups_url(shell: Shell) -> None:
    """--url counts before the subcommand as well as after it."""
    result = shell("bench", "--url", "memory://", "granularity", code=Exit.USAGE)
    assert "no raw driver" in result.stderr
