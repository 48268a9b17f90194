"""Payloads: every value comes back as it was, on the first call as on a replay; what is damaged is never a shorter value."""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

import durastore
from durastore import payload
from durastore.codec import EncryptingCodec, JSONCodec
from durastore.contract import Limits, Payload

LIMITS = Limits(inline=2000, chunk=700)
VALUES = [
    None, {}, [], 0, False, "", True, 0.1, 1e308, -0.0, 5e-324, 2**63, 2**53 + 1, -(2**64), 10**300, "\0", "\u2028", "\U0001f600",
    "é", "e\u0301", "\ud800", {"b": 1, "a": 2}, [[[[]]]], {"": None}, "x" * 1999, "x" * 100_000, [0] * 5000,
]  # fmt: skip


class Chunked:
    """Packs and unpacks by way of a dictionary of chunks."""

    def __init__(self, codec: durastore.Codec | None = None) -> None:
        self.codec = codec or JSONCodec()
        self.chunks: dict[str, list[bytes]] = {}

    def pack(self, value: Any) -> payload.Packed:
        packed = payload.pack(value, self.codec, LIMITS, lambda: f"blob-{len(self.chunks)}")
        if packed.payload.blob is not None:
            self.chunks[packed.payload.blob] = list(packed.chunks)
        return packed

    def unpack(self, stored: Payload) -> Any:
        return payload.unpack(stored, self.codec, lambda blob: self.chunks.get(blob, []))


def identical(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20].encode("ascii", "replace").decode())
@pytest.mark.parametrize("encrypted", [False, True])
def test_round_trip(value: Any, *, encrypted: bool) -> None:
    """Equal, of the same type, in the same order, whatever its size; and the first caller gets what later ones get."""
    kept = Chunked(EncryptingCodec([Fernet.generate_key()]) if encrypted else None)
    packed = kept.pack(value)
    assert len(packed.payload.data) <= LIMITS.inline
    assert all(len(chunk) <= LIMITS.chunk for chunk in packed.chunks)
    assert identical(packed.value, value)
    assert identical(kept.unpack(packed.payload), value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_floats_that_json_lacks(value: float) -> None:
    """NaN and the infinities survive."""
    kept = Chunked()
    assert repr(kept.unpack(kept.pack([value]).payload)) == repr([value])


def test_deep_nesting() -> None:
    """Hundreds of levels survive."""
    value: list[Any] = []
    for _ in range(400):
        value = [value]
    kept = Chunked()
    assert kept.unpack(kept.pack(value).payload) == value


@given(st.binary(max_size=20_000))
def test_every_size(data: bytes) -> None:
    """Inline, compressed or in chunks: the same value."""
    kept = Chunked()
    text = data.hex()
    assert kept.unpack(kept.pack(text).payload) == text


def test_replay_equals_run() -> None:
    """What JSON lacks comes back as what it has, to the first caller too."""
    assert Chunked().pack({"t": (1, 2), 3: "x"}).value == {"t": [1, 2], "3": "x"}


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", 1j, 10**5000], ids=["object", "set", "bytes", "complex", "huge"]
)
def test_cannot_be_encoded(value: Any) -> None:
    """What the codec has no words for is an error that names the type."""
    with pytest.raises(durastore.PayloadError, match=type(value).__name__):
        Chunked().pack(value)


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the same everywhere, and the error says what to do."""
    monkeypatch.setattr(payload, "PAYLOAD_BYTES_MAX", 1000)
    Chunked().pack("x" * 998)
    with pytest.raises(durastore.PayloadError, match=r"1,001 bytes; at most 1,000 fit.*Store it elsewhere"):
        Chunked().pack("x" * 999)


LARGE = os.urandom(5000).hex()


@pytest.mark.parametrize("damage", ["missing", "empty", "first", "last", "swapped", "changed", "short", "more"])
def test_damaged_chunks(damage: str) -> None:
    """A chunk that is missing, cut, changed or in another place is found out."""
    kept = Chunked()
    stored = kept.pack(LARGE).payload
    chunks = kept.chunks["blob-0"]
    changes = {
        "missing": kept.chunks.clear,
        "empty": chunks.clear,
        "first": lambda: chunks.pop(0),
        "last": chunks.pop,
        "swapped": chunks.reverse,
        "changed": lambda: chunks.__setitem__(1, bytes([chunks[1][0] ^ 1]) + chunks[1][1:]),
        "short": lambda: chunks.__setitem__(1, chunks[1][:-1]),
        "more": lambda: chunks.append(b"x"),
    }
    changes[damage]()
    with pytest.raises(durastore.PayloadError, match="damaged"):
        kept.unpack(stored)


@pytest.mark.parametrize(
    "data",
    [b"", b"json", b"json\n",
     b"json\n{", b"json\n\xff", b"json zlib\nx", b"json zlib\n", b"\0\0\n1", b"json size=1\n1", b"JSON\n1",
     b"json zlib size=9 sha256=" + b"0" * 64 + b" chunks=1\n", b"x" * 300 + b"\n1"],
)  # fmt: skip
def test_damaged_inline(data: bytes) -> None:
    """Bytes that nobody here wrote are an error, never a value and never a crash."""
    with pytest.raises(durastore.PayloadError):
        Chunked().unpack(Payload(data))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Whatever stands in the store: a value, or a `PayloadError`."""
    for blob in (None, "blob"):
        with contextlib.suppress(durastore.PayloadError):
            Chunked().unpack(Payload(data, blob))


