"""One client of the store under test, with virtual time: what the clause tests speak with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Barrier
from typing import Any

from durastore.conformance.harness import BASE, Harness
from durastore.conformance.paging import every, sweep_all
from durastore.conformance.patient import patient
from durastore.contract import (
    Answer,
    Backend,
    ClaimRequest,
    Grant,
    Granted,
    Payload,
    RecordState,
    StoredProgress,
    StoredRecord,
)

__all__ = [
    "DAY",
    "LEASE",
    "LISTED_SECONDS_MAX",
    "SECOND",
    "Client",
    "at_once",
    "nonce",
    "payload",
    "progress",
    "request",
    "until_listed",
]

SECOND = 1_000_000
LEASE = 60 * SECOND
DAY = 24 * 3600 * SECOND
LISTED_SECONDS_MAX = 10.0
"""How long an index may take to show a write."""


def nonce() -> str:
    """A fresh nonce, as the store makes them."""
    return os.urandom(12).hex()


def payload(data: bytes | str) -> Payload:
    """A payload that fits inline."""
    return Payload(data.encode() if isinstance(data, str) else data)


def progress(step: int, state: bytes | str = "state", *, run: str = "run") -> StoredProgress:
    """Progress to save."""
    return StoredProgress(run, step, payload(state))


def request(
    key: str = "key",
    *,
    run: str = "run",
    owner: str = "alice",
    nonce: str | None = None,
    lease: int = LEASE,
    takeover: bool = True,
    fingerprint: str | None = None,
    incarnation: int = 0,
) -> ClaimRequest:
    """A claim request with a fresh nonce."""
    return ClaimRequest(
        key=key,
        run_id=run,
        owner=owner,
        nonce=nonce or os.urandom(12).hex(),
        lease=lease,
        takeover=takeover,
        fingerprint=fingerprint,
        incarnation=incarnation,
    )


class Client:
    """The verbs of one backend, with defaults. Times (`at`) are microseconds after `BASE`."""

    def __init__(self, harness: Harness, owner: str = "alice") -> None:
        self.backend: Backend = patient(harness.open())
        self.owner = owner

    def ask(self, asked: ClaimRequest, *, at: int = 0) -> Answer:
        """Claim by a request made before."""
        return self.backend.claim(asked, now=BASE + at)

    def claim(self, key: str = "key", *, at: int = 0, **terms: Any) -> Answer:
        """Claim with a fresh nonce."""
        return self.ask(request(key, **{"owner": self.owner, **terms}), at=at)

    def must(self, asked: ClaimRequest, *, at: int = 0) -> Granted:
        """Claim a key that must be had, by a request made before."""
        answer = self.ask(asked, at=at)
        assert isinstance(answer, Granted), f"key {asked.key!r} is free, so its claim must be granted"
        return answer

    def granted(self, key: str = "key", *, at: int = 0, **terms: Any) -> Granted:
        """Claim a key that must be had, with a fresh nonce."""
        return self.must(request(key, **{"owner": self.owner, **terms}), at=at)

    def grant(self, key: str = "key", *, at: int = 0, **terms: Any) -> Grant:
        """Claim a key that must be had; its grant."""
        return self.granted(key, at=at, **terms).grant

    def renew(self, *grants: Grant, at: int = 0) -> Sequence[Grant | None]:
        return self.backend.renew(list(grants), now=BASE + at)

    def commit(self, grant: Grant, result: bytes | str = "result", *, at: int = 0, **more: Any) -> Granted | None:
        return self.backend.commit(grant, result=payload(result), now=BASE + at, **more)

    def done(self, key: str = "key", result: bytes | str = "result", *, at: int = 0, **terms: Any) -> Grant:
        """Claim and commit a key."""
        retain = terms.pop("retain", None)
        grant = self.grant(key, at=at, **terms)
        self.commit(grant, result, at=at, retain=retain)
        return grant

    def abandon(self, grant: Grant, *, at: int = 0, error: str | None = None, in_doubt: bool = False) -> bool:
        return self.backend.abandon(grant, error=error, in_doubt=in_doubt, now=BASE + at)

    def read(self, key: str = "key", *, at: int = 0) -> StoredRecord | None:
        (found,) = self.backend.read([key], now=BASE + at)
        return found

    def record(self, key: str = "key", *, at: int = 0) -> StoredRecord:
        """A record that must be there."""
        found = self.read(key, at=at)
        assert found is not None, f"key {key!r} has a record"
        return found

    def save(self, step: int, state: bytes | str = "state", *, run: str = "run", at: int = 0) -> StoredProgress:
        return self.backend.save(progress(step, state, run=run), now=BASE + at)

    def load(self, run: str = "run") -> StoredProgress | None:
        return self.backend.load(run)

    def resolve(
        self, seen: StoredRecord, result: bytes | str | None = None, *, new: str | None = None, at: int = 0, **more: Any
    ) -> bool:
        """Settle a record, as committed or (without `result`) for a retry."""
        stored = None if result is None else payload(result)
        return self.backend.resolve(seen, nonce=new or nonce(), result=stored, now=BASE + at, **more)

    def delete(self, seen: StoredRecord, *, at: int = 0) -> bool:
        return self.backend.delete(seen, now=BASE + at)

    def listed(self, *, at: int = 0, limit: int = 100, **filters: Any) -> list[StoredRecord]:
        """All pages of one listing."""
        scan = partial(self.backend.scan, limit=limit, now=BASE + at, **filters)
        pages = list(every(lambda cursor: scan(cursor=cursor)))
        assert max(len(page.items) for page in pages) <= limit, "a page holds at most `limit` records"
        return [record for page in pages for record in page.items]

    def names(self, *, state: RecordState | None = None, at: int = 0, **filters: Any) -> list[str]:
        """The keys of one listing, sorted."""
        return sorted(record.key for record in self.listed(state=state, at=at, **filters))

    def place(self, *records: StoredRecord, at: int = 0) -> Sequence[StoredRecord]:
        return self.backend.place(records, now=BASE + at)

    def sweep(self, *, at: int = 0, limit: int = 500) -> int:
        """Sweep until there is no more; how many records went."""
        steps = [step.records for step in sweep_all(self.backend, now=BASE + at, limit=limit)]
        assert max(steps) <= limit, "one sweep removes at most `limit` records"
        return sum(steps)

    @contextmanager
    def unchanged(self, *keys: str, run: str = "run") -> Iterator[None]:
        """What happens inside writes neither these records nor the run."""
        names = keys or ("key",)
        before = [*self.backend.read(names, now=BASE)], self.load(run)
        yield
        assert ([*self.backend.read(names, now=BASE)], self.load(run)) == before, "nothing may be written"


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Call all at the same moment, each in a thread; what they return, or the exceptions that they raise."""
    gate = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return call()
        except Exception as exc:  # noqa: BLE001  the test judges it
            return exc

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def until_listed(listing: Callable[[], Sequence[str]], expected: Sequence[str]) -> None:
    """Wait for an index that is consistent only eventually, then hold the listing to be exactly what is expected."""
    ends = time.monotonic() + LISTED_SECONDS_MAX
    while sorted(listing()) != sorted(expected) and time.monotonic() < ends:
        time.sleep(0.05)
    assert sorted(listing()) == sorted(expected)
