"""Runs the suite on a URL from a program or the command line, in a pytest process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from durastore import urls
from durastore.conformance.harness import preflight
from durastore.conformance.report import Report
from durastore.conformance.surface import Surface
from durastore.errors import ConfigError, StoreUnavailable

__all__ = ["Report", "run"]

_SUITE = "durastore.conformance.test_store"
_TAIL_CHARACTERS = 2000


def run(
    url: str,
    *,
    report: str | Path | Sequence[str | Path] | None = None,
    setup: bool = True,
    examples: int | None = None,
    surface: Surface | None = None,
    extra_args: Sequence[str] = (),
    output: IO[Any] | None = None,
) -> Report:
    """Run every clause on the store that a URL names.

    `report`: files to write, ``.txt``, ``.json`` or ``.md``. `setup`: set the store up first. `examples`: random programs of
    the model layer. `surface`: what the suite's programs use, ``"sync"`` or ``"async"`` (`durastore.aio`); by default what
    ``$DURASTORE_CONFORMANCE_SURFACE`` says, or the sync one. `extra_args` go to pytest; what they leave out makes the report
    "not conformant". `output`: where pytest writes its own progress (standard error by default).

    pytest runs in the current directory, without its configuration files and without other plugins. Raises `ConfigError` for a
    bad URL or file name, and where pytest or Hypothesis are missing; `StoreUnavailable` when the store does not answer.
    """
    _require("pytest", "hypothesis")
    files = [Path(file) for file in ([report] if isinstance(report, (str, Path)) else report or [])]
    _check_names(files)
    problem = preflight(url, setup=setup)
    if problem is not None:
        raise StoreUnavailable(problem)
    with TemporaryDirectory(prefix="durastore-") as folder:
        home = Path(folder)
        (home / "pytest.ini").write_text("[pytest]\n")
        found = home / "report.json"
        options = [option for file in [found, *files] for option in ("--durastore-report", str(file))]
        options += [] if setup else ["--durastore-no-setup"]
        options += [] if surface is None else ["--durastore-surface", surface]
        options += [] if examples is None else ["--durastore-examples", str(examples)]
        done = _pytest(url, home, [*options, *extra_args], output or sys.stderr)
        if not found.exists():
            return _void(url, done.returncode)
        return Report.from_json(found.read_text(encoding="utf-8"))


def _require(*modules: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ConfigError(f"the conformance suite needs {' and '.join(missing)}; run: pip install 'durastore[test]'")


def _check_names(files: Sequence[Path]) -> None:
    for file in files:
        if file.suffix not in (".txt", ".json", ".md"):
            raise ConfigError(f"a report's name ends in .txt, .json or .md, not {file.name!r}")


def _pytest(url: str, home: Path, options: Sequence[str], output: IO[Any]) -> subprocess.CompletedProcess[bytes]:
    """The URL goes by the environment, where no list of processes shows its password."""
    from durastore_pytest import URL_VARIABLE

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {URL_VARIABLE: url, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(home)}
    command = [sys.executable, "-m", "pytest", "-p", "durastore_pytest", "-p", "no:cacheprovider", "-q", "--tb=short"]
    command += ["-c", str(home / "pytest.ini"), "--rootdir", str(home), "--pyargs", _SUITE, *options]
    return subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)  # noqa: S603  ourselves


def _void(url: str, code: int) -> Report:
    parsed = urls.parse(url)
    about = {"store": parsed.scheme, "url": str(parsed)}
    return Report("TestStore", about, (), (f"pytest ended with exit code {code} before any report was written",))