def test_decompression_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that unpack into gigabytes are refused."""
    import zlib

    monkeypatch.setattr(payload, "PAYLOAD_BYTES_MAX", 1000)
    with pytest.raises(durastore.PayloadError, match="hold more than the limit"):
        Chunked().unpack(Payload(b"json zlib\n" + zlib.compress(b'"' + b"x" * 100_000 + b'"')))


def test_another_codec() -> None:
    """A value of another codec is an error that names both."""
    plain, secret = Chunked(), Chunked(EncryptingCodec([Fernet.generate_key()]))
    with pytest.raises(durastore.PayloadError, match=r"fernet\+json.*'json'"):
        plain.unpack(secret.pack(1).payload)
    with pytest.raises(durastore.PayloadError, match="with the codec 'json'"):
        secret.unpack(plain.pack(1).payload)


def test_key_rotation() -> None:
    """The first key encrypts, every key decrypts; without the old key its values are closed."""
    old, new = Fernet.generate_key(), Fernet.generate_key()
    written = Chunked(EncryptingCodec([old])).pack("secret").payload
    assert b"secret" not in written.data
    assert Chunked(EncryptingCodec([new, old])).unpack(written) == "secret"
    rotated = Chunked(EncryptingCodec([new, old])).pack("secret").payload
    assert Chunked(EncryptingCodec([new])).unpack(rotated) == "secret"
    with pytest.raises(durastore.PayloadError, match="no key"):
        Chunked(EncryptingCodec([new])).unpack(written)


@pytest.mark.parametrize("keys", [[], ["short"], [b"x" * 44]])
def test_bad_encryption_keys(keys: list[Any]) -> None:
    """A key that is none is told before anything is written with it."""
    with pytest.raises(durastore.ConfigError, match="key"):
        EncryptingCodec(keys)


def test_keys_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`DURASTORE_ENCRYPTION_KEYS` is what the command line and every worker read."""
    monkeypatch.setenv(
        "DURASTORE_ENCRYPTION_KEYS", f"{Fernet.generate_key().decode()}, {Fernet.generate_key().decode()}"
    )
    with durastore.open("memory://") as store:
        assert store.codec.name == "fernet+json"
        store.checkpoint("run").run_once("key", lambda: "secret")
        assert store.record("key").result == "secret"
        assert b"secret" not in store.backend.read(["key"])[0].result.data


def test_lost_result() -> None:
    """A result that was lost says so, and why."""
    with pytest.raises(durastore.PayloadError, match=r"was done, but its result was lost: too big"):
        Chunked().unpack(payload.lost("too big"))
