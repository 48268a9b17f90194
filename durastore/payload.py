"""Payloads: encoded values as stores keep them. One header line, then bytes; what does not fit inline goes in chunks.

The header is ``CODEC[ zlib][ size=N sha256=HEX chunks=N]`` and a newline: a person who looks into the table can read it, and a
value of another codec, or one with a chunk missing, is found out before it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from durastore.codec import Codec
from durastore.contract import Limits, Payload
from durastore.errors import PayloadError

if TYPE_CHECKING:
    import re

__all__ = ["PAYLOAD_BYTES_MAX", "Body", "Packed", "is_codec", "laid", "lost", "opened", "pack", "unpack"]

PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that an encoded result or state may have, on every store."""
_HEADER_MAX = 256
_LEVEL = 1
"""zlib's fastest: five times the speed of its default on JSON, for about a tenth more bytes."""
_LOST = b"!lost"
_CODEC = rb"[a-z0-9+.-]{1,40}"
_HEADER = rb"(" + _CODEC + rb")( zlib)?(?: size=(\d{1,9}) sha256=([0-9a-f]{64}) chunks=(\d{1,6}))?"


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
    payload, chunks = laid(Body(codec.name, raw), limits, blob)
    return Packed(payload, chunks, decoded)


@dataclass(frozen=True, slots=True)
class Body:
    """A stored value in the bytes of its codec, which need not be at hand."""

    codec: str | None
    """None for what has no readable header: a lost result, or bytes that some other program wrote."""
    data: bytes
    zipped: bool = False


def laid(body: Body, limits: Limits, blob: Callable[[], str]) -> tuple[Payload, Sequence[bytes]]:
    """A body cut to a store's limits: the payload, and the chunks to put under its blob first.

    Raises `PayloadError` for a body without a codec that does not fit inline.
    """
    data = body.data
    if body.codec is None:
        if len(data) > limits.inline:
            raise PayloadError(f"{len(data):,} bytes without a readable header do not fit into this store's records")
        return Payload(data), ()
    name = body.codec.encode() + (b" zlib" if body.zipped else b"")
    if len(data) + _HEADER_MAX <= limits.inline:
        return Payload(b"%b\n%b" % (name, data)), ()
    if not body.zipped:
        import zlib

        return laid(Body(body.codec, zlib.compress(data, _LEVEL), zipped=True), limits, blob)
    chunks = [data[start : start + limits.chunk] for start in range(0, len(data), limits.chunk)]
    header = b"%b size=%d sha256=%b chunks=%d\n" % (name, len(data), _checksum(data).encode(), len(chunks))
    return Payload(header, blob()), chunks


def opened(payload: Payload, fetch: Callable[[str], Sequence[bytes]]) -> Body:
    """The body of a payload, whatever codec wrote it. `fetch` reads the chunks of a blob.

    Raises `PayloadError` when chunks are missing or damaged.
    """
    header, separator, rest = payload.data.partition(b"\n")
    match = _match(header) if separator else None
    if payload.blob is None:
        if match is None or match[5]:
            return Body(None, payload.data)
        return Body(match[1].decode(), rest, zipped=bool(match[2]))
    if match is None or not match[5]:
        raise PayloadError("the stored value is damaged: it has no readable header")
    return Body(match[1].decode(), _whole(match, payload.blob, fetch), zipped=bool(match[2]))


def is_codec(name: object) -> bool:
    """Whether a codec may be called so."""
    import re

    return isinstance(name, str) and re.fullmatch(_CODEC.decode(), name) is not None


def _match(header: bytes) -> re.Match[bytes] | None:
    import re

    return re.fullmatch(_HEADER, header)


def _whole(match: re.Match[bytes], blob: str, fetch: Callable[[str], Sequence[bytes]]) -> bytes:
    return _joined(fetch(blob), size=int(match[3]), checksum=match[4].decode(), count=int(match[5]))


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
    match = _match(header)
    if match is None or not separator or bool(match[5]) != (payload.blob is not None):
        raise PayloadError("the stored value is damaged: it has no readable header")
    if match[1] != codec.name.encode():
        raise PayloadError(
            f"the value was written with the codec {match[1].decode()!r}, this store is open with {codec.name!r}"
        )
    if payload.blob is not None:
        body = _whole(match, payload.blob, fetch)
    return _decoded(_inflated(body) if match[2] else body, codec)


def _joined(chunks: Sequence[bytes], *, size: int, checksum: str, count: int) -> bytes:
    if not all(isinstance(chunk, (bytes, bytearray, memoryview)) for chunk in chunks):
        raise PayloadError("the stored value is damaged: a chunk holds no bytes")
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
