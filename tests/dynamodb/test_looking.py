"""Listings: by queries alone, page by page, whatever the filter; what they cost does not grow with what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

import durastore
from durastore_dynamodb import DynamoDBBackend
from durastore_dynamodb.layout import SHARDS

from .requests import MINUTE, RESULT, TABLE, granted, request
from .wiretap import Wiretap

STATES = ("claimed", "in_doubt", "abandoned", "committed")

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture
def filled(backend: DynamoDBBackend) -> DynamoDBBackend:
    """60 keys of three runs, 15 in each state."""
    for number in range(60):
        state, run = STATES[number % 4], f"run-{number % 3}"
        grant = granted(backend.claim(request(f"{'ab'[number % 2]}/{number}", run_id=run)))
        if state == "committed":
            backend.commit(grant, result=RESULT)
        elif state != "claimed":
            backend.abandon(grant, error=None, in_doubt=state == "in_doubt")
    return backend


def listed(backend: DynamoDBBackend, limit: int, **filters: Any) -> list[str]:
    """All pages; each holds at most `limit`."""
    keys: list[str] = []
    cursor: str | None = None
    while True:
        page = backend.scan(cursor=cursor, limit=limit, **filters)
        assert len(page.items) <= limit
        keys += [record.key for record in page.items]
        cursor = page.cursor
        if cursor is None:
            return keys


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_every_filter_in_pages(filled: DynamoDBBackend, tap: Wiretap, limit: int) -> None:
    """Each record that matches is seen once, by whichever index; nothing is scanned."""
    expected = {f"{'ab'[number % 2]}/{number}": (f"run-{number % 3}", STATES[number % 4]) for number in range(60)}
    filters: list[dict[str, Any]] = [
        {},
        {"prefix": "a/"},
        {"run_id": "run-1"},
        {"run_id": "run-1", "prefix": "b/"},
        *[{"state": state} for state in STATES],
        {"state": "claimed", "prefix": "a/1"},
        {"run_id": "run-2", "state": "committed"},
    ]
    for wanted in filters:
        keys = listed(filled, limit, **wanted)
        assert sorted(keys) == sorted(
            key
            for key, (run, state) in expected.items()
            if key.startswith(wanted.get("prefix", ""))
            and wanted.get("run_id", run) == run
            and wanted.get("state", state) == state
        ), wanted
    assert {sent.operation for sent in tap.requests()} <= {"Query", "GetItem", "BatchGetItem", "UpdateItem"}


def test_a_run_is_one_query(filled: DynamoDBBackend, tap: Wiretap) -> None:
    """By run: the index, then the records, consistently."""
    tap.requests()
    assert len(listed(filled, 100, run_id="run-0")) == 20
    query, read = tap.requests()
    assert query.body["IndexName"] == "by_run"
    assert "ConsistentRead" not in query.body
    assert read.body["RequestItems"][TABLE]["ConsistentRead"] is True


def test_what_is_open_is_not_looked_for_among_what_is_done(filled: DynamoDBBackend, tap: Wiretap) -> None:
    """By state: the sparse index of what is not committed, one query for each shard, and the records."""
    tap.requests()
    assert len(listed(filled, 100, state="in_doubt")) == 15
    sent = tap.requests()
    queries = [one for one in sent if one.operation == "Query"]
    assert {one.body["IndexName"] for one in queries} == {"by_todo"}
    assert len(queries) == len(SHARDS)
    read = sum(len(one.body["RequestItems"][TABLE]["Keys"]) for one in sent if one.operation == "BatchGetItem")
    assert read == 45


def test_everything_is_read_consistently(filled: DynamoDBBackend, tap: Wiretap) -> None:
    """Without a filter, by prefix, and what is committed: queries of the table itself."""
    tap.requests()
    for filters in ({}, {"prefix": "a"}, {"state": "committed"}):
        listed(filled, 100, **filters)
        queries = tap.requests()
        assert len(queries) == len(SHARDS)
        assert all(one.body["ConsistentRead"] is True and "IndexName" not in one.body for one in queries)


def test_the_listing_says_that_an_index_may_be_behind() -> None:
    """In its documentation, where one would look for it."""
    assert "eventually consistent" in (DynamoDBBackend.scan.__doc__ or "")


def test_what_the_index_still_shows_is_read_as_it_is(filled: DynamoDBBackend, tap: Wiretap) -> None:
    """A key that the index names and that was committed or removed meanwhile is not listed as open."""
    (seen,) = filled.read(["a/0"])
    assert seen is not None
    tap.let_through(len(SHARDS))  # the queries
    tap.before(lambda: filled.delete(seen))
    assert "a/0" not in listed(filled, 100, state="claimed")


def test_a_page_ends_with_a_megabyte(backend: DynamoDBBackend, store: durastore.Store) -> None:
    """DynamoDB cuts a page at 1 MB, whatever the limit: the listing goes on."""
    result = durastore.contract.Payload(b"\xff" * backend.limits.inline)
    for number in range(40):
        backend.commit(granted(backend.claim(request(f"large-{number}"))), result=result)
    assert len(listed(backend, 100)) == 40
    assert len(listed(backend, 100, run_id="run")) == 40


def test_runs_in_pages(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Each run once, those with an incarnation alone too."""
    for number in range(20):
        if number % 2:
            backend.incarnate(f"run-{number}")
        else:
            backend.save(durastore.contract.StoredProgress(f"run-{number}", number, RESULT))
    seen, cursor = [], None
    while True:
        page = backend.scan_runs(cursor=cursor, limit=3)
        assert len(page.items) <= 3
        seen += [run.run_id for run in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(f"run-{number}" for number in range(20))


def test_the_sweep_reads_what_is_due(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """By the index of what is retained; what is kept is not read, whatever its number."""
    for number in range(12):
        retain = MINUTE if number < 5 else None
        backend.commit(granted(backend.claim(request(f"key-{number}"))), result=RESULT, retain=retain)
    later = backend.time() + 2 * MINUTE
    tap.requests()
    assert backend.sweep(limit=3, now=later).records == 3
    assert backend.sweep(limit=3, now=later) == durastore.contract.Swept(2, 0, more=False)
    sent = tap.requests()
    assert {one.operation for one in sent} == {"Query", "BatchGetItem", "DeleteItem"}
    read = [key for one in sent if "RequestItems" in one.body for key in one.body["RequestItems"][TABLE]["Keys"]]
    assert len(read) == 5
    assert len([one for one in sent if one.operation == "DeleteItem"]) == 5
    assert {one.body["IndexName"] for one in sent if one.operation == "Query"} == {"by_todo"}


def test_the_sweep_spares_a_key_that_is_claimed_meanwhile(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """A key past retention that somebody claims between the sweep's look and its deletion stays theirs."""
    backend.commit(granted(backend.claim(request("key"))), result=RESULT, retain=MINUTE)
    later = backend.time() + 2 * MINUTE
    grants: list[Any] = []
    tap.let_through(len(SHARDS))  # the queries
    tap.before(lambda: grants.append(granted(backend.claim(request("key"), now=later))))
    assert backend.sweep(now=later).records == 0
    backend.commit(grants[0], result=RESULT)
