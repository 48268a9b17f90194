"""The inputs of `map`: the lines of a file or of a stream, one at a time, however many there are.

A line ends with LF or CR LF, the last one at the end of the input. Empty lines are passed over. A line is bytes: NUL and what is
no UTF-8 are kept.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, overload

from durastore.errors import ConfigError

__all__ = ["FileLines", "Lines", "StreamLines", "opened"]


class Numbers:
    """Which line of the input a step is, with eight bytes of memory for each empty line."""

    def __init__(self) -> None:
        self._empty = array("q")

    def empty(self, step: int) -> None:
        """An empty line comes before this step's."""
        self._empty.append(step)

    def of(self, step: int) -> int:
        """The number of a step's line, from 1."""
        return step + 1 + bisect_right(self._empty, step)


def content(raw: bytes) -> bytes:
    """A line without its end."""
    return raw.removesuffix(b"\n").removesuffix(b"\r")


class FileLines(Sequence[bytes]):
    """The lines of a regular file, by number, with eight bytes of memory for each. Safe to read from many threads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._fd = file.fileno()
        self._starts = array("q")
        self.numbers = Numbers()
        self._end = 0
        for raw in file:
            if content(raw):
                self._starts.append(self._end)
            else:
                self.numbers.empty(len(self._starts))
            self._end += len(raw)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self._read(step) for step in range(*index.indices(len(self)))]
        return self._read(range(len(self))[index])

    def _read(self, step: int) -> bytes:
        start = self._starts[step]
        end = self._starts[step + 1] if step + 1 < len(self._starts) else self._end
        raw = _read_all(self._fd, end - start, start)
        if len(raw) < end - start:
            raise ConfigError(f"the input became shorter while it was read: line {self.numbers.of(step)} is gone")
        return content(raw.split(b"\n", 1)[0])


def _read_all(fd: int, size: int, offset: int) -> bytes:
    """As many bytes as there are, up to `size`: one read gives at most 2 GiB."""
    raw = b""
    while len(raw) < size and (more := os.pread(fd, size - len(raw), offset + len(raw))):
        raw = raw + more if raw else more
    return raw


class StreamLines:
    """The lines of a stream, once, as they come."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.numbers = Numbers()

    def __iter__(self) -> Iterator[bytes]:
        step = 0
        for raw in self._file:
            line = content(raw)
            if line:
                yield line
                step += 1
            else:
                self.numbers.empty(step)


Lines = FileLines | StreamLines


@contextmanager
def opened(path: str) -> Iterator[Lines]:
    """The lines of a file, or of stdin for ``-``; a pipe or a device counts as a stream. Raises `ConfigError`."""
    import stat

    if path == "-":
        yield StreamLines(sys.stdin.buffer)
        return
    try:
        file = open(path, "rb")  # noqa: PTH123, SIM115  any name that the shell gives; closed below
    except OSError as exc:
        raise ConfigError(f"cannot read {path!r}: {exc.strerror}") from None
    with file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        yield FileLines(file) if regular else StreamLines(file)
