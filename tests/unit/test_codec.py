"""Codecs: a value comes back equal or not at all; a key that is not there is an error, never a wrong value."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

import durastore
from durastore.codec import EncryptingCodec, JSONCodec
from tests.unit.virtual import virtual

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
"""Lone surrogates, too."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


@given(JSON)
def test_json(value: Any) -> None:
    """Every JSON value of Python comes back equal, of the same type, in the same order."""
    codec = JSONCodec()
    assert same(codec.decode(codec.encode(value)), value)


@given(JSON)
def test_encrypted(value: Any) -> None:
    """Encrypted as plain."""
    codec = EncryptingCodec([KEY])
    assert same(codec.decode(codec.encode(value)), value)


KEY = Fernet.generate_key()


def test_json_is_for_people() -> None:
    """Compact UTF-8 that any JSON reader takes."""
    data = JSONCodec().encode({"b": ["é", 1], "a": 0.1})
    assert data == '{"b":["é",1],"a":0.1}'.encode()
    assert json.loads(data) == {"b": ["é", 1], "a": 0.1}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**53 + 1, 10**400, -0.0, 5e-324], ids=str)
def test_numbers(value: Any) -> None:
    """Numbers that others round, clip or refuse."""
    codec = JSONCodec()
    assert same(codec.decode(codec.encode(value)), value)


def test_nothing_readable() -> None:
    """What is encrypted shows neither the value nor its length to the byte, and differs each time."""
    codec = EncryptingCodec([KEY])
    first, second = codec.encode("a secret"), codec.encode("a secret")
    assert first != second
    assert b"secret" not in first
    assert len(codec.encode("a secret!")) == len(first)


def test_rotation() -> None:
    """The first key encrypts, all decrypt; a value of a key that was dropped is an error that says so."""
    old, new = Fernet.generate_key(), Fernet.generate_key()
    written = EncryptingCodec([old]).encode(1)
    both = EncryptingCodec([new, old])
    assert both.decode(written) == 1
    assert EncryptingCodec([new]).decode(both.encode(2)) == 2
    with pytest.raises(durastore.PayloadError, match="no key of this EncryptingCodec"):
        EncryptingCodec([new]).decode(written)


@pytest.mark.parametrize("place", [0, 9, -1])
def test_tampering(place: int) -> None:
    """A changed byte is found, wherever it is."""
    codec = EncryptingCodec([KEY])
    data = bytearray(codec.encode("value"))
    data[place] ^= 1
    with pytest.raises(durastore.PayloadError):
        codec.decode(bytes(data))


@pytest.mark.parametrize("keys", [[], ["short"], [b"\0" * 32], ["é" * 44]], ids=str)
def test_bad_keys(keys: list[Any]) -> None:
    """No key or a bad one is a setting to mend, and the message does not show it."""
    with pytest.raises(durastore.ConfigError) as raised:
        EncryptingCodec(keys)
    assert "short" not in str(raised.value)


def test_keys_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`DURASTORE_ENCRYPTION_KEYS`, comma-separated, the first encrypts; an empty one is as none."""
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    for value, name in ((f" {new} , {old},", "fernet+json"), (" , ", "json"), ("", "json")):
        monkeypatch.setenv("DURASTORE_ENCRYPTION_KEYS", value)
        with durastore.open("memory://") as store:
            assert store.codec.name == name
    monkeypatch.setenv("DURASTORE_ENCRYPTION_KEYS", f"{new},{old}")
    with durastore.open("memory://") as store:
        assert EncryptingCodec([new]).decode(store.codec.encode(1)) == 1
    monkeypatch.setenv("DURASTORE_ENCRYPTION_KEYS", "nonsense")
    with pytest.raises(durastore.ConfigError):
        durastore.open("memory://")


def test_values_of_another_codec() -> None:
    """A store opened with another codec than a value's says which, and shows no value; the effect is not repeated."""
    store, backend, _ = virtual()
    store.codec = EncryptingCodec([KEY])
    store.checkpoint("run").run_once("key", lambda: "secret")
    plain = durastore.Store(backend, clock=store.clock)
    ran: list[int] = []
    with pytest.raises(durastore.PayloadError, match=r"'fernet\+json'.*open with 'json'"):
        plain.checkpoint("run").run_once("key", lambda: ran.append(1))
    assert ran == []
    plain.keeper.close()


class Upper:
    """A codec of one's own, whose decoded value is not the one that went in."""

    name = "upper"

    def encode(self, value: Any) -> bytes:
        return value.upper().encode()  # type: ignore[no-any-return]

    def decode(self, data: bytes) -> Any:
        return data.decode()


def test_codec_of_ones_own() -> None:
    """The first caller gets what later ones will: the decoded value."""
    store, _, _ = virtual()
    store.codec = Upper()
    ckpt = store.checkpoint("run")
    assert [ckpt.run_once("key", lambda: "text") for _ in range(2)] == [("TEXT", "executed"), ("TEXT", "skipped")]


def test_encryption_is_an_extra() -> None:
    """Without the package, the error says what to install; plain JSON needs none of it."""
    program = (
        "import sys; sys.modules['cryptography'] = None; sys.modules['cryptography.fernet'] = None\n"
        "import durastore\n"
        "durastore.open('memory://').close()\n"
        "try: durastore.EncryptingCodec(['x'])\n"
        "except durastore.ConfigError as exc: print(exc)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'durastore[encryption]'" in done.stdout
