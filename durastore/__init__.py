"""durastore keeps long-running agents and jobs alive across sandbox recycling.

Progress and the results of side effects live in a store outside the sandbox; every side effect runs under an idempotency key
in three phases, claim, execute, commit, and is never repeated on resume.
"""

from __future__ import annotations

from typing import Any

from durastore.agent import Summary, run_agent
from durastore.checkpoint import Checkpoint, ManualClaim, Position
from durastore.claims import Claim, current
from durastore.codec import Codec, EncryptingCodec, JSONCodec
from durastore.errors import (
    AwaitTimeout,
    ClaimLost,
    ConfigError,
    DurastoreError,
    FingerprintMismatch,
    InDoubt,
    InvalidKey,
    PayloadError,
    SchemaError,
    StoreUnavailable,
    TooManyAttempts,
)
from durastore.keys import content_key
from durastore.stats import Stats
from durastore.store import Store, open  # noqa: A004  durastore.open is the name that users know
from durastore.terms import Found, NotFound, Outcome, Unknown
from durastore.views import Progress, Record

__all__ = [
    "AwaitTimeout",
    "Checkpoint",
    "Claim",
    "ClaimLost",
    "Codec",
    "ConfigError",
    "DurastoreError",
    "EncryptingCodec",
    "FingerprintMismatch",
    "Found",
    "InDoubt",
    "InvalidKey",
    "JSONCodec",
    "ManualClaim",
    "NotFound",
    "Outcome",
    "PayloadError",
    "Position",
    "Progress",
    "Record",
    "SchemaError",
    "Stats",
    "Store",
    "StoreUnavailable",
    "Summary",
    "TooManyAttempts",
    "Unknown",
    "content_key",
    "current",
    "open",
    "run_agent",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """``durastore.aio`` without an import of its own, and without its cost for those who never use it."""
    if name == "aio":
        import importlib

        return importlib.import_module("durastore.aio")
    raise AttributeError(f"module 'durastore' has no attribute {name!r}")
