"""Payloads: encoded values as stores keep them. One header line, then bytes; what does not fit inline goes in chunks.

The header is ``CODEC[ zlib][ size=N sha256=HEX chunks=N]`` and a newline: a person who looks into the table can read it, and a
value of another codec, or one with a chunk missing, is found out before it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from durastore.codec import Codec
from durastore.contract import Limits, Payload
from durastore.errors import PayloadError

__all__ = ["PAYLOAD_BYTES_MAX", "Packed", "lost", "pack", "unpack"]

PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that an encoded result or state may have, on every store."""
_HEADER_MAX = 256
_LEVEL = 1
"""zlib's fastest: five times the speed of its default on JSON, for about a tenth more bytes."""
_LOST = b"!lost"
_HEADER = rb"([a-z0-9+.-]{1,40})( zlib)?(?: size=(\d{1,9}) sha256=([0-9a-f]{64}) chunks=(\d{1,6}))?"


@dataclass(frozen=True, slots=True)
class Packed:
    """A value ready to be stored: put `chunks` under `payload.blob`, then write the payload. `value` is what a reader gets."""

    payload: Payload
    chunks: Sequence[bytes]
    value: Any


def pack(value: Any, codec: Codec, limits: Limits, blob: Callable[[], str]) -> Packed:
    """Encode a value and cut it to the store's limits. `blob` draws an id for chunks, when there are any.

    Raises `PayloadError` when the codec cannot encode it, cannot read it back, or it is larger than 64 MiB.
    """
    raw, decoded = _encoded(value, codec)
    name = codec.name.encode()
    if len(raw) + _HEADER_MAX <= limits.inline:
        return Packed(Payload(b"%b\n%b" % (name, raw)), (), decoded)
    import zlib

    body = zlib.compress(raw, _LEVEL)
    if len(body) + _HEADER_MAX <= limits.inline:
        return Packed(Payload(b"%b zlib\n%b" % (name, body)), (), decoded)
    chunks = [body[start : start + limits.chunk] for start in range(0, len(body), limits.chunk)]
    header = b"%b zlib size=%d sha256=%b chunks=%d\n" % (name, len(body), _checksum(body).encode(), len(chunks))
    return Packed(Payload(header, blob()), chunks, decoded)


def _checksum(body: bytes) -> str:
    from hashlib import sha256

    return sha256(body).hexdigest()


def _encoded(value: Any, codec: Codec) -> tuple[bytes, Any]:
    try:
        raw = codec.encode(value)
        decoded = codec.decode(raw)
    except Exception as exc:
        raise PayloadError(f"the {codec.name} codec cannot encode a {type(value).__name__}: {_brief(exc)}") from exc
    if len(raw) > PAYLOAD_BYTES_MAX:
        raise PayloadError(
            f"the encoded value has {len(raw):,} bytes; at most {PAYLOAD_BYTES_MAX:,} fit. Store it elsewhere and return its name"
        )
    return raw, decoded


def _brief(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}".split("\n", 1)[0][:200]


def lost(reason: str) -> Payload:
    """The payload of an effect that was done while its result could not be kept; `unpack` raises `PayloadError`."""
    return Payload(_LOST + b"\n" + reason[:500].encode("utf-8", "replace"))


def unpack(payload: Payload, codec: Codec, fetch: Callable[[str], Sequence[bytes]]) -> Any:
    """The value. `fetch` reads the chunks of a blob.

    Raises `PayloadError` when the result was lost, chunks are missing or damaged, or the codec is not the one it was written
    with.
    """
    header, separator, body = payload.data.partition(b"\n")
    if header == codec.name.encode() and separator and payload.blob is None:  # by far the most
        return _decoded(body, codec)
    if header == _LOST:
        raise PayloadError(f"the effect was done, but its result was lost: {body.decode('utf-8', 'replace')}")
    import re

    match = re.fullmatch(_HEADER, header)
    if match is None or not separator or bool(match[5]) != (payload.blob is not None):
        raise PayloadError("the stored value is damaged: it has no readable header")
    if match[1] != codec.name.encode():
        raise PayloadError(
            f"the value was written with the codec {match[1].decode()!r}, this store is open with {codec.name!r}"
        )
    if payload.blob is not None:
        body = _joined(fetch(payload.blob), size=int(match[3]), checksum=match[4].decode(), count=int(match[5]))
    return _decoded(_inflated(body) if match[2] else body, codec)


def _joined(chunks: Sequence[bytes], *, size: int, checksum: str, count: int) -> bytes:
    body = b"".join(chunks)
    if len(chunks) != count or len(body) != size or _checksum(body) != checksum:
        raise PayloadError(
            f"the stored value is damaged: {len(chunks)} of {count} chunks and {len(body):,} of {size:,} bytes are there"
            + (", with another checksum" if len(body) == size else "")
        )
    return body


def _inflated(body: bytes) -> bytes:
    import zlib

    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(body, PAYLOAD_BYTES_MAX + 1)
    except zlib.error as exc:
        raise PayloadError(f"the stored value is damaged: {exc}") from None
    if not stream.eof:
        raise PayloadError(
            "the stored value is damaged: its compressed bytes are cut short, or hold more than the limit"
        )
    return raw


def _decoded(raw: bytes, codec: Codec) -> Any:
    try:
        return codec.decode(raw)
    except PayloadError:
        raise
    except Exception as exc:
        raise PayloadError(f"the stored value is damaged: {_brief(exc)}") from exc
