"""Rows as the contract's dataclasses, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durastore.contract import ClaimRequest, Payload, StoredProgress, StoredRecord
from durastore.soundness import sound

__all__ = [
    "COLUMNS",
    "NO_PROGRESS",
    "NO_REQUEST",
    "bytes_of",
    "progress_values",
    "record_of",
    "record_values",
    "request_values",
    "run_of",
]

COLUMNS = (
    "key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation, fingerprint, error, result, blob, "
    "retain_until, taken_from, created_at, updated_at"
)
NO_PROGRESS: dict[str, None] = dict.fromkeys(("run", "step", "run_state", "run_blob"))
NO_REQUEST: dict[str, None] = dict.fromkeys(
    ("key", "run_id", "owner", "nonce", "lease", "takeover", "fingerprint", "incarnation")
)
Row = Sequence[Any]


@sound
def record_of(row: Row) -> StoredRecord:
    """A record from a row of `COLUMNS`."""
    result = None if row[12] is None else Payload(bytes_of(row[12]), row[13])
    return StoredRecord(*row[:12], result, *row[14:18])  # type: ignore[call-arg]  # mypy counts a slice as endless


@sound
def run_of(row: Row) -> StoredProgress:
    """A run from a row of its table."""
    run_id, step, data, blob, incarnation, updated_at = row
    return StoredProgress(
        run_id, step, None if data is None else Payload(bytes_of(data), blob), incarnation, updated_at
    )


def bytes_of(data: Any) -> bytes:
    """Whatever a driver takes for bytes; a number is none, although `bytes` would make so many of it."""
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def record_values(record: StoredRecord) -> dict[str, Any]:
    """The parameters of a whole record."""
    names = [name.strip() for name in COLUMNS.split(",") if name.strip() not in ("result", "blob")]
    result = record.result
    return {name: getattr(record, name) for name in names} | {
        "result": None if result is None else result.data,
        "blob": None if result is None else result.blob,
    }


def request_values(request: ClaimRequest) -> dict[str, Any]:
    """The parameters of a claim."""
    return {
        "key": request.key,
        "run_id": request.run_id,
        "owner": request.owner,
        "nonce": request.nonce,
        "lease": request.lease,
        "takeover": request.takeover,
        "fingerprint": request.fingerprint,
        "incarnation": request.incarnation,
    }


def progress_values(progress: StoredProgress) -> dict[str, Any]:
    """The parameters of a run's progress."""
    state = progress.state
    return {
        "run": progress.run_id,
        "step": progress.step,
        "run_state": None if state is None else state.data,
        "run_blob": None if state is None else state.blob,
    }
