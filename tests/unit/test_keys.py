"""Keys: which names every store takes, and content hashes that never change."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durastore import InvalidKey, content_key
from durastore.keys import after_prefix, checked, digest, step_key


@dataclass
class Order:
    number: int
    items: list[str]


class Colour(enum.Enum):
    RED = "red"


GOLDEN = {
    "text": (("order-17",), "386c3eaea208db84"),
    "numbers": ((1, 1.0, True, -(2**70)), "e66571c7b8586e35"),
    "mapping": (({"b": [1, 2.5, None], "a": "é"},), "809005e5c963b1d6"),
    "several": (("ab", "c"), "72b298703bb30a9a"),
    "bytes": ((b"\x00\xff",), "ca3b2baa91c64add"),
    "moment": ((dt.datetime(2026, 6, 1, 12, tzinfo=dt.timezone.utc),), "ce997ccfc82b237c"),
    "rare": ((Decimal("1.10"), uuid.UUID(int=7), PurePosixPath("a/b")), "7e610643f22ea435"),
    "shaped": ((Order(17, ["x"]), Colour.RED), "9d08440475b5d542"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    """The outputs are frozen: a key stored years ago names the same content today."""
    parts, expected = GOLDEN[name]
    assert content_key(*parts)[:16] == expected


def test_prefix() -> None:
    """The prefix stands before the digits, as given."""
    assert content_key("a", prefix="charge:") == "charge:" + content_key("a")
    assert len(content_key("a")) == 64


def test_shapes_differ() -> None:
    """What looks alike but is not the same content has another key."""
    shapes: list[tuple[Any, ...]] = [
        ("ab", "c"), ("a", "bc"), ("abc",), (["ab", "c"],), ([["ab"], "c"],), ("1",), (1,), (1.0,), (True,), (b"1",),
        ({"1": 1},), ({1: 1},), ("a", None), ("a", ""), ("a", []), ("a", {}), ("a", 0), ("a", False), ("A",), ("é",),
        ("e\u0301",),
        (Decimal(1),), (Decimal("1.0"),), (dt.date(2026, 6, 1),), ("2026-06-01",),
    ]  # fmt: skip
    assert len({content_key(*shape) for shape in shapes}) == len(shapes)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shuffled(value[name]) for name in reversed(list(value))}
    return tuple(shuffled(item) for item in value) if isinstance(value, list) else value


@given(json_values)
def test_order_of_building(value: Any) -> None:
    """A dictionary built in another order, and a tuple in a list's place, hash the same."""
    assert digest(value) == digest(shuffled(value))


@given(json_values, json_values)
def test_no_collisions(one: Any, other: Any) -> None:
    """Two values have the same key exactly when they are the same but for the order of dictionaries."""
    assert (digest(one) == digest(other)) == (repr(sorted_deep(one)) == repr(sorted_deep(other)))


def sorted_deep(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: sorted_deep(value[name]) for name in sorted(value)}
    return [sorted_deep(item) for item in value] if isinstance(value, list) else value


def test_other_processes_agree() -> None:
    """Hash seeds of processes play no part."""
    program = "import durastore; print(durastore.content_key({'b': 1, 'a': [2, {'y': 3, 'x': 4}]}))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    "parts",
    [(), (None,), ("",), ([],), ({},), (b"",), (None, "", [])],
    ids=repr,
)
def test_empty(parts: tuple[Any, ...]) -> None:
    """A key of nothing would name everything."""
    with pytest.raises(InvalidKey, match="empty"):
        content_key(*parts)


@pytest.mark.parametrize(
    "value",
    [{1}, frozenset({1}), object(), lambda: 1, [object()], {"a": {1}}, 1j, "\ud800", Exception("x")],
    ids=lambda value: type(value).__name__,
)
def test_unstable(value: Any) -> None:
    """What has no stable content is refused, also deep inside."""
    with pytest.raises(InvalidKey):
        content_key("a", value)


def test_content_that_holds_itself() -> None:
    """Endless content is an error, not a crash."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidKey, match="holds itself"):
        content_key(endless)


@pytest.mark.parametrize(
    "name", ["a", " ", "a/b/..", "__x__", "é" * 512, "x" * 1024, "\U0001f600" * 256, "\x01\n\t"], ids=len
)
def test_good_names(name: str) -> None:
    """1 to 1,024 bytes of UTF-8, any characters but two kinds."""
    assert checked(name) == name


@pytest.mark.parametrize("name", ["", "x" * 1025, "é" * 513, "a\0b", "\ud800", None, 7, b"a"], ids=repr)
def test_bad_names(name: Any) -> None:
    """Everything else is refused before any store sees it."""
    with pytest.raises(InvalidKey):
        checked(name)


def test_step_keys() -> None:
    """The default key of a step is readable, and short enough for every run id."""
    assert step_key("run", 7) == "run:step:7"
    longest = "r" * 1024
    assert len(checked(step_key(longest, 7))) < 100
    assert step_key(longest, 7) != step_key("s" * 1024, 7)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
def test_after_prefix(prefix: str, text: str) -> None:
    """Exactly the names with a prefix lie from the prefix to its end, in the order of their bytes."""
    inside = prefix.encode() <= text.encode() < after_prefix(prefix).encode()
    assert inside == text.startswith(prefix)
