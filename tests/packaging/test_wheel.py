"""The wheel: what is in it, and that it works in an empty environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "durastore",
    "durastore_pytest",
    "durastore_sqlite",
    "durastore_cloudsql",
    "durastore_firestore",
    "durastore_dynamodb",
}
HEAVY = (
    "sqlalchemy",
    "boto3",
    "botocore",
    "google",
    "grpc",
    "psycopg",
    "pymysql",
    "click",
    "rich",
    "tenacity",
    "pydantic",
    "pytest",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it asks for, nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, with_pip=True)
    interpreter = folder / "bin" / "python"
    subprocess.run([interpreter, "-m", "pip", "install", "-q", str(wheel)], check=True, timeout=600)
    return interpreter


def run(python: Path, *command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DURASTORE", "PYTHON"))}
    return subprocess.run(
        [python, *command], cwd=cwd, env=clean | env, capture_output=True, text=True, timeout=120, check=False
    )


def test_top_level_names(wheel: Path) -> None:
    """One wheel with uniquely named packages, and neither tests nor a package named `backends`."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in tops if not name.endswith(".dist-info")} == PACKAGES


def test_data_files(wheel: Path) -> None:
    """Statements, the typing marker and the licence travel along."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "durastore/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    for package in ("durastore_sqlite", "durastore_cloudsql"):
        on_disk = {str(path.relative_to(ROOT / "backends")) for path in (ROOT / "backends" / package).rglob("*.sql")}
        assert on_disk, f"{package} keeps its statements in .sql files"
        assert on_disk <= set(names)


def test_smoke(python: Path, tmp_path: Path) -> None:
    """A run in one process is resumed in the next."""
    program = (
        "import durastore, json\n"
        "with durastore.open('sqlite:///agent.db') as store:\n"
        "    summary = durastore.run_agent(range(5), store.checkpoint('run'), lambda item: item * 2)\n"
        "    print(json.dumps([summary.processed, summary.executed]))\n"
    )
    first, second = (json.loads(run(python, "-c", program, cwd=tmp_path).stdout) for _ in range(2))
    assert (first, second) == ([5, 5], [5, 0])


def test_command(python: Path, tmp_path: Path) -> None:
    """The command is installed, and a replay prints what the first run printed."""
    command = str(python.parent / "durastore")
    for _ in range(2):
        done = run(Path(command), "once", "greet", "--url", "sqlite:///cli.db", "--", "echo", "hello", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


@pytest.mark.parametrize(
    ("scheme", "extra"),
    [
        ("postgresql", "postgresql"),
        ("mysql", "mysql"),
        ("firestore", "firestore"),
        ("dynamodb", "dynamodb"),
        ("cloudsql+mysql", "cloudsql"),
    ],
)
def test_missing_extra(python: Path, tmp_path: Path, scheme: str, extra: str) -> None:
    """A store whose driver is not installed says in one line what to install."""
    command = str(python.parent / "durastore")
    done = run(Path(command), "runs", "--url", f"{scheme}://somewhere/else", cwd=tmp_path)
    assert done.returncode != 0
    assert f"pip install 'durastore[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_import_is_light(python: Path, tmp_path: Path) -> None:
    """`import durastore` loads no SDK, no command line and no test tool."""
    program = "import durastore, json, sys; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(run(python, "-c", program, cwd=tmp_path).stdout)
    assert not [name for name in loaded if name.partition(".")[0] in HEAVY]
