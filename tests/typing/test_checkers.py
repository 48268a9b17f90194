"""The public types, as two type checkers see them: what they must know, and what they must refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = ("right.py", "wrong.py")


def _mypy(folder: Path) -> str:
    config = ["--config-file", os.devnull, "--strict", "--explicit-package-bases", "--hide-error-context"]
    cache = ["--cache-dir", str(folder / "mypy")]
    return _run(["mypy", *config, *cache, "--follow-imports", "silent", *(str(HERE / name) for name in FILES)])


def _pyright(folder: Path) -> str:
    """The build that brings its own Node: it downloads nothing."""
    project = folder / "pyrightconfig.json"
    project.write_text(
        json.dumps(
            {
                "include": [str(HERE / name) for name in FILES],
                "extraPaths": [str(ROOT), str(ROOT / "backends")],
                "typeCheckingMode": "standard",
                "pythonVersion": "3.10",
            }
        )
    )
    said = _run(["basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(project)])
    report = json.loads(said)
    assert report["summary"]["filesAnalyzed"] == len(FILES), said
    return "\n".join(
        f"{found['file']}:{found['range']['start']['line'] + 1}: error: {found['message']}"
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    )


def _run(command: list[str]) -> str:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "backends")])
    tool = str(Path(sys.executable).parent / command[0])
    done = subprocess.run(
        [tool, *command[1:]],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"  # errors were found, and nothing else went wrong
    return done.stdout


@pytest.mark.parametrize("checker", [_mypy, _pyright])
def test_types(checker, tmp_path: Path) -> None:
    """Each line that is marked is refused, and no other."""
    said = checker(tmp_path)
    found = {
        (Path(name).name, int(line))
        for name, line in re.findall(r"^(.*?\.py):(\d+)(?::\d+)?: error:", said, re.MULTILINE)
    }
    lines = (HERE / "wrong.py").read_text().splitlines()
    marked = {("wrong.py", number) for number, line in enumerate(lines, 1) if line.endswith("# WRONG")}
    assert len(marked) >= 10
    assert found == marked, said
