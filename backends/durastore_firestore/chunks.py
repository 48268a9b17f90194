"""Large payloads: chunks in documents of their own, below one document that describes them.

The describing document is written with the first chunk, and every write that points to a payload, or ceases to, notes so in it in
the same commit. `check_at` is when to look whether anybody still points to it: when it was written, until something does; never,
while a record or run does; when the record's retention ends, where it has one; at once when it was let go. (Each a day early,
which is how long chunks are left alone: the query adds the day.) So `sweep` reads what may be orphaned, not all there is, and
deletes it on condition that the describing document has not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from durastore.rules import ORPHAN_AGE
from durastore_firestore import wire
from durastore_firestore.documents import Names
from durastore_firestore.listing import Query
from durastore_firestore.rpc import Rpc
from durastore_firestore.wire import SERVER_TIME, Fields, Message, Stamp

__all__ = ["CHUNK", "Chunks"]

CHUNK = 900 * 1024
"""Bytes of a chunk; a document takes 1 MiB with its fields and name."""
_COMMIT = 3_800_000
"""Bytes of one commit of chunks: Firestore takes 10 MiB, its emulator 4 MiB."""
_COMMIT_WRITES = 400
_IN_MAX = 30
"""Values that Firestore takes in one `IN`."""


class Chunks:
    """The chunks of one namespace."""

    def __init__(self, rpc: Rpc, names: Names) -> None:
        self._rpc = rpc
        self._names = names

    def put(self, blob: str, chunks: Sequence[bytes], now: int | None) -> None:
        """Write chunks; again with the same ones changes nothing."""
        written = SERVER_TIME if now is None else Stamp(now)
        about: Fields = {"blob": blob, "chunks": len(chunks), "written": written, "check_at": written}
        writes = [wire.put(self._names.blob(blob), about)]
        writes += [wire.put(self._names.chunk(blob, index), {"data": data}) for index, data in enumerate(chunks)]
        for batch in wire.batches(writes, count=_COMMIT_WRITES, size=_COMMIT):
            self._rpc.commit(batch, large=True)

    def get(self, blob: str) -> list[bytes]:
        """The chunks in order, without those that are missing."""
        found = self._rpc.query(self._names.blob(blob), Query(self._names.chunks).build(), large=True)
        return [document.fields["data"].bytes_value for document in found.documents.values()]

    def follow(self, before: str | None, after: str | None, until: int | None) -> list[Message]:
        """What to write beside a document that pointed to one payload and now points to another, for its retention."""
        if before == after:
            return []
        writes = []
        if before is not None:
            writes.append(wire.patch(self._names.blob(before), {"check_at": Stamp(0)}, None))
        if after is not None:
            check_at = None if until is None else Stamp(max(until - ORPHAN_AGE, 0))
            writes.append(wire.patch(self._names.blob(after), {"check_at": check_at}, None))
        return writes

    def deletion(self, about: Message) -> list[Message]:
        """What to write to delete a payload, given the document that describes it, provided that it has not changed."""
        count = about.fields["chunks"].integer_value if "chunks" in about.fields else 0
        chunks = [wire.delete(f"{about.name}/{self._names.chunks}/{index:06}") for index in range(count)]
        return [wire.delete(about.name, wire.micros(about.update_time)), *chunks]

    def about(self, blobs: Iterable[str]) -> dict[str, Message]:
        """The documents that describe these payloads, where there are any."""
        names = {self._names.blob(blob): blob for blob in blobs}
        if not names:
            return {}
        return {names[name]: document for name, document in self._rpc.get(names).documents.items()}

    def sweep(self, at: int, limit: int) -> tuple[int, bool]:
        """Delete orphans; how many, and whether there may be more."""
        due = Query(self._names.blobs).where("check_at", "<=", Stamp(at - ORPHAN_AGE)).order("check_at").limit(limit)
        found = list(self._rpc.query(self._names.root, due.build()).documents.values())
        removed = sum(self._sweep(found[start : start + _IN_MAX], at) for start in range(0, len(found), _IN_MAX))
        return removed, len(found) == limit

    def _sweep(self, found: Sequence[Message], at: int) -> int:
        """Delete those that nobody points to; the others are looked at again when they may be orphaned."""
        abouts = [(wire.values(document), document) for document in found]
        used = self._used([fields["blob"] for fields, _ in abouts if "blob" in fields])
        later, removed = [], 0
        for fields, document in abouts:
            blob, written = fields.get("blob"), fields.get("written", Stamp(0))
            if blob in used or written + ORPHAN_AGE > at:
                check = {"check_at": Stamp(at if blob in used else written)}
                later.append(wire.patch(document.name, check, wire.micros(document.update_time)))
            elif self._rpc.attempt(self.deletion(document)) is not None:
                removed += blob is not None
        self._rpc.each(later)
        return removed

    def _used(self, blobs: Sequence[str]) -> set[str]:
        used: set[str] = set()
        if not blobs:
            return used
        for collection in (self._names.records, self._names.runs):
            query = Query(collection).where("blob", "in", list(blobs)).select("blob").build()
            pointing: Any = self._rpc.query(self._names.root, query).documents.values()
            used |= {document.fields["blob"].string_value for document in pointing}
        return used
