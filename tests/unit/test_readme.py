"""The README: its snippets run as written, and say what they say."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import shared

README = (Path(__file__).parents[2] / "README.md").read_text()
ELSEWHERE = "firestore://PROJECT/DATABASE"
COMMAND = Path(sys.executable).parent / "durastore"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_python_blocks(tmp_path: Path) -> None:
    """Every Python block runs, one after the other, twice: the second time as a resume."""
    program = "\n".join(blocks("python"))
    fresh = program.replace('assert (status, replay) == ("executed", "skipped")', 'assert replay == "skipped"')
    for text in (program, fresh):
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr


def test_moving_to_another_store(tmp_path: Path) -> None:
    """The commands as written, to a real Firestore emulator: what ran on SQLite is replayed there."""
    program = "\n".join(blocks("python"))
    emulator = shared("firestore")
    url = f"{emulator}{'&' if '?' in emulator else '?'}namespace=readme-{os.urandom(6).hex()}"
    lines = re.findall(rf"^\$ (durastore .*{ELSEWHERE}.*?)\s+#", README, re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["copy", "copy", "runs"]
    _run_there(tmp_path, sys.executable, "-c", program)
    shown = [_run_there(tmp_path, "bash", "-c", line.replace(ELSEWHERE, f"'{url}'")) for line in lines]
    assert "would be new" in shown[0]
    assert re.search(r"^verified +true$", shown[1], re.MULTILINE)
    assert "invoices-2026-06" in shown[2]
    there = program.replace('"sqlite:///agent.db"', repr(url)).replace(
        '("executed", "skipped")', '("skipped", "skipped")'
    )
    assert there.count(url) == 1
    _run_there(tmp_path, sys.executable, "-c", there)


def _run_there(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def commands() -> list[str]:
    """The durastore commands of the console blocks, without prompt and comment."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    found = [re.sub(r"\s+#.*$", "", line).removeprefix("$ ") for line in lines if line.startswith("$ durastore ")]
    return [line for line in found if not line.startswith("durastore conformance") and ELSEWHERE not in line]


def test_console_blocks(tmp_path: Path) -> None:
    """Every command of the README works as written, in a folder that has the files it names and one key in doubt."""
    slow = tmp_path / "slow.sh"
    slow.write_text("#!/bin/sh\necho done $1\n")
    deploy = tmp_path / "deploy.sh"
    deploy.write_text("#!/bin/sh\necho deployed\n")
    for script in (slow, deploy):
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "inputs.txt").write_text("one\ntwo\n")
    url = f"sqlite:///{tmp_path}/agent.db"
    for line in commands():
        if line.startswith(("durastore resolve", "durastore record")):
            _leave_in_doubt(url, "charge:order-17")
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=os.environ | {"DURASTORE_URL": url, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert len(commands()) >= 7


def _leave_in_doubt(url: str, key: str) -> None:
    import durastore

    def fail() -> None:
        raise ValueError("the connection broke")

    with durastore.open(url) as store:
        store.forget(key, force=True)
        with pytest.raises(ValueError, match="broke"):
            store.checkpoint("invoices").run_once(key, fail, in_doubt="halt")
