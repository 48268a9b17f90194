"""Where a request ends and where its answer does, in the four protocols that stores speak, and how each says "not now".

Just enough of each: PostgreSQL's messages, MySQL's packets, HTTP/1.1 with a length, and the frames of HTTP/2 that carry unary
gRPC calls. Headers of HTTP/2 are passed on, never changed or left out, since both ends compress them by what they have seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from typing import NamedTuple, Protocol

__all__ = ["FRAMINGS", "Framing", "Piece"]

_TLS_REQUESTS = {(80877103).to_bytes(4, "big"), (80877104).to_bytes(4, "big")}
"""PostgreSQL's requests for TLS and for GSSAPI, which come before a session starts."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _WINDOW_UPDATE = 0, 1, 3, 8
_END_STREAM, _END_HEADERS = 0x1, 0x4
_CANCEL = (8).to_bytes(4, "big")
_FRAME_HEAD = 9


class Piece(NamedTuple):
    """What is passed on in one go. `stream`: which request it completes, or which answer it is of; None for neither."""

    data: bytes
    stream: int | None = None
    reply: bytes = b""
    """What the client is told at once, instead of passing `data` on."""


class Framing(Protocol):
    """One connection, seen from between."""

    def sent(self, data: bytes) -> Iterator[Piece]:
        """What came from the client, in pieces that end where requests do."""
        ...

    def answered(self, data: bytes) -> Iterator[Piece]:
        """What came from the server. `Piece.stream` marks what an answer can't do without."""
        ...

    def refusal(self, kind: str, stream: int) -> tuple[bytes, bytes]:
        """(To the client, to the server) in place of a request: "unavailable", "too much" or "no right" (``deny``)."""
        ...

    ends_on_refusal: bool
    """Whether the connection ends with it."""


