"""Keys: what names a side effect. Checks that every store applies alike, and content hashes that never change."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from durastore.errors import InvalidKey

__all__ = ["KEY_BYTES_MAX", "after_prefix", "checked", "content_key", "digest", "step_key"]

KEY_BYTES_MAX = 1024
"""Bytes of UTF-8 that a key or run id may have, on every store."""
_VERSION = b"durastore-content-1"
_LAST, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000


def checked(name: str, what: str = "key") -> str:
    """The name itself. Raises `InvalidKey` unless it is 1 to 1,024 bytes of UTF-8 without NUL and lone surrogates."""
    if not isinstance(name, str):
        raise InvalidKey(f"a {what} is a str, not {type(name).__name__}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidKey(f"the {what} {name!r} holds a lone surrogate, which is not UTF-8") from None
    if not 0 < size <= KEY_BYTES_MAX:
        raise InvalidKey(
            f"a {what} has 1 to {KEY_BYTES_MAX} bytes of UTF-8, this one has {size}: {name[:40]!r}; content_key() shortens"
        )
    if "\0" in name:
        raise InvalidKey(f"the {what} {name!r} holds a NUL character")
    return name


def content_key(*parts: Any, prefix: str = "") -> str:
    """``prefix`` and 64 hexadecimal digits that depend on the content of `parts` alone.

    Equal content gives an equal key in every process, on every machine and in every version of this package: dictionaries
    hash the same in any order, and each part is length-prefixed, so that ``("ab", "c")`` and ``("a", "bc")`` differ. ``1``,
    ``1.0``, ``True`` and ``"1"`` differ. SHA-256.

    Hashes None, bool, int, float, str, bytes, lists and tuples (alike), dictionaries, dataclasses (as their fields), enums
    (as their values), dates and times, Decimal, UUID and pure paths. Raises `InvalidKey` for what has no stable content (sets,
    other objects), and when all parts are None or empty, since such a key would name everything.
    """
    if all(_is_empty(part) for part in parts):
        raise InvalidKey("content_key() needs a part that says what is processed: all parts are None or empty")
    return prefix + digest(*parts)


def _is_empty(part: Any) -> bool:
    return part is None or (isinstance(part, (str, bytes, bytearray, list, tuple, dict)) and len(part) == 0)


def digest(*parts: Any) -> str:
    """The hexadecimal digits of `content_key`, without its rule on empty parts. Raises `InvalidKey`."""
    from hashlib import sha256

    try:
        return sha256(_VERSION + b"".join(_canonical(part) for part in parts)).hexdigest()
    except RecursionError:
        raise InvalidKey("the content holds itself, or is nested too deeply to hash") from None


def step_key(run_id: str, step: int) -> str:
    """The default key of a run's step: ``RUN:step:N``, the run id hashed when the key would be too long."""
    key = f"{run_id}:step:{step}"
    return key if len(key.encode()) <= KEY_BYTES_MAX else f"{digest(run_id)}:step:{step}"


def after_prefix(prefix: str) -> str:
    """The first string after all that begin with `prefix`, in the order of code points, which is that of UTF-8's bytes."""
    while prefix:
        last = ord(prefix[-1])
        prefix = prefix[:-1]
        if last < _LAST:
            return prefix + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)
    return chr(_LAST) * (KEY_BYTES_MAX // 4 + 1)  # longer than any key


def _tagged(tag: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(content), content)


def _canonical(value: Any) -> bytes:
    if isinstance(value, enum.Enum):
        return _canonical(value.value)
    if isinstance(value, (list, tuple)):
        return _tagged(b"l", b"".join(map(_canonical, value)))
    if isinstance(value, dict):
        return _tagged(b"d", b"".join(sorted(_canonical(name) + _canonical(item) for name, item in value.items())))
    scalar = _scalar(value)
    if scalar is not None:
        return scalar
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _canonical({item.name: getattr(value, item.name) for item in dataclasses.fields(value)})
    raise InvalidKey(
        f"cannot hash a {type(value).__name__} stably; pass its fields as str, int, bytes, list or dict instead"
    )


def _scalar(value: Any) -> bytes | None:
    if value is None:
        return b"n0:"
    if isinstance(value, str):
        return _tagged(b"s", _utf8(value))
    if isinstance(value, bool):
        return b"b1:1" if value else b"b1:0"
    if isinstance(value, int):
        return _tagged(b"i", b"%x" % value)  # hexadecimal: decimal digits are limited and slow for huge ones
    if isinstance(value, float):
        return _tagged(b"f", repr(float(value)).encode())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _tagged(b"y", bytes(value))
    return _rare_scalar(value)


def _rare_scalar(value: Any) -> bytes | None:
    import datetime as dt
    from decimal import Decimal
    from pathlib import PurePath
    from uuid import UUID

    if isinstance(value, (dt.date, dt.time)):
        return _tagged(b"t", value.isoformat().encode())
    for name, kind in (("Decimal", Decimal), ("UUID", UUID), ("path", PurePath)):
        if isinstance(value, kind):
            return _tagged(b"x", f"{name} {value}".encode())
    return None


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidKey(f"{value[:40]!r} holds a lone surrogate, which is not UTF-8") from None
