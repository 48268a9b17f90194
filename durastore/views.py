"""What `Store.record`, `Store.records` and `Store.runs` show: the stored things with times in seconds and values decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from durastore import rules
from durastore.clock import MICROSECONDS
from durastore.contract import Payload, RecordState, StoredProgress, StoredRecord

__all__ = ["Progress", "Record", "progress_view", "record_view"]

Unpack = Callable[[Payload], Any]


@dataclass(frozen=True, slots=True)
class Record:
    """One key as it stood when it was read. Times are seconds since the epoch, by the store's clock."""

    key: str
    run_id: str
    state: RecordState
    """``claimed`` (live), ``in_doubt`` (lapsed, or left so), ``abandoned`` (given back) or ``committed``."""
    token: int
    attempt: int
    owner: str
    lease: float | None
    """Seconds, None for a claim without a lease."""
    lease_left: float | None
    """Seconds until the claim lapses; None when it is not live."""
    error: str | None
    """What the last attempt raised."""
    fingerprint: str | None
    created_at: float
    updated_at: float
    retain_until: float | None
    _stored: StoredRecord = field(repr=False)
    _unpack: Unpack = field(repr=False, compare=False)

    @property
    def result(self) -> Any:
        """The decoded result; None for a key that is not committed. Raises `PayloadError` when it is lost or damaged."""
        return None if self._stored.result is None else self._unpack(self._stored.result)


@dataclass(frozen=True, slots=True)
class Progress:
    """A run's map as it stood when it was read."""

    run_id: str
    step: int
    updated_at: float
    incarnation: int
    _stored: StoredProgress = field(repr=False)
    _unpack: Unpack = field(repr=False, compare=False)

    @property
    def state(self) -> Any:
        """The decoded state, ``{}`` when none was saved. Raises `PayloadError` when it is damaged."""
        return {} if self._stored.state is None else self._unpack(self._stored.state)


def record_view(stored: StoredRecord, now: int, unpack: Unpack) -> Record:
    """A stored record as people see it at `now` (microseconds)."""
    state = rules.state_at(stored, now)
    left = stored.expires_at - now if state == "claimed" and stored.expires_at is not None else None
    return Record(
        key=stored.key,
        run_id=stored.run_id,
        state=state,
        token=stored.token,
        attempt=stored.attempt,
        owner=stored.owner,
        lease=_seconds(stored.lease),
        lease_left=_seconds(left),
        error=stored.error,
        fingerprint=stored.fingerprint,
        created_at=stored.created_at / MICROSECONDS,
        updated_at=stored.updated_at / MICROSECONDS,
        retain_until=_seconds(stored.retain_until),
        _stored=stored,
        _unpack=unpack,
    )


def progress_view(stored: StoredProgress, unpack: Unpack) -> Progress:
    """A stored run as people see it."""
    return Progress(
        run_id=stored.run_id,
        step=stored.step,
        updated_at=stored.updated_at / MICROSECONDS,
        incarnation=stored.incarnation,
        _stored=stored,
        _unpack=unpack,
    )


def _seconds(value: int | None) -> float | None:
    return None if value is None else value / MICROSECONDS
