"""The two answers to "can this be run here?", and the errors."""

from __future__ import annotations

from dataclasses import dataclass

from durastore.errors import DurastoreError

__all__ = ["Available", "EmulatorError", "EmulatorNotRun", "NotRun"]


@dataclass(frozen=True, slots=True)
class Available:
    """It can be started, or is there already."""

    how: str
    """``url``, ``docker`` or ``local``."""
    what: str
    """For people: the program and where it comes from."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class NotRun:
    """It can't be run on this machine."""

    reason: str
    hint: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.reason}; {self.hint}"


class EmulatorError(DurastoreError):
    """An emulator was there but did not start, did not stop, or can't do what was asked of it."""


class EmulatorNotRun(EmulatorError):
    """There is no such emulator on this machine: `why` says what is missing and how to get it."""

    def __init__(self, name: str, why: NotRun) -> None:
        super().__init__(f"{name}: not run: {why}")
        self.why = why
