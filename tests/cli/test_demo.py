"""``durastore demo``: the schedule, the counting, and one real run with its promises."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from durastore.demo import rows
from durastore.demo.running import Row, _count, broken
from durastore.demo.schedule import draw
from durastore.demo.worker import MODES, sources
from durastore.demo.world import World, ask, deliver
from durastore.urls import parse


def test_schedule() -> None:
    """A seed reproduces a schedule; every point comes up; its kills lie within the steps."""
    assert draw(7, 12, 300) == draw(7, 12, 300) != draw(8, 12, 300)
    for seed in range(50):
        schedule = draw(seed, 12, 40)
        assert Counter(kill.point for kill in schedule) == dict.fromkeys(("begun", "sent", "done", "stored"), 3)
        assert all(kill.effect >= 1 for kill in schedule)
        assert sum(kill.effect for kill in schedule) < 40


def test_sources() -> None:
    """Real input: hundreds of files of this interpreter, the same at every call."""
    files = sources(10_000)
    assert len(files) > 300
    assert files == sorted(files)
    assert sources(5) == files[:5]


def test_world(tmp_path: Path) -> None:
    """The world counts every delivery, remembers the first, and ends with whom it serves."""
    with World(tmp_path / "world.jsonl") as world:
        assert ask(world.port, "a/b c") is None
        for lines in (1, 2):
            deliver(world.port, {"key": "a/b c", "lines": lines, "digest": "x"})
        assert ask(world.port, "a/b c")["lines"] == 1
        assert world.deliveries() == ["a/b c", "a/b c"]


def test_rows_of_dynamodb(dynamodb_url: str) -> None:
    """Deliveries as transact items: each counts, also a second one of a key, and other runs' do not."""
    import boto3

    parsed = parse(dynamodb_url)
    endpoint = parsed.options.get("endpoint_url")
    client = boto3.client("dynamodb", region_name=parsed.options.get("region", "us-east-1"), endpoint_url=endpoint,
                          aws_access_key_id="key", aws_secret_access_key="secret")  # fmt: skip
    store: Any = SimpleNamespace(backend=SimpleNamespace(scheme="dynamodb", client=client))
    kind = rows._kind(store)
    run = f"run-{time.time_ns()}"
    for _ in range(2):
        kind.prepare(store, [])
    tx: list[Any] = []
    for name, key, token in ((run, "a/b.py", 1), (run, "a/b.py", 2), (run, "c.py", 1), ("other", "d.py", 1)):
        kind.write(tx, name, key, token)
    client.transact_write_items(TransactItems=tx)
    assert sorted(kind.keys(store, run, [])) == ["a/b.py", "a/b.py", "c.py"]


def test_count() -> None:
    """Duplicates, losses and what was done again are told apart."""
    row = _count("rerun", 3, 2, ["a", "b", "a"], 5, 1.0)
    assert (row.deliveries, row.duplicates, row.lost, row.redone) == (3, 1, 1, 2)


@pytest.mark.parametrize(
    ("mode", "duplicates", "lost", "fault"),
    [("naive", 9, 0, False), ("progress", 9, 0, False), ("rerun", 2, 0, False), ("rerun", 3, 0, True), ("probe", 1, 0, True),
     ("transact", 1, 0, True), ("probe", 0, 1, True), ("transact", 0, 0, False)],
)  # fmt: skip
def test_promises(mode: str, duplicates: int, lost: int, *, fault: bool) -> None:
    """The demo fails when a promise is broken, and only then."""
    row = Row(mode, 10, 2, 10, duplicates, lost, 0, 1.0)
    assert (broken(row) is not None) is fault


def run(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "durastore", "demo", *options]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_for_real(tmp_path: Path) -> None:
    """Kills at every point, on the embedded SQLite: JSON on stdout and nothing else, and every promise kept."""
    done = run("--json", "--seed", "3", "--limit", "24", "--kills", "4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    rows = {row["mode"]: row for row in answer["rows"]}
    assert answer["seed"] == 3
    assert list(rows) == list(MODES)
    assert all(
        set(row) == {"mode", "steps", "kills", "deliveries", "duplicates", "lost", "redone", "seconds"}
        for row in rows.values()
    )
    assert all((row["steps"], row["kills"], row["lost"]) == (24, 4, 0) for row in rows.values())
    assert rows["naive"]["duplicates"] > rows["rerun"]["duplicates"]
    assert rows["rerun"]["duplicates"] <= 4
    assert (rows["probe"]["duplicates"], rows["transact"]["duplicates"]) == (0, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [(("--url", "memory://"), 2, "try sqlite:///demo.db"), (("--kills", "30", "--limit", "30"), 2, "more steps than kills"),
     (("--url", "nonsense"), 2, "not a store URL")],
)  # fmt: skip
def test_bad_input(options: tuple[str, ...], code: int, words: str, tmp_path: Path) -> None:
    """What cannot be shown is told in one line."""
    done = run(*options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped(number: signal.Signals, tmp_path: Path) -> None:
    """A signal in mid-run: one line, the signal's exit code, and neither a process nor a file stays behind."""
    command = [Path(sys.executable).parent / "durastore", "demo", "--seed", "3"]
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        while "progress" not in demo.stderr.readline():
            pass
        [folder] = tmp_path.iterdir()
        demo.send_signal(number)
        out, errors = demo.communicate(timeout=60)
    assert (demo.returncode, out, errors) == (128 + number, "", "durastore: interrupted\n")
    assert list(tmp_path.iterdir()) == []
    running = subprocess.run(["ps", "-Ao", "args"], capture_output=True, text=True, check=True).stdout
    assert str(folder) not in running
