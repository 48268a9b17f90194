"""What stands in Firestore: ids, fields and indexes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import durastore_firestore
from durastore.contract import StoredProgress
from durastore_firestore import INDEXED, INDEXES, FirestoreBackend, wire
from durastore_firestore.listing import TTL

from .requests import MINUTE, RESULT, granted, request
from .wiretap import Wiretap

HARD_KEYS = [
    "/",
    ".",
    "..",
    "__x__",
    "a/b/c",
    "é",
    "e\u0301",
    "A",
    "a",
    "k",
    "k ",
    "\U0001f600",
    "\uffff",
    "\x01",
    "x" * 1024,
]


@pytest.mark.parametrize("key", HARD_KEYS)
def test_keys_that_ids_may_not_hold(backend: FirestoreBackend, key: str) -> None:
    """Any key and run id, byte for byte: the id is a hash, the key a field."""
    grant = granted(backend.claim(request(key, run_id=key)))
    backend.commit(grant, result=RESULT, progress=StoredProgress(key, 1, RESULT))
    page = backend.scan(run_id=key)
    assert [(record.key, record.run_id) for record in page.items] == [(key, key)]
    assert [record.key for record in backend.scan(prefix=key).items] == [key]
    assert [run.run_id for run in backend.scan_runs().items] == [key]
    assert re.fullmatch(r"[0-9a-f]{64}", backend._space.names.record(key).rpartition("/")[2])


def test_the_end_of_a_prefix(backend: FirestoreBackend) -> None:
    """Listings by prefix go by code points, up to the last one, also where UTF-16 sorts otherwise."""
    keys = ["a", "a\U0010ffff", "a\U0010ffffz", "a\uffff", "a\U0001f600", "b", "\U0010ffff", "\ud7ff", "\ue000"]
    for key in keys:
        backend.claim(request(key))
    for prefix in ("", "a", "a\U0010ffff", "a\uffff", "\U0010ffff", "\ud7ff", "c"):
        found = {record.key for record in backend.scan(prefix=prefix).items}
        assert found == {key for key in keys if key.startswith(prefix)}


def test_listings_use_declared_indexes_only(backend: FirestoreBackend, tap: Wiretap) -> None:
    """Every field that a query filters or orders by is declared as indexed, and every mix has its composite index."""
    for run_id in (None, "run"):
        for state in (None, "claimed", "in_doubt", "abandoned", "committed"):
            for prefix in ("", "k"):
                backend.scan(run_id=run_id, state=state, prefix=prefix)  # type: ignore[arg-type]  # a list of literals
    backend.scan_runs()
    backend.put_chunks("blob", [b"x"], now=1)
    backend.sweep(now=2**52)
    backend.get_chunks("blob")
    queries = [sent.structured_query for sent in tap.requests if hasattr(sent, "structured_query")]
    assert len(queries) > 20
    for query in queries:
        collection = query.from_[0].collection_id.removeprefix("durastore_")
        filters = [one.field_filter for one in query.where.composite_filter.filters]
        equal = {one.field.field_path for one in filters if one.op in (5, 8)}
        others = {one.field.field_path for one in filters} | {order.field.field_path for order in query.order_by}
        ordered = others - equal - {"__name__"}
        assert equal | ordered <= set(INDEXED[collection])
        if equal and ordered:
            (order,) = ordered
            assert all((field, order) in INDEXES[collection] for field in equal)


def test_values_are_bytes_and_payloads_are_not_indexed(backend: FirestoreBackend) -> None:
    """Payloads stay bytes; what is large, or only grows, is not among the indexed fields."""
    grant = granted(backend.claim(request("key", fingerprint="f")))
    backend.commit(grant, result=RESULT, retain=MINUTE, progress=StoredProgress("run", 1, RESULT))
    record, run = backend._space.names.record("key"), backend._space.names.run("run")
    found = backend._space.rpc.get([record, run]).documents
    assert found[record].fields["result"].WhichOneof("value_type") == "bytes_value"
    assert found[run].fields["state"].WhichOneof("value_type") == "bytes_value"
    assert TTL["records"] in found[record].fields
    for name in ("result", "error", "created", "token", "expire_at"):
        assert name not in INDEXED["records"]
    assert "state" not in INDEXED["runs"]


def test_no_transactions() -> None:
    """Contended transactions take seconds on the emulator; there are none."""
    folder = Path(durastore_firestore.__file__).parent
    source = "".join(path.read_text() for path in folder.glob("*.py"))
    assert "BeginTransaction" not in source
    assert "transactional" not in source


def test_a_record_without_a_lease_is_live(backend: FirestoreBackend) -> None:
    """A claim stored without a lease is held for ever, not free."""
    granted(backend.claim(request("key", lease=0)))
    backend._space.rpc.commit([wire.patch(backend._space.names.record("key"), {"lease": None}, None)])
    answer = backend.claim(request("key"))
    assert getattr(answer, "lease_left", 0) is None
    assert getattr(answer, "in_doubt", True) is False
