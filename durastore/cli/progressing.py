"""Where a long command is, on stderr."""

from __future__ import annotations

import sys

from durastore.cli.exits import tell

__all__ = ["Progress"]


class Progress:
    """One line that is written over on a terminal; elsewhere, a line for each new part of the work. A context manager."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._part = ""

    def __call__(self, part: str, text: str = "") -> None:
        """`part` is what is under way, `text` how far it is."""
        if self._live:
            sys.stderr.write(f"\r\x1b[K{part}{text}")
            sys.stderr.flush()
        elif part != self._part:
            tell(part)
        self._part = part

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
