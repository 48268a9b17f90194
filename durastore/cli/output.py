"""``map --output``: the results of a whole run as JSON lines in input order, read from the store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, islice
from typing import IO, Any

from durastore.cli.printing import json_line
from durastore.contract import StoredRecord
from durastore.errors import ConfigError, PayloadError
from durastore.store import Store

__all__ = ["check_writable", "destination", "write_results"]

BATCH = 64
"""Keys that are read at once."""


def check_writable(path: str) -> None:
    """Raise `ConfigError` when the results can't go there: better now than after all the work."""
    folder = os.path.dirname(os.path.realpath(path))  # noqa: PTH120  the path is a string from the shell
    if path != "-" and not (os.path.isdir(folder) and os.access(folder, os.W_OK)):  # noqa: PTH112
        raise ConfigError(f"cannot write {path!r}: its folder is not there, or not writable")
    if path != "-" and (os.path.isdir(path) or os.path.basename(path) in ("", ".", "..")):  # noqa: PTH112, PTH119
        raise ConfigError(f"cannot write {path!r}: it is a folder")


def write_results(
    path: str, store: Store, steps: int, key: Callable[[int], str], line_number: Callable[[int], int]
) -> int:
    """Write one JSON document for each step; a file appears whole or not at all. Returns how many have no result."""
    missing = 0
    with destination(path) as write:
        for step, name, record in _records(store, steps, key):
            document = _document(store, record)
            missing += "state" in document or "error" in document
            write({"line": line_number(step), "key": name, **document})
    return missing


def _records(store: Store, steps: int, key: Callable[[int], str]) -> Iterator[tuple[int, str, StoredRecord | None]]:
    remaining = iter(range(steps))
    while batch := list(islice(remaining, BATCH)):
        names = [key(step) for step in batch]
        found: Sequence[StoredRecord | None] = store.call("read", store.backend.read, names)
        yield from zip(batch, names, found, strict=True)


def _document(store: Store, record: StoredRecord | None) -> dict[str, Any]:
    if record is None:
        return {"state": "absent"}
    if record.state != "committed" or record.result is None:
        return {"state": record.state, "error": record.error}
    try:
        value = store.unpack(record.result)
    except PayloadError as exc:
        return {"state": record.state, "error": str(exc)}
    return value if isinstance(value, dict) and "exit_code" in value else {"result": value}


@contextmanager
def destination(path: str) -> Iterator[Callable[[Any], None]]:
    """Writes JSON documents, one a line; a file appears whole or not at all. ``-`` is stdout."""
    if path == "-":
        yield json_line
        return
    real = os.path.realpath(path)  # a link stays a link
    if os.path.exists(real) and not os.path.isfile(real):  # noqa: PTH110, PTH113  a pipe or a device
        with open(real, "w", encoding="ascii") as file:  # noqa: PTH123
            yield lambda value: _write(file, value)
        return
    with _replacing(real) as file:
        yield lambda value: _write(file, value)


def _write(file: IO[str], value: Any) -> None:
    file.write(json.dumps(value) + "\n")


@contextmanager
def _replacing(real: str) -> Iterator[IO[str]]:
    """A new file that takes the place of the old one, its rights kept, once it is whole and on disk."""
    temporary = _beside(real)
    try:
        with open(temporary, "x", encoding="ascii") as file:  # noqa: PTH123
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), os.stat(real).st_mode & 0o7777)  # noqa: PTH116
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, real)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def _beside(real: str) -> str:
    folder, name = os.path.split(real)
    return next(
        path
        for number in count()
        if not os.path.lexists(path := os.path.join(folder, f".{name[:200]}.{os.getpid()}.{number}"))  # noqa: PTH118
    )