class _PostgreSQL:
    """Sync and simple Query each ask for one answer. What comes before them is held back, so that no half arrives."""

    ends_on_refusal = True
    _codes: Mapping[str, bytes] = {"refuse": b"57P01", "throttle": b"53300", "deny": b"42501"}

    def __init__(self) -> None:
        self._pending, self._held, self._started = b"", b"", False

    def sent(self, data: bytes) -> Iterator[Piece]:
        self._pending += data
        while message := self._message():
            if not self._started and message[4:8] in _TLS_REQUESTS:
                yield Piece(b"", None, b"N")
                continue
            kind = message[:1] if self._started else b""
            self._started = True
            self._held += message
            if kind in (b"S", b"Q"):
                yield Piece(self._take(), 0)
            elif kind in (b"", b"p", b"X", b"H"):
                yield Piece(self._take())

    def _message(self) -> bytes:
        head = 1 if self._started else 0
        if len(self._pending) < head + 4:
            return b""
        length = head + int.from_bytes(self._pending[head : head + 4], "big")
        if len(self._pending) < length:
            return b""
        message, self._pending = self._pending[:length], self._pending[length:]
        return message

    def _take(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def answered(self, data: bytes) -> Iterator[Piece]:
        yield Piece(data, 0)

    def refusal(self, kind: str, stream: int) -> tuple[bytes, bytes]:  # noqa: ARG002  one stream only
        fields = b"SFATAL\0VFATAL\0C" + self._codes[kind] + b"\0Mby the proxy\0\0"
        return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields, b""


class _MySQL:
    """A command begins a new sequence of packets."""

    ends_on_refusal = True
    _codes: Mapping[str, int] = {"refuse": 1053, "throttle": 1040, "deny": 1142}

    def __init__(self) -> None:
        self._pending = b""

    def sent(self, data: bytes) -> Iterator[Piece]:
        self._pending += data
        while len(self._pending) >= 4:
            length = 4 + int.from_bytes(self._pending[:3], "little")
            if len(self._pending) < length:
                return
            packet, self._pending = self._pending[:length], self._pending[length:]
            yield Piece(packet, 0 if packet[3] == 0 else None)

    def answered(self, data: bytes) -> Iterator[Piece]:
        yield Piece(data, 0)

    def refusal(self, kind: str, stream: int) -> tuple[bytes, bytes]:  # noqa: ARG002  one stream only
        body = b"\xff" + self._codes[kind].to_bytes(2, "little") + b"#08S01by the proxy"
        return len(body).to_bytes(3, "little") + b"\1" + body, b""


class _HTTP1:
    """Requests have a ``Content-Length``, as botocore's do."""

    ends_on_refusal = False
    _codes: Mapping[str, tuple[int, str]] = {
        "refuse": (503, "com.amazon.coral.availability#ServiceUnavailableException"),
        "throttle": (400, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"),
        "deny": (400, "com.amazon.coral.service#AccessDeniedException"),
    }

    def __init__(self) -> None:
        self._pending = b""

    def sent(self, data: bytes) -> Iterator[Piece]:
        self._pending += data
        while length := self._length():
            request, self._pending = self._pending[:length], self._pending[length:]
            yield Piece(request, 0)

    def _length(self) -> int:
        """Of the first request, 0 as long as it is not whole."""
        head, end, _ = self._pending.partition(b"\r\n\r\n")
        if not end:
            return 0
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
        length = len(head) + len(end) + int(fields.get(b"content-length", b"0"))
        return length if len(self._pending) >= length else 0

    def answered(self, data: bytes) -> Iterator[Piece]:
        yield Piece(data, 0)

    def refusal(self, kind: str, stream: int) -> tuple[bytes, bytes]:  # noqa: ARG002  one stream only
        status, name = self._codes[kind]
        body = json.dumps({"__type": name, "message": "by the proxy"}).encode()
        head = f"HTTP/1.1 {status} -\r\nDate: {formatdate(usegmt=True)}\r\nContent-Type: application/x-amz-json-1.0\r\n"
        return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body, b""


class _GRPC:
    """A unary call is asked when the client has ended its stream, and answered by the headers that end the server's."""

    ends_on_refusal = False
    _codes: Mapping[str, bytes] = {"refuse": b"14", "throttle": b"8", "deny": b"7"}

    def __init__(self) -> None:
        self._pending, self._answers = b"", b""
        self._preface = len(_PREFACE)
        self._refused: set[int] = set()

    def sent(self, data: bytes) -> Iterator[Piece]:
        if self._preface:
            data, preface = data[self._preface :], data[: self._preface]
            self._preface -= len(preface)
            yield Piece(preface)
        self._pending += data
        while frame := _first_frame(self._pending):
            self._pending = self._pending[len(frame) :]
            ends = frame[3] in (_DATA, _HEADERS) and frame[4] & _END_STREAM
            yield Piece(frame, _stream(frame) if ends else None)

    def answered(self, data: bytes) -> Iterator[Piece]:
        self._answers += data
        while frame := _first_frame(self._answers):
            self._answers = self._answers[len(frame) :]
            if _stream(frame) in self._refused and frame[3] != _HEADERS:
                continue
            ends = frame[3] == _HEADERS and frame[4] & _END_STREAM
            yield Piece(frame, _stream(frame) if ends else None)

    def refusal(self, kind: str, stream: int) -> tuple[bytes, bytes]:
        """Headers alone, in literals, so that nothing of either end's compression changes; the server hears of a cancellation."""
        self._refused.add(stream)
        fields = {
            b"content-type": b"application/grpc",
            b"grpc-status": self._codes[kind],
            b"grpc-message": b"by the proxy",
        }
        block = b"\x88" + b"".join(b"\0" + _literal(name) + _literal(value) for name, value in fields.items())
        told = _frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, block)
        return told, _frame(_RST_STREAM, 0, stream, _CANCEL)


def _first_frame(data: bytes) -> bytes:
    """Empty as long as it is not whole."""
    length = _FRAME_HEAD + int.from_bytes(data[:3], "big")
    return data[:length] if len(data) >= max(length, _FRAME_HEAD) else b""


def _stream(frame: bytes) -> int:
    return int.from_bytes(frame[5:9], "big") & 0x7FFFFFFF


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def _literal(text: bytes) -> bytes:
    return bytes((len(text),)) + text


FRAMINGS: Mapping[str, Callable[[], Framing]] = {
    "postgresql": _PostgreSQL,
    "mysql": _MySQL,
    "dynamodb": _HTTP1,
    "firestore": _GRPC,
}
"""By URL scheme."""
