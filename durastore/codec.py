"""Codecs: how values become bytes. JSON by default, encrypted JSON by extra, any other by the `Codec` protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from durastore.errors import ConfigError, PayloadError

__all__ = ["Codec", "EncryptingCodec", "JSONCodec"]


class Codec(Protocol):
    """Turns values into bytes and back. ``decode(encode(value))`` is what every caller of a key gets.

    `name` is stored with each value and must be 1 to 40 characters of ``a-z 0-9 + . -``; a value of another codec is a
    `PayloadError`, never a wrong value.
    """

    name: str

    def encode(self, value: Any) -> bytes:
        """The value's bytes. Any exception means that this value has none."""
        ...

    def decode(self, data: bytes) -> Any:
        """The value. Any exception means that the bytes are damaged, or cannot be read with what this codec has."""
        ...


class JSONCodec:
    """JSON as Python writes it, in UTF-8: NaN and the infinities, big integers and every float survive.

    What JSON does not have comes back as what it has, to the first caller as to the later ones: tuples as lists, keys of
    dictionaries as strings.
    """

    name = "json"

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        self._decode = json.JSONDecoder().decode

    def encode(self, value: Any) -> bytes:
        return self._encode(value).encode("utf-8", "surrogatepass")

    def decode(self, data: bytes) -> Any:
        return self._decode(data.decode("utf-8", "surrogatepass"))


class EncryptingCodec:
    """Another codec's bytes, encrypted and authenticated by Fernet (AES-128-CBC and HMAC-SHA256; extra ``encryption``).

    The first key encrypts, every key decrypts: to rotate, put a new key in front, and drop the old one once nothing that it
    encrypted is needed. Keys are those of ``cryptography.fernet.Fernet.generate_key()``. Keys of records, run ids, owners
    and error texts are not encrypted. Raises `ConfigError` without the extra, or for a bad key.
    """

    def __init__(self, keys: Sequence[str | bytes], inner: Codec | None = None) -> None:
        try:
            from cryptography.fernet import Fernet, MultiFernet
        except ImportError as exc:
            raise ConfigError("encryption needs a package; run: pip install 'durastore[encryption]'") from exc
        if not keys:
            raise ConfigError("EncryptingCodec needs at least one key; make one with Fernet.generate_key()")
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError:
            raise ConfigError(
                "a key for EncryptingCodec is 32 bytes in URL-safe base64 (Fernet.generate_key())"
            ) from None
        self._inner = inner or JSONCodec()
        self.name = f"fernet+{self._inner.name}"

    def encode(self, value: Any) -> bytes:
        return self._fernet.encrypt(self._inner.encode(value))

    def decode(self, data: bytes) -> Any:
        from cryptography.fernet import InvalidToken

        try:
            plain = self._fernet.decrypt(data)
        except InvalidToken:
            raise PayloadError("no key of this EncryptingCodec decrypts the value, or it was changed") from None
        return self._inner.decode(plain)
