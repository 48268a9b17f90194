"""Every error durastore raises. One root, so that ``except DurastoreError`` catches them all.

Messages name the key, the holder and the next thing to do. They never hold a password or a payload.
"""

from __future__ import annotations

__all__ = [
    "AwaitTimeout",
    "ClaimLost",
    "ConfigError",
    "DurastoreError",
    "FingerprintMismatch",
    "InDoubt",
    "InvalidKey",
    "PayloadError",
    "SchemaError",
    "StoreUnavailable",
    "TooManyAttempts",
]


class DurastoreError(Exception):
    """The root of all errors of this package."""


class ConfigError(DurastoreError):
    """The URL, an option, an extra or a right is wrong: nothing a retry could mend."""


class InvalidKey(DurastoreError, ValueError):
    """A key or run id that no store takes, or parts that cannot be hashed stably."""


class PayloadError(DurastoreError):
    """A result or state that is too large, cannot be encoded, or is damaged in the store."""


class FingerprintMismatch(DurastoreError):
    """The key is known, but for other inputs: the caller reuses a key, or its inputs changed between resumes."""


class ClaimLost(DurastoreError):
    """The claim has been replaced, given back or resolved by somebody else; nothing of ours was written."""


class InDoubt(DurastoreError):
    """An earlier attempt may or may not have had its effect, and nobody here may run it again."""


class AwaitTimeout(DurastoreError, TimeoutError):
    """Another holder is alive and was not done within ``wait`` seconds."""


class TooManyAttempts(DurastoreError):
    """The key was granted more than ``max_attempts`` times without a commit."""


class StoreUnavailable(DurastoreError):
    """The store could not be reached, or refused for a passing reason, until the deadline. Retryable."""


class SchemaError(DurastoreError):
    """The store lacks durastore's tables, or holds those of another version."""
