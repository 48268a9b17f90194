"""Queries, and the indexes that they need.

Listings by run and by state go in document order: equalities alone, which Firestore answers by merging its automatic single-field
indexes. Only a prefix needs an order by key, and with it the two composite indexes of `INDEXES`, which Firestore merges when both
filters are given. Firestore sorts text by its UTF-8 bytes. The emulator asks for no index; Firestore does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durastore.contract import RecordState
from durastore.keys import after_prefix
from durastore_firestore import wire
from durastore_firestore.wire import Message

__all__ = ["INDEXED", "INDEXES", "TTL", "Query", "records"]

INDEXES: dict[str, Sequence[Sequence[str]]] = {"records": (("run_id", "key"), ("state", "key"))}
"""Composite indexes, all ascending, by collection (without its prefix ``COLLECTION_``); query scope *collection*."""
INDEXED: dict[str, Sequence[str]] = {
    "records": ("blob", "key", "run_id", "state", "sweep_after"),
    "runs": ("blob",),
    "blobs": ("check_at",),
    "chunks": (),
}
"""The fields that queries use. Every other field (``*``) is to be exempt from single-field indexes: payloads are large, and an
index of values that only grow takes about 500 writes per second. `sweep_after` and `check_at` are such values, but few documents
have them: records with a retention, and large payloads until something points to them."""
TTL: dict[str, str] = {"records": "expire_at"}
"""Fields for a TTL policy."""
_OPERATORS = {"<": 1, "<=": 2, ">": 3, ">=": 4, "==": 5, "in": 8}
_AND = 1
_ASCENDING = 1
_STATES: dict[RecordState, Sequence[str]] = {
    "claimed": ("claimed",),
    "in_doubt": ("claimed", "in_doubt"),
    "abandoned": ("abandoned",),
    "committed": ("committed",),
}
"""What is stored for each state that a record may have by now: an expired claim still says ``claimed``."""


class Query:
    """A query over one collection, built step by step."""

    def __init__(self, collection: str) -> None:
        self._query = wire.StructuredQuery()
        self._query.from_.add(collection_id=collection)

    def where(self, field: str, operator: str, content: Any) -> Query:
        """Only documents whose field compares so; `in` takes a list."""
        self._query.where.composite_filter.op = _AND
        condition = self._query.where.composite_filter.filters.add().field_filter
        condition.field.field_path = field
        condition.op = _OPERATORS[operator]
        if isinstance(content, list):
            for one in content:
                wire.set_value(condition.value.array_value.values.add(), one)
        else:
            wire.set_value(condition.value, content)
        return self

    def order(self, field: str) -> Query:
        """Ascending; `__name__` is the document's name."""
        self._query.order_by.add(direction=_ASCENDING).field.field_path = field
        return self

    def after(self, content: str, *, name: bool = False) -> Query:
        """Start after this value of the ordered field; `name` when it is a document's name."""
        value = self._query.start_at.values.add()
        if name:
            value.reference_value = content
        else:
            value.string_value = content
        self._query.start_at.before = False
        return self

    def select(self, *fields: str) -> Query:
        """Only these fields."""
        for field in fields:
            self._query.select.fields.add(field_path=field)
        return self

    def limit(self, count: int) -> Query:
        """At most so many documents."""
        self._query.limit.value = count
        return self

    def build(self) -> Message:
        """The message to send."""
        return self._query


def records(collection: str, *, run_id: str | None, state: RecordState | None, prefix: str) -> Query:
    """The records that may match; `in_doubt` also finds live claims, since only the server's time tells them apart."""
    query = Query(collection)
    if run_id is not None:
        query.where("run_id", "==", run_id)
    if state is not None:
        stored = _STATES[state]
        query.where("state", "in" if len(stored) > 1 else "==", list(stored) if len(stored) > 1 else stored[0])
    if prefix:
        query.where("key", ">=", prefix).where("key", "<", after_prefix(prefix))
    return query.order("key" if prefix else "__name__")
