"""What items hold: numbers, empty values, edges of size, and payloads in chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import durastore
from durastore.contract import Payload, StoredProgress
from durastore.errors import PayloadError
from durastore_dynamodb import DynamoDBBackend
from durastore_dynamodb.chunks import CHUNK
from durastore_dynamodb.items import number

from .requests import MINUTE, RESULT, TABLE, granted, request
from .wiretap import Wiretap

DAY = 24 * 3600 * 1_000_000
TABLE_ITEM_MAX = 400 * 1024

pytestmark = pytest.mark.usefixtures("unhurried")


def noise(size: int, seed: int = 7) -> str:
    """Text that does not compress."""
    import random

    return random.Random(seed).randbytes(size // 2).hex()


@pytest.mark.parametrize("value", [0, 2**53 + 1, 2**63 - 1, 10**27 + 1])
def test_numbers_are_text_on_the_wire(backend: DynamoDBBackend, tap: Wiretap, value: int) -> None:
    """Never a float: what is sent is the integer's own digits, and what is read is the same integer."""
    assert number(value) == {"N": str(value)}
    if value < 2**63:
        backend.save(StoredProgress("run", value, None))
        stored = backend.load("run")
        assert stored is not None
        assert stored.step == value
        (sent, _) = tap.requests()
        assert sent.body["ExpressionAttributeValues"][":new_step"] == {"N": str(value)}


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xfe\0", b"{}", bytes(range(256))])
def test_bytes_are_bytes(backend: DynamoDBBackend, data: bytes) -> None:
    """Empty ones, NUL and what is no UTF-8 come back as they were, read, skipped and taken over alike."""
    backend.commit(
        granted(backend.claim(request("key"))), result=Payload(data), progress=StoredProgress("run", 1, Payload(data))
    )
    (record,), stored = backend.read(["key"]), backend.load("run")
    assert record is not None
    assert record.result == Payload(data)
    assert stored is not None
    assert stored.state == Payload(data)
    answer = backend.claim(request("key"))
    assert isinstance(answer, durastore.contract.Committed)
    assert answer.result == Payload(data)


@pytest.mark.parametrize("value", [None, "", {}, [], 0, False, "\0", 0.1, 1e308, 2**64, {"": [{}]}, "é\u0301🙂"])
def test_values(store: durastore.Store, value: Any) -> None:
    """Through the codec, a value is the same on the first call and on a replay."""
    ckpt = store.checkpoint("run")
    first, again = ckpt.run_once("key", lambda: value), ckpt.run_once("key", lambda: "never")
    assert (first.value, again.value) == (value, value)
    assert type(again.value) is type(value)


def test_empty_texts(backend: DynamoDBBackend) -> None:
    """An empty error, an empty owner and an empty fingerprint are not absent ones."""
    grant = granted(backend.claim(request("key", owner="", fingerprint="")))
    assert backend.abandon(grant, error="", in_doubt=True)
    (record,) = backend.read(["key"])
    assert record is not None
    assert (record.owner, record.fingerprint, record.error) == ("", "", "")


def test_the_largest_record(backend: DynamoDBBackend) -> None:
    """The longest key, run, namespace, owner and error with the largest inline result and state fit into their items."""
    key, run = "k" * 1024, "r" * 1024
    grant = granted(backend.claim(request(key, run_id=run, owner="o" * 300, fingerprint="f" * 64)))
    inline = Payload(b"\xff" * backend.limits.inline, "b" * 24)
    backend.commit(
        grant, result=inline, progress=StoredProgress(run, 1, inline), then=request(key[:-1] + "n", run_id=run)
    )
    (record,), stored = backend.read([key]), backend.load(run)
    assert record is not None
    assert record.result == inline
    assert stored is not None
    assert stored.state == inline


def test_a_chunk_fills_an_item_and_no_more(backend: DynamoDBBackend) -> None:
    """The largest chunk, under the longest names, is below DynamoDB's 400 KB."""
    blob = "f" * 24
    backend.put_chunks(blob, [b"\0" * CHUNK, b"\xff" * CHUNK])
    assert [len(chunk) for chunk in backend.get_chunks(blob)] == [CHUNK, CHUNK]
    names = backend._names.chunk(blob, 99_999)
    assert CHUNK + 4096 + sum(len(part) + len(value["S"]) for part, value in names.items()) < TABLE_ITEM_MAX


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_edge_between_inline_and_chunks(store: durastore.Store, tap: Wiretap, over: int) -> None:
    """One byte less, the same, one more: the same value comes back, whichever way it went."""
    limit = store.backend.limits.inline
    text = noise(2 * limit)[: limit - len(b'json\n""') + over]
    ckpt = store.checkpoint("run")
    assert ckpt.run_once("key", lambda: text).value == text
    assert ckpt.run_once("key", lambda: "never") == (text, "skipped")


@pytest.mark.parametrize("size", [399_000, 401_000, 1_100_000, 5_000_000])
def test_sizes_that_break_items(store: durastore.Store, size: int) -> None:
    """Results and states on both sides of 400 KB and far beyond come back whole."""
    text = noise(size)
    ckpt = store.checkpoint("run")
    assert ckpt.run_once("key", lambda: text, progress=(1, text)).value == text
    assert ckpt.run_once("key", lambda: "never") == (text, "skipped")
    assert ckpt.load() == (1, text)


