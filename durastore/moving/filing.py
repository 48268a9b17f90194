"""`exported` and `imported`: a store's contents as lines, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from durastore.errors import ConfigError, PayloadError
from durastore.moving.arriving import Arrivals, Arriving
from durastore.moving.leaving import PAGE, Departures, Leaving
from durastore.moving.ndjson import Line, Lines, end_line, first_line, lines_of
from durastore.moving.tally import Refusal, Report, Tally
from durastore.moving.things import MovedRun, Thing, digest
from durastore.store import Store

__all__ = ["checked", "exported", "imported"]

_BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of payloads that are imported together, unless one alone is larger."""
Write = Callable[[Line], object]
"""Writes one line."""


def exported(source: Store, write: Write, *, namespace: str | None = None, wait: float = 0.0, report: Report) -> Tally:
    """Write all records, then all runs, as NDJSON. Of the counts, `placed` is what was written.

    Raises `AwaitTimeout` while claims are live after `wait` seconds.
    """
    departures = Departures(source, wait=wait)
    departures.await_quiet()
    write(first_line(scheme=source.backend.scheme, namespace=namespace, created_at=source.time()))
    tally = Tally()
    for things in departures.all():
        for leaving in things:
            _write(departures, leaving, write, tally, report)
        report(tally, None)
    write(end_line(keys=tally.keys, runs=tally.runs, digest=tally.digest))
    return tally


def _write(departures: Departures, leaving: Leaving, write: Write, tally: Tally, report: Report) -> None:
    try:
        thing = departures.with_body(leaving)
    except PayloadError as exc:
        tally.damaged += 1
        report(tally, Refusal(leaving.thing.name, str(exc)))
        return
    for line in lines_of(thing):
        write(line)
    _count(thing, tally)
    tally.placed += 1


def _count(thing: Thing, tally: Tally) -> None:
    is_run = isinstance(thing, MovedRun)
    tally.runs, tally.keys = tally.runs + is_run, tally.keys + (not is_run)
    tally.bytes += 0 if thing.body is None else len(thing.body.data)
    tally.add_digest(digest(thing))


def checked(lines: Iterator[bytes]) -> Tally:
    """Read an export to its end, for its counts. Raises `ConfigError` or `PayloadError` for one that is not whole."""
    reader, tally = Lines(lines), Tally()
    for thing in reader.things():
        _count(thing, tally)
    _check_end(reader, tally)
    return tally


def _check_end(reader: Lines, tally: Tally) -> None:
    found = end_line(keys=tally.keys, runs=tally.runs, digest=tally.digest)
    if found != {"type": "end", **reader.end}:
        raise ConfigError(
            f"the export is not whole, or was changed: its last line says {reader.end['keys']:,} keys, {reader.end['runs']:,} "
            f"runs and digest {reader.end['digest'][:12]}…, it holds {tally.keys:,}, {tally.runs:,} and {tally.digest[:12]}…"
        )


def imported(
    lines: Iterator[bytes], target: Store, *, absent: Literal["place", "count"] = "place", report: Report
) -> Tally:
    """Place what an export holds; ``count`` only looks. Again with the same export, all is `same`.

    Raises `ConfigError` or `PayloadError` for lines that are not by the schema, or an export that is not whole. What was placed
    by then stays.
    """
    reader, tally = Lines(lines), Tally()
    arrivals = Arrivals(target, lambda refusal: report(tally, refusal), absent=absent)
    for batch in _batches(reader.things()):
        tally.add(arrivals.take(batch))
        report(tally, None)
    _check_end(reader, tally)
    return tally


def _batches(things: Iterator[Thing]) -> Iterator[list[Arriving]]:
    """Things to place together: of different names, not too many and not too large."""
    batch: dict[str, Arriving] = {}
    size = 0
    for thing in things:
        length = 0 if thing.body is None else len(thing.body.data)
        if batch and (thing.name in batch or len(batch) == PAGE or size + length > _BATCH_BYTES):
            yield list(batch.values())
            batch, size = {}, 0
        batch[thing.name] = Arriving(replace(thing, body=None), _Known(thing))
        size += length
    if batch:
        yield list(batch.values())


class _Known:
    """Brings a payload that is in memory already."""

    def __init__(self, thing: Thing) -> None:
        self._thing = thing

    def __call__(self) -> Thing:
        return self._thing
