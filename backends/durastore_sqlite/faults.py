"""What SQLite's errors mean. By text, since Python 3.10 has no error codes; the texts are SQLite's own, and old."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import ExitStack
from pathlib import Path

from durastore.errors import ConfigError, DurastoreError, SchemaError, StoreUnavailable

__all__ = ["classify"]

_EFFECTIVE = os.access in os.supports_effective_ids


def classify(error: Exception, path: Path) -> DurastoreError | None:
    """As `Backend.classify`."""
    if not isinstance(error, sqlite3.Error):
        return None
    text, file = str(error), str(path)
    for words, kind, meaning in _MEANINGS:
        if any(word in text for word in words):
            return kind(f"{file}: {meaning} (SQLite: {text})")
    if "unable to open" in text:
        return _unopened(path, text)
    return None


def _unopened(path: Path, text: str) -> DurastoreError:
    if not path.exists():
        if path.parent.is_dir() and not os.access(path.parent, os.W_OK, effective_ids=_EFFECTIVE):
            return ConfigError(
                f"{path.parent}: no file can be made in this folder; look at its rights (SQLite: {text})"
            )
        return SchemaError(f"{path}: there is no such file; create it with: durastore init --url sqlite:///{path}")
    if _out_of_files():
        return StoreUnavailable(f"{path}: this process has too many files open; raise ulimit -n (SQLite: {text})")
    return ConfigError(
        f"{path}: the file, or its -wal beside it, cannot be opened; look at their rights (SQLite: {text})"
    )


def _out_of_files() -> bool:
    """Whether the system lets this process open no more: SQLite wants the file, its -wal and its -shm.

    Tried on another file: who closes SQLite's own drops the locks that other threads have on it.
    """
    try:
        with ExitStack() as opened:
            for _ in range(3):
                opened.enter_context(Path(os.devnull).open("rb"))
    except OSError as exc:
        return exc.errno in (errno.EMFILE, errno.ENFILE)
    return False


_MEANINGS: tuple[tuple[tuple[str, ...], type[DurastoreError], str], ...] = (
    (("locked",), StoreUnavailable, "another process holds the write lock"),
    (("disk is full",), StoreUnavailable, "the disk is full; make room, nothing that was committed is lost"),
    (
        ("no such table: durastore", "no such column"),
        SchemaError,
        "durastore's tables are missing; run: durastore init",
    ),
    (("readonly", "read-only"), ConfigError, "the file or its folder is read-only; look at their rights"),
    (
        ("malformed", "not a database", "corrupt"),
        SchemaError,
        "the file is damaged or no SQLite file; restore it from a backup",
    ),
    (("disk I/O",), StoreUnavailable, "the disk failed; a network file system cannot hold a SQLite file"),
)
