"""Python programs with dependencies that clash with ours: each in a virtual environment of its own, built once and kept.

They lie in ``$XDG_CACHE_HOME/durastore/emulators``, by program, version and Python version; processes build one after the other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from durastore._emulators.answers import EmulatorError

__all__ = ["built", "environment"]

_MARK = "complete"
BUILD_MAX = 600
"""Seconds for pip."""


def environment(name: str, requirements: Sequence[str]) -> Path:
    """The Python of a virtual environment that holds `requirements`, built now if it has to be.

    Raises `EmulatorError` when it can't be built, with what pip said.
    """
    folder = _folder(name)
    if not built(name):
        with _lock(folder.with_name(f"{folder.name}.lock")):
            if not built(name):
                _build(folder, requirements)
    return _python(folder)


def built(name: str) -> bool:
    """Is it there already, and the Python it was built with too?"""
    folder = _folder(name)
    return (folder / _MARK).exists() and _python(folder).exists()


def _folder(name: str) -> Path:
    return _cache() / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"


def _cache() -> Path:
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "durastore" / "emulators"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that is not there, or not ours to write
        wanted = Path(tempfile.gettempdir()) / f"durastore-cache-{os.getuid()}"
        wanted.mkdir(mode=0o700, exist_ok=True)
    return wanted


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path, requirements: Sequence[str]) -> None:
    sys.stderr.write(f"durastore: building {folder} ({', '.join(requirements)}), once\n")
    sys.stderr.flush()
    shutil.rmtree(folder, ignore_errors=True)
    base = Path(sys.executable).resolve()  # not a virtual environment's: it may be gone tomorrow
    _run(str(base), "-m", "venv", str(folder))
    _run(str(_python(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    (folder / _MARK).touch()


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_MAX, check=False)  # noqa: S603  ours
    except subprocess.TimeoutExpired:
        raise EmulatorError(f"{' '.join(command)} took more than {BUILD_MAX} s") from None
    if done.returncode:
        raise EmulatorError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