def test_a_missing_chunk(store: durastore.Store, backend: DynamoDBBackend) -> None:
    """An error that says so, never a shorter value."""
    ckpt = store.checkpoint("run")
    ckpt.run_once("key", lambda: noise(900_000))
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.result is not None
    assert record.result.blob is not None
    backend.client.delete_item(TableName=TABLE, Key=backend._names.chunk(record.result.blob, 0))
    with pytest.raises(PayloadError):
        ckpt.run_once("key", lambda: "never")


def test_too_large_a_transaction(store: durastore.Store, backend: DynamoDBBackend) -> None:
    """More than 100 items, or an item above 400 KB, of the effect's own: refused for good, nothing written, the claim stands."""
    grant = granted(backend.claim(request("key")))

    def many(tx: list[Any]) -> Payload:
        tx.extend({"Put": {"TableName": TABLE, "Item": _item(f"many-{n}", b"")}} for n in range(100))
        return RESULT

    def large(tx: list[Any]) -> Payload:
        tx.append({"Put": {"TableName": TABLE, "Item": _item("large", b"x" * (TABLE_ITEM_MAX + 1))}})
        return RESULT

    for effect in (many, large):
        with pytest.raises(PayloadError):
            store.call("transact", backend.transact, grant, effect)
    assert not backend.client.get_item(TableName=TABLE, Key=_key("many-0")).get("Item")
    backend.commit(grant, result=RESULT)


def _key(name: str) -> Any:
    return {"pk": {"S": f"user/{name}"}, "sk": {"S": "-"}}


def _item(name: str, data: bytes) -> Any:
    return {**_key(name), "data": {"B": data}}


# Payloads and who points to them


def blob_of(backend: DynamoDBBackend, key: str) -> str:
    (record,) = backend.read([key])
    assert record is not None
    assert record.result is not None
    assert record.result.blob is not None
    return record.result.blob


def chunks_of(backend: DynamoDBBackend, blob: str) -> int:
    return len(backend.get_chunks(blob))


@pytest.fixture
def committed(store: durastore.Store, backend: DynamoDBBackend) -> Callable[..., str]:
    """Commit a large result; the id of its payload."""
    seeds = itertools.count()

    def commit(key: str, retain: int | None = None) -> str:
        packed = store.pack(noise(500_000, next(seeds)))
        backend.commit(granted(backend.claim(request(key))), result=packed.payload, retain=retain)
        return blob_of(backend, key)

    return commit


def test_orphans_go_after_a_day(backend: DynamoDBBackend) -> None:
    """Chunks that nobody points to yet may be of a commit under way: they stay for a day."""
    backend.put_chunks("orphan", [b"x"], now=DAY)
    assert backend.sweep(now=2 * DAY - 1).chunks == 0
    assert chunks_of(backend, "orphan") == 1
    assert backend.sweep(now=2 * DAY).chunks == 1
    assert chunks_of(backend, "orphan") == 0


def test_what_is_pointed_to_stays(
    store: durastore.Store, backend: DynamoDBBackend, committed: Callable[..., str]
) -> None:
    """A result's chunks stay for ever, and so do a state's, however often it is swept."""
    blob = committed("key")
    store.checkpoint("run").save_progress(1, noise(500_000, 99))
    later = backend.time() + 400 * DAY
    for _ in range(2):
        assert backend.sweep(now=later).chunks == 0
    assert chunks_of(backend, blob) > 0
    assert store.checkpoint("run").load().step == 1


def test_chunks_go_with_the_record(backend: DynamoDBBackend, committed: Callable[..., str]) -> None:
    """Forgotten, or past retention and swept: the chunks go with it."""
    forgotten, swept = committed("forgotten"), committed("swept", retain=MINUTE)
    (seen,) = backend.read(["forgotten"])
    assert seen is not None
    assert backend.delete(seen)
    assert chunks_of(backend, forgotten) == 0
    assert backend.sweep(now=backend.time() + 2 * MINUTE).records == 1
    assert chunks_of(backend, swept) == 0


def test_a_state_that_is_replaced_lets_its_chunks_go(store: durastore.Store, backend: DynamoDBBackend) -> None:
    """Large states one after the other leave no more than the last, once swept."""
    ckpt = store.checkpoint("run")
    blobs = []
    for step in range(3):
        ckpt.save_progress(step, noise(300_000, step))
        stored = backend.load("run")
        assert stored is not None
        assert stored.state is not None
        assert stored.state.blob is not None
        blobs.append(stored.state.blob)
    assert backend.sweep(now=backend.time() + 2 * DAY).chunks == 2
    assert [chunks_of(backend, blob) > 0 for blob in blobs] == [False, False, True]
    assert ckpt.load() == (2, noise(300_000, 2))


def test_a_commit_that_lost_its_claim_leaves_chunks_to_the_sweep(
    store: durastore.Store, backend: DynamoDBBackend
) -> None:
    """They were written before the commit that failed: orphans, gone after a day."""
    packed = store.pack(noise(300_000))
    grant = granted(backend.claim(request("key", lease=0)))
    granted(backend.claim(request("key")))
    with pytest.raises(durastore.ClaimLost):
        backend.commit(grant, result=packed.payload)
    assert packed.payload.blob is not None
    assert backend.sweep().chunks == 0
    assert backend.sweep(now=backend.time() + 2 * DAY).chunks == 1
    assert chunks_of(backend, packed.payload.blob) == 0
