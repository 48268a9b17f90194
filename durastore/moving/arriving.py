"""The destination of a move: places things where they are absent, and says of the others what is there instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from durastore import payload
from durastore.contract import Payload, StoredProgress, StoredRecord
from durastore.errors import PayloadError, SchemaError
from durastore.moving.leaving import Leaving, with_body
from durastore.moving.tally import Refusal, Tally
from durastore.moving.things import MovedRecord, MovedRun, Thing, as_moved, digest
from durastore.store import Store, new_nonce

__all__ = ["Arrivals", "Arriving"]

A = TypeVar("A")
B = TypeVar("B")
Tell = Callable[[Refusal], None]
_THREADS = 8
"""Runs that are looked at or placed at once."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """A thing on its way. `fetch` brings its payload into memory; it may raise `PayloadError`."""

    thing: Thing
    fetch: Callable[[], Thing]


class Arrivals:
    """What arrives in a store, or would: with `absent` other than ``place``, nothing is written.

    ``count``: what is absent is counted as if it had been placed, and a store that is not set up counts as an empty one.
    ``refuse``: it is a conflict.
    """

    def __init__(self, store: Store, tell: Tell, *, absent: Literal["place", "count", "refuse"] = "place") -> None:
        self.store = store
        self.there = Tally()
        """What the destination had of all this before: its digest alone."""
        self._tell = tell
        self._absent = absent

    def take(self, things: Sequence[Arriving]) -> Tally:
        """Place what is absent, compare what is there. Again with the same things, all of them are `same`."""
        tally = Tally()
        records: list[tuple[MovedRecord, StoredRecord]] = []
        runs: list[tuple[MovedRun, StoredProgress]] = []
        for arriving, known in zip(things, self._known([one.thing for one in things]), strict=True):
            thing = self._fetched(arriving, tally)
            if thing is None:
                continue
            if known is not None:
                self._compare(thing, known, tally)
            elif self._absent == "count":
                tally.placed += 1
            elif self._absent == "refuse":
                self._refuse(thing, "the destination does not have it", tally)
            else:
                self._lay(thing, records, runs, tally)
        self._place(records, tally)
        self._place_runs(runs, tally)
        return tally

    def _lay(
        self,
        thing: Thing,
        records: list[tuple[MovedRecord, StoredRecord]],
        runs: list[tuple[MovedRun, StoredProgress]],
        tally: Tally,
    ) -> None:
        """Make a thing ready to be placed: its chunks are written, and its payload leaves the memory."""
        fits, stored = self._stored(thing, tally)
        if not fits:
            return
        if isinstance(thing, MovedRun):
            runs.append((replace(thing, body=None), replace(thing.run, state=stored)))
        else:
            records.append((replace(thing, body=None), replace(thing.record, result=stored)))

    def _refuse(self, thing: Thing, reason: str, tally: Tally) -> None:
        tally.conflicts += 1
        self._tell(Refusal(thing.name, reason))

    def _known(self, things: Sequence[Thing]) -> list[Leaving | None]:
        """What the destination has under these names."""
        try:
            return self._look(things)
        except SchemaError:
            if self._absent != "count":
                raise
            return [None for _ in things]

    def _look(self, things: Sequence[Thing]) -> list[Leaving | None]:
        backend = self.store.backend
        keys = [thing.record.key for thing in things if isinstance(thing, MovedRecord)]
        read = self.store.call("read", backend.read, keys) if keys else []
        found = {record.key: record for record in read if record is not None}
        now = self.store.time() if found else 0
        names = [thing.run.run_id for thing in things if isinstance(thing, MovedRun)]
        runs = dict(zip(names, _each(lambda name: self.store.call("load", backend.load, name), names), strict=True))
        return [
            _leaving_run(runs[thing.run.run_id])
            if isinstance(thing, MovedRun)
            else _leaving(found.get(thing.record.key), now)
            for thing in things
        ]

    def _fetched(self, arriving: Arriving, tally: Tally) -> Thing | None:
        """The thing with its payload; None when that is damaged."""
        is_run = isinstance(arriving.thing, MovedRun)
        tally.runs, tally.keys = tally.runs + is_run, tally.keys + (not is_run)
        try:
            thing = arriving.fetch()
        except PayloadError as exc:
            self._damaged(arriving.thing, exc, tally)
            return None
        tally.bytes += 0 if thing.body is None else len(thing.body.data)
        tally.add_digest(digest(thing))
        return thing

    def _damaged(self, thing: Thing, exc: PayloadError, tally: Tally) -> None:
        tally.damaged += 1
        self._tell(Refusal(thing.name, str(exc)))

    def _compare(self, thing: Thing, known: Leaving, tally: Tally) -> None:
        """What is there stays; it is the same, or a conflict."""
        try:
            there = with_body(self.store, known)
        except PayloadError as exc:
            self._damaged(thing, exc, tally)
            return
        found = digest(there)
        self.there.add_digest(found)
        if found == digest(thing):
            tally.same += 1
        else:
            self._refuse(thing, _difference(thing, there), tally)

    def _stored(self, thing: Thing, tally: Tally) -> tuple[bool, Payload | None]:
        """The payload as this store takes it, its chunks written; False when it does not fit."""
        if thing.body is None:
            return True, None
        try:
            stored, chunks = payload.laid(thing.body, self.store.backend.limits, new_nonce)
        except PayloadError as exc:
            self._damaged(thing, exc, tally)
            return False, None
        if stored.blob is not None:
            self.store.call("put_chunks", self.store.backend.put_chunks, stored.blob, chunks)
        return True, stored

    def _place(self, ready: Sequence[tuple[MovedRecord, StoredRecord]], tally: Tally) -> None:
        """Place records. Somebody else's that came in between stays, and is a conflict."""
        if not ready:
            return
        stands = self.store.call("place", self.store.backend.place, [record for _, record in ready])
        for (thing, record), there in zip(ready, stands, strict=True):
            if (there.nonce, there.token, there.state) == (record.nonce, record.token, record.state):
                tally.placed += 1
            else:
                self._refuse(thing, _difference(thing, MovedRecord(replace(there, result=None), None)), tally)

    def _place_runs(self, ready: Sequence[tuple[MovedRun, StoredProgress]], tally: Tally) -> None:
        backend = self.store.backend
        stands = _each(lambda run: self.store.call("place_run", backend.place_run, run), [run for _, run in ready])
        for (thing, run), there in zip(ready, stands, strict=True):
            if there == run:
                tally.placed += 1
            else:
                self._refuse(thing, _difference(thing, MovedRun(replace(there, state=None), None)), tally)


