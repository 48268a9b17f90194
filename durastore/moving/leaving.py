"""The source of a move: its records and runs, and no live claims among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from durastore import payload, rules
from durastore.contract import Page, Payload, StoredProgress, StoredRecord
from durastore.errors import AwaitTimeout, PayloadError
from durastore.moving.things import MovedRecord, MovedRun, Thing, as_moved
from durastore.store import Store

__all__ = ["PAGE", "Departures", "Leaving"]

PAGE = 500
"""Things that are looked at together."""
_POLL = 0.2
"""Seconds between two looks at claims that are waited for."""
_NAMED = 3
"""Live claims that a refusal names."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A thing that is about to be moved, its payload still in the store."""

    thing: Thing
    stored: Payload | None


class Departures:
    """What leaves a store. Looks only."""

    def __init__(self, store: Store, *, wait: float = 0.0) -> None:
        """`wait`: seconds for which live claims are waited for, in all."""
        self.store = store
        self._gives_up = store.clock.monotonic() + wait

    def await_quiet(self) -> None:
        """Return once no claim of the store is live. Raises `AwaitTimeout` that names some."""
        while live := list(islice(self.store.records(state="claimed"), _NAMED)):
            names = ", ".join(f"{record.key!r} ({record.owner!r})" for record in live)
            self._wait_or_refuse(f"claims are alive in {self.store.url}: {names}{', …' if len(live) == _NAMED else ''}")

    def records(self, cursor: str | None) -> tuple[list[Leaving], str | None]:
        """One page of the records, and where the next one begins. Raises `AwaitTimeout` for a live claim."""
        backend = self.store.backend
        page: Page[StoredRecord] = self.store.call("scan", backend.scan, cursor=cursor, limit=PAGE)
        now = self.store.time() if page.items else 0
        settled = [self._settled(record, now) for record in page.items]
        return [leaving for leaving in settled if leaving is not None], page.cursor

    def _settled(self, record: StoredRecord | None, now: int) -> Leaving | None:
        while record is not None and rules.state_at(record, now) == "claimed":
            self._wait_or_refuse(f"key {record.key!r} is held by {record.owner!r}, who is alive")
            record = self.store.call("read", self.store.backend.read, [record.key])[0]
            now = self.store.time()
        if record is None:
            return None
        return Leaving(MovedRecord(as_moved(record, now), None), record.result)

    def _wait_or_refuse(self, what: str) -> None:
        clock = self.store.clock
        if clock.monotonic() >= self._gives_up:
            raise AwaitTimeout(f"{what}; stop the workers, or wait longer for them (a dead one's lease lapses)")
        clock.sleep(_POLL)

    def runs(self, cursor: str | None) -> tuple[list[Leaving], str | None]:
        """One page of the runs, and where the next one begins."""
        backend = self.store.backend
        page: Page[StoredProgress] = self.store.call("scan_runs", backend.scan_runs, cursor=cursor, limit=PAGE)
        return [_run(run) for run in page.items], page.cursor

    def all(self) -> Iterator[Sequence[Leaving]]:
        """All pages: the records, then the runs, so that no map arrives before what it leads to."""
        for look in (self.records, self.runs):
            cursor: str | None = None
            while True:
                things, cursor = look(cursor)
                yield things
                if cursor is None:
                    break

    def with_body(self, leaving: Leaving) -> Thing:
        """The thing with its payload in memory. Raises `PayloadError` for a damaged one."""
        return with_body(self.store, leaving)


def _run(run: StoredProgress) -> Leaving:
    return Leaving(MovedRun(replace(run, state=None), None), run.state)


def with_body(store: Store, leaving: Leaving) -> Thing:
    """The thing with its payload in memory. Raises `PayloadError` for a damaged one."""
    if leaving.stored is None:
        return leaving.thing
    try:
        body = payload.opened(leaving.stored, lambda blob: store.call("get_chunks", store.backend.get_chunks, blob))
    except PayloadError as exc:
        raise PayloadError(f"{leaving.thing.name} in {store.url}: {exc}") from exc
    return replace(leaving.thing, body=body)
