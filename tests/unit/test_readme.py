"""The README: its snippets run as written, and say what they say."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
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


def commands() -> list[str]:
    """The durastore commands of the console blocks, without prompt and comment."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    found = [re.sub(r"\s+#.*$", "", line).removeprefix("$ ") for line in lines if line.startswith("$ durastore ")]
    return [line for line in found if not line.startswith("durastore conformance")]


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
