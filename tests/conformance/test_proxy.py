"""The fault proxy knows where requests end, however they are cut on the wire, and changes nothing that it is not told to."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durastore.conformance.framing import FRAMINGS, _frame
from durastore.conformance.proxy import Proxy
from durastore.conformance.routes import Route, route_of


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def _packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


def _post(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nContent-Length: %d\r\nX-Amz-Target: x\r\n\r\n" % len(body) + body


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TALKS: dict[str, tuple[bytes, int]] = {
    "postgresql": (
        _message(b"", b"\0\3\0\0user\0u\0\0")
        + _message(b"p", b"secret\0")
        + _message(b"P", b"\0SELECT 1\0\0\0")
        + _message(b"B", b"x" * 300)
        + _message(b"S", b"")
        + _message(b"Q", b"COMMIT\0")
        + _message(b"X", b""),
        2,
    ),
    "mysql": (_packet(1, b"login") + _packet(0, b"\3SELECT 1") + _packet(0, b"\3COMMIT") + _packet(1, b"more"), 2),
    "dynamodb": (_post(b"{}") + _post(b"\r\n\r\n" * 20) + _post(b""), 3),
    "firestore": (
        PREFACE
        + _frame(4, 0, 0, b"")
        + _frame(1, 4, 1, b"headers")
        + _frame(0, 0, 1, b"half")
        + _frame(1, 4, 3, b"headers")
        + _frame(0, 1, 3, b"whole")
        + _frame(0, 1, 1, b"rest"),
        2,
    ),
}
"""What a client sends, and how many requests that is."""


@pytest.mark.parametrize("scheme", TALKS)
@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 500), max_size=12))
def test_requests_in_any_pieces(scheme: str, cuts: list[int]) -> None:
    """Cut anywhere, the same bytes go on, and the same requests are counted."""
    talk, requests = TALKS[scheme]
    framing = FRAMINGS[scheme]()
    edges = [0, *sorted(cut for cut in cuts if cut < len(talk)), len(talk)]
    pieces = [piece for start, end in itertools.pairwise(edges) for piece in framing.sent(talk[start:end])]
    assert b"".join(piece.data for piece in pieces) == talk
    assert sum(piece.stream is not None for piece in pieces) == requests


def test_postgresql_without_tls() -> None:
    """A request for TLS is refused on the spot, since nobody could look into it."""
    [piece] = FRAMINGS["postgresql"]().sent(b"\0\0\0\x08" + (80877103).to_bytes(4, "big"))
    assert (piece.data, piece.reply) == (b"", b"N")


def test_routes() -> None:
    """Where there is a network that can be looked into, and where there is none."""
    assert route_of("postgresql://u:p@db:1234/x") == Route("postgresql", "db", 1234)
    assert route_of("mysql://db/x") == Route("mysql", "db", 3306)
    assert route_of("firestore://p/d?emulator_host=localhost:8080") == Route("firestore", "localhost", 8080)
    assert route_of("dynamodb://t?endpoint_url=http://127.0.0.1:8000") == Route("dynamodb", "127.0.0.1", 8000)
    for url in ("sqlite:///x.db", "memory://", "firestore://p/d", "dynamodb://t?region=eu-central-1"):
        assert route_of(url) is None
    assert route_of("postgresql://db/x?sslmode=verify-full") is None
    assert route_of("dynamodb://t?endpoint_url=https://example.org") is None


@pytest.fixture
def server() -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each request of HTTP/1.1 alike, and what arrived at it."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        while data := client.recv(65536):
            heard.append(data)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1], heard
    listener.close()


def _ask(proxy: Proxy) -> bytes:
    port = int(proxy.through("dynamodb://t?endpoint_url=http://127.0.0.1:1").rpartition("%3A")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(_post(b"{}"))
        try:
            return client.recv(65536)
        except ConnectionError:
            return b"reset"


def test_faults(server: tuple[int, list[bytes]]) -> None:
    """Each fault is what it says: whether the server heard of it, and what the client heard."""
    port, heard = server
    with Proxy(Route("dynamodb", "127.0.0.1", port)) as proxy:
        assert _ask(proxy).endswith(b"ok")
        proxy.inject("drop")
        assert (_ask(proxy), len(heard)) in ((b"", 1), (b"reset", 1))
        proxy.inject("lose")
        assert _ask(proxy) in (b"", b"reset")
        assert len(heard) == 2
        proxy.inject("reset")
        assert not _ask(proxy).endswith(b"ok")
        assert len(heard) == 3
        proxy.inject("refuse")
        assert _ask(proxy).startswith(b"HTTP/1.1 503")
        proxy.inject("throttle")
        assert b"ProvisionedThroughputExceededException" in _ask(proxy)
        assert len(heard) == 3
        proxy.inject("delay")
        assert _ask(proxy).endswith(b"ok")
        with proxy.out_of_reach():
            assert _ask(proxy) in (b"", b"reset")
        assert _ask(proxy).endswith(b"ok")
        assert dict(proxy.injected) == dict.fromkeys(("drop", "lose", "reset", "refuse", "throttle", "delay"), 1)
