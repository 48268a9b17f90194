"""Exit codes, and how an error becomes one line on stderr and one of them."""

from __future__ import annotations

import sys
from enum import IntEnum

from durastore import errors
from durastore.cli.escaping import visible

__all__ = ["LEGEND", "Exit", "Interrupted", "code_of", "complain", "tell"]


class Exit(IntEnum):
    """What the shell gets. ``once`` returns its command's own code, whatever that is, and these for durastore's own errors."""

    OK = 0
    FAILED = 1
    """A command or a step failed, `doctor` found something, or there is no such key or run."""
    USAGE = 2
    """A wrong option, URL or key; an extra or a right that is missing."""
    IN_DOUBT = 3
    HELD = 4
    """Another holder is alive and was not done in time."""
    UNAVAILABLE = 5
    SCHEMA = 6
    """The store is not set up, or set up by another version."""
    LOST = 7
    """Somebody else took over while the command ran."""
    MISMATCH = 8
    """The key is known for other inputs."""
    PAYLOAD = 9
    """The effect was done, but its result is too large, damaged or lost."""
    ATTEMPTS = 10
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    """128 and the signal's number: 130 for Ctrl-C, 143 for SIGTERM."""
    PIPE = 141
    """Whoever read our output has gone."""


_CODES: dict[type[BaseException], Exit] = {
    errors.InDoubt: Exit.IN_DOUBT,
    errors.AwaitTimeout: Exit.HELD,
    errors.StoreUnavailable: Exit.UNAVAILABLE,
    errors.SchemaError: Exit.SCHEMA,
    errors.ClaimLost: Exit.LOST,
    errors.FingerprintMismatch: Exit.MISMATCH,
    errors.PayloadError: Exit.PAYLOAD,
    errors.TooManyAttempts: Exit.ATTEMPTS,
    errors.ConfigError: Exit.USAGE,
    errors.InvalidKey: Exit.USAGE,
}

LEGEND = """\b
Exit codes:
  0 done                        6 the store is not set up (durastore init)
  1 failed, or something found  7 the claim was lost to another holder
  2 wrong usage or settings     8 the key is known for other inputs
  3 in doubt                    9 the result is lost, damaged or too large
  4 held by another             10 too many attempts
  5 the store is out of reach   130 Ctrl-C (128 + the signal)"""


class Interrupted(BaseException):
    """A signal asked this process to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def code_of(error: BaseException) -> int:
    """The exit code for an error."""
    if isinstance(error, Interrupted):
        return 128 + error.signum
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), Exit.FAILED)


def complain(message: str) -> None:
    """One line about an error, on stderr."""
    tell(f"error: {message}")


def tell(message: str) -> None:
    """One line for people, on stderr, whatever the message holds; silent when nobody listens any more."""
    try:
        sys.stderr.write(f"durastore: {visible(message)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