def _each(call: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """Call for each item, a few at once: a run is one request each, and most stores are far away."""
    if len(items) <= 1:
        return [call(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items))) as pool:
        return list(pool.map(call, items))


def _leaving(record: StoredRecord | None, now: int) -> Leaving | None:
    return None if record is None else Leaving(MovedRecord(as_moved(record, now), None), record.result)


def _leaving_run(run: StoredProgress | None) -> Leaving | None:
    return None if run is None else Leaving(MovedRun(replace(run, state=None), None), run.state)


def _difference(thing: Thing, there: Thing) -> str:
    """What is there, and what was to come, for people. Never a payload."""
    if isinstance(thing, MovedRun) and isinstance(there, MovedRun):
        known, new = f"step {there.run.step}", f"step {thing.run.step}"
        remedy = "forget the run there first, if it is not needed"
    elif isinstance(thing, MovedRecord) and isinstance(there, MovedRecord):
        known, new = _state(there.record), _state(thing.record)
        remedy = "forget the key there first, if it is not needed"
    else:
        raise TypeError("a key is compared with a key, a run with a run")
    if known == new:
        known = f"{known} with other contents"
    return f"the destination has it already: {known}; here {new}. It was left alone; {remedy}"


def _state(record: StoredRecord) -> str:
    return f"{record.state.replace('_', ' ')}, token {record.token}, run {record.run_id!r}"
