"""VALUE-2 and VALUE-3: values through the codec, at the level of `Store` and `Checkpoint`."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from durastore.checkpoint import Checkpoint
from durastore.codec import JSONCodec
from durastore.conformance.client import Client, nonce
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause
from durastore.conformance.surface import surfaced
from durastore.contract import Payload, StoredRecord
from durastore.errors import PayloadError
from durastore.store import Store

__all__ = ["VALUES", "ValueClauses"]

VALUES: tuple[Any, ...] = (
    *(None, {}, [], 0, False, "", True, [None], [[]], [{}], {"": ""}, {"a": None}),
    *(0.1, -0.0, 1e308, 5e-324, 1.0, 1e22, math.pi, 2**53 + 1, 2**63, -(2**63) - 1, 2**200, 10**300),
    *("\0", "a\0b", "é", "e\u0301", "😀", "\ud800", "\udfff\ud800", "\ufeff", "\u2028", "\x7f\x1b", " ", "null", "1"),
    *(math.nan, math.inf, -math.inf, [math.nan, {"x": math.inf}]),
    *({"b": 1, "a": 2, "": 3, "B": 4, "é": 5, "10": 6, "9": 7}, {"nested": {"list": [1, [2, [3, {"4": [5.0]}]]]}}),
)
"""What other systems change on the way: falsy ones, floats, large integers, odd characters, NaN, the order of keys."""
DEPTH = 200
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 é😀"


@contextmanager
def _stores(harness: Harness) -> Iterator[tuple[Store, Store]]:
    """Two clients as applications have them, with plain JSON whatever the environment says."""
    stores = [surfaced(Store(harness.open(), codec=JSONCodec())) for _ in range(2)]
    with stores[0] as first, stores[1] as second:
        yield first, second


def _exactly(value: Any) -> str:
    """A text that is equal only for values equal in type, order and every bit that a reader could tell."""
    return json.dumps(value)


def _same(value: Any) -> Any:
    return value


def _forbidden() -> Any:
    raise AssertionError("a committed effect is not run again")


def _once_and_replayed(first: Checkpoint, second: Checkpoint, key: str, effect: Callable[[], Any]) -> list[Any]:
    executed, replayed = first.run_once(key, effect), second.run_once(key, _forbidden)
    assert (executed.status, replayed.status) == ("executed", "skipped")
    return [executed.value, replayed.value]


def _nested(depth: int) -> Any:
    value: Any = "leaf"
    for level in range(depth):
        value = [value] if level % 2 else {"level": value}
    return value


def _text(characters: int) -> str:
    """Text that does not compress to nothing, the same each time."""
    return "".join(random.Random(characters).choices(_CHARACTERS, k=characters))  # noqa: S311  test data


class ValueClauses:
    """One test or more for each VALUE clause that the codec has a part in."""

    @clause("VALUE-2")
    def test_value_2_results(self, harness: Harness) -> None:
        """Every value comes back from the first call, from a replay and from the record: same value, type and order."""
        with _stores(harness) as (store, other):
            first, second = store.checkpoint("run"), other.checkpoint("run")
            for number, value in enumerate(VALUES):
                answers = _once_and_replayed(first, second, f"key-{number}", partial(_same, value))
                record = other.record(f"key-{number}")
                assert record is not None
                assert [_exactly(answer) for answer in (*answers, record.result)] == [_exactly(value)] * 3

    @clause("VALUE-2")
    def test_value_2_deep_nesting(self, harness: Harness) -> None:
        """A deeply nested value comes back whole."""
        with _stores(harness) as (store, other):
            value = _nested(DEPTH)
            answers = _once_and_replayed(store.checkpoint("run"), other.checkpoint("run"), "deep", lambda: value)
            assert answers == [value, value]

    @clause("VALUE-2")
    def test_value_2_states(self, harness: Harness) -> None:
        """Every value comes back as a run's state, saved alone and together with a result."""
        with _stores(harness) as (store, other):
            first, second = store.checkpoint("run"), other.checkpoint("run")
            for step, value in enumerate(VALUES):
                if step % 2:
                    first.save_progress(step, value)
                else:
                    first.run_once(f"key-{step}", lambda: None, progress=(step, value))
                loaded = second.load()
                assert (loaded.step, _exactly(loaded.state)) == (step, _exactly(value))

    @clause("VALUE-3")
    def test_value_3_every_size(self, harness: Harness) -> None:
        """Texts around each limit come back: inline, compressed, one chunk, several; as a result and as a state."""
        with _stores(harness) as (store, other):
            first, second = store.checkpoint("run"), other.checkpoint("run")
            limits = store.backend.limits
            edges = {limits.inline // 2, limits.inline - 300, limits.inline, limits.inline + 1, limits.chunk}
            for step, size in enumerate(sorted({*edges, 1_000_000, 2 * limits.chunk + 1}), 1):
                value = _text(size)
                answers = _once_and_replayed(first, second, f"key-{step}", partial(_same, value))
                assert all(answer == value for answer in answers), f"a result of {size} characters"
                first.save_progress(step, value)
                same = second.load() == (step, value)
                assert same, f"a state of {size} characters"

    @clause("VALUE-3")
    def test_value_3_missing_chunk(self, harness: Harness) -> None:
        """With its chunks cut short, swapped or gone, a value is a `PayloadError`, never a shorter value."""
        client = Client(harness)
        with _stores(harness) as (store, other):
            store.checkpoint("run").run_once("whole", lambda: _text(3 * store.backend.limits.chunk))
            header = _result_of(client.record("whole"))
            chunks = list(store.backend.get_chunks(header.blob or ""))
            assert len(chunks) > 1, "a value of several chunks"
            damages = {
                "cut short": [*chunks[:-1], chunks[-1][:-1]],
                "missing": chunks[:-1],
                "swapped": [*chunks[1:], chunks[0]],
                "changed": [chunks[0][:-1] + bytes([chunks[0][-1] ^ 1]), *chunks[1:]],
                "gone": [],
            }
            for damage, left in damages.items():
                blob = nonce()
                if left:
                    client.backend.put_chunks(blob, left, now=BASE)
                client.backend.commit(client.grant(damage), result=Payload(header.data, blob), now=BASE)
                with pytest.raises(PayloadError, match="damaged"):
                    other.checkpoint("run").run_once(damage, _forbidden)


def _result_of(record: StoredRecord) -> Payload:
    assert record.result is not None
    return record.result
