"""The command line in a folder and a SQLite file of its own: in this process where that is enough, in real ones where not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import durastore
from durastore.cli import cli

PATIENCE = 20.0
"""Seconds after which a test gives up on something that ought to happen soon."""


def eventually(happened: Callable[[], Any], what: str) -> Any:
    """Wait until it is so."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = happened()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {PATIENCE} s: {what}")


def _runner() -> CliRunner:
    """One that keeps stdout and stderr apart: by default since Click 8.2, on demand before."""
    apart: Any = CliRunner
    return apart(mix_stderr=False) if "mix_stderr" in signature(CliRunner).parameters else apart()


RUNNER = _runner()


class Shell:
    """A folder with a store, and the command line in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/jobs.db"
        self.env = {**os.environ, "DURASTORE_URL": self.url, "COLUMNS": "200"}
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *args: str | Path, code: int | None = 0, stdin: bytes | None = None) -> Result:
        """Run it in this process, and expect an exit code."""
        result = RUNNER.invoke(cli, [str(arg) for arg in args], input=stdin, prog_name="durastore")
        assert code is None or result.exit_code == code, (
            args,
            result.exit_code,
            result.stdout,
            result.stderr,
            result.exception,
        )
        return result

    def json(self, *args: str | Path, code: int = 0, stdin: bytes | None = None) -> Any:
        """Its one JSON document."""
        return json.loads(self(args[0], "--json", *args[1:], code=code, stdin=stdin).stdout)

    def rows(self, *args: str | Path) -> list[Any]:
        """Its JSON lines."""
        return [json.loads(line) for line in self(*args, "--json").stdout.splitlines()]

    def start(self, *args: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        """Start a real process."""
        defaults: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": self.folder,
            "env": self.env,
        }
        command = [sys.executable, "-m", "durastore.cli", *map(str, args)]
        process = subprocess.Popen(command, **(defaults | options))
        self.started.append(process)
        return process

    def run(self, *args: str | Path, code: int = 0, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run a real process to its end, and expect an exit code."""
        process = self.start(*args, **options)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, (args, process.returncode, out, err)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def store(self) -> durastore.Store:
        """The store that the commands work on."""
        return durastore.open(self.url)

    def script(self, name: str, body: str) -> Path:
        """A shell script in the folder."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def file(self, name: str, content: str | bytes) -> Path:
        """A file in the folder."""
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def lines(self, name: str) -> list[str]:
        """The lines of a file, none when it is not there."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def await_line(self, name: str, line: str) -> None:
        """Wait for a line in a file."""
        eventually(lambda: line in self.lines(name), f"{line!r} in {name}")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    made = Shell(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DURASTORE_URL", made.url)
    monkeypatch.setenv("COLUMNS", "200")
    yield made
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True
    return state != "Z"
