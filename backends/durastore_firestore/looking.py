"""Reading and listing, and the sweep, which is a listing that deletes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from durastore import rules
from durastore.contract import Page, RecordState, StoredProgress, StoredRecord
from durastore_firestore import listing, wire
from durastore_firestore.documents import record_of, retain_until, run_of
from durastore_firestore.space import Space
from durastore_firestore.wire import Message

__all__ = ["delete_chunks", "portions", "read", "records", "runs", "sweep"]

_READ_MAX = 300
"""Documents in one read."""
_PLACE_MAX, _PLACE_BYTES = 100, 2_000_000
"""Records, and bytes of results, in one commit of records that are placed."""


def read(space: Space, keys: Sequence[str], now: int | None) -> list[StoredRecord | None]:
    """As in the contract; one RPC for each 300 keys."""
    found: list[StoredRecord | None] = []
    for start in range(0, len(keys), _READ_MAX):
        part = keys[start : start + _READ_MAX]
        draft = space.draft(part, [], now)
        stored = [draft.record(key) for key in part]
        found += [None if rules.is_absent(record, draft.now) else record for record in stored]
    return found


def portions(records: Sequence[StoredRecord]) -> Iterator[list[StoredRecord]]:
    """Records in commits that Firestore takes."""
    portion: list[StoredRecord] = []
    size = 0
    for record in records:
        length = 0 if record.result is None else len(record.result.data)
        if portion and (len(portion) == _PLACE_MAX or size + length > _PLACE_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(record)
        size += length
    if portion:
        yield portion


def records(
    space: Space,
    *,
    run_id: str | None,
    state: RecordState | None,
    prefix: str,
    cursor: str | None,
    limit: int,
    now: int | None,
) -> Page[StoredRecord]:
    """One page. What the query cannot say (expired, past retention) is told apart here, by the time of its answer."""
    names = space.names
    query = listing.records(names.records, run_id=run_id, state=state, prefix=prefix).limit(limit)
    if cursor is not None:
        query.after(cursor if prefix else f"{names.root}/{names.records}/{cursor}", name=not prefix)
    seen = space.rpc.query(names.root, query.build(), large=True)
    at = seen.read_time if now is None else now
    found = [record_of(document) for document in seen.documents.values()]
    matching = [record for record in found if rules.is_listed(record, state, at)]
    if len(found) < limit:
        return Page(matching, None)
    return Page(matching, found[-1].key if prefix else _last_id(seen.documents))


def runs(space: Space, cursor: str | None, limit: int) -> Page[StoredProgress]:
    """One page of the runs."""
    query = listing.Query(space.names.runs).order("__name__").limit(limit)
    if cursor is not None:
        query.after(f"{space.names.root}/{space.names.runs}/{cursor}", name=True)
    documents = space.rpc.query(space.names.root, query.build(), large=True).documents
    found = [run_of(document).progress for document in documents.values()]
    return Page(found, _last_id(documents) if len(found) == limit else None)


def _last_id(documents: dict[str, Message]) -> str:
    return next(reversed(documents)).rpartition("/")[2]


def sweep(space: Space, at: int, limit: int) -> tuple[int, bool]:
    """Delete records past retention, each only if nothing changed since the look; how many, and whether there may be more."""
    query = listing.Query(space.names.records).where("sweep_after", "<=", at).order("sweep_after").limit(limit)
    query.select("state", "at", "retain", "blob")
    documents = space.rpc.query(space.names.root, query.build()).documents.values()
    due = [(document, fields) for document, fields in map(_with_fields, documents) if _is_due(document, fields, at)]
    times = space.rpc.each([wire.delete(document.name, wire.micros(document.update_time)) for document, _ in due])
    swept = [fields for (_, fields), landed in zip(due, times, strict=True) if landed is not None]
    delete_chunks(space, [fields["blob"] for fields in swept if "blob" in fields])
    return len(swept), len(documents) == limit and bool(swept)


def _with_fields(document: Message) -> tuple[Message, dict[str, Any]]:
    return document, wire.values(document)


def _is_due(document: Message, fields: Mapping[str, Any], at: int) -> bool:
    until = retain_until(fields, wire.micros(document.update_time))
    return until is not None and until <= at


def delete_chunks(space: Space, blobs: Sequence[str]) -> None:
    """Delete payloads that nobody points to any more; should this fail, `sweep` finds them."""
    for about in space.chunks.about(blobs).values():
        space.rpc.attempt(space.chunks.deletion(about))
