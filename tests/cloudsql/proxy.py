"""A proxy that understands just enough of two protocols to count round trips, and that can lose an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

CHUNK = 65536
ENCRYPTION = {(80877103).to_bytes(4, "big"), (80877104).to_bytes(4, "big")}
"""PostgreSQL's requests for TLS and for GSSAPI, which come before the start of a session."""


class Proxy:
    """Listens on loopback in front of the server of `url`."""

    def __init__(self, url: str, kind: str) -> None:
        parts = urlsplit(url)
        self._behind = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._counting = _count_postgresql if kind == "postgresql" else _count_mysql
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._requests = 0
        self._lose = self._spare = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def through(self, url: str) -> str:
        """The same URL, by way of this proxy."""
        port = self._listener.getsockname()[1]
        return url.replace(f"{self._behind[0]}:{self._behind[1]}", f"127.0.0.1:{port}", 1)

    @contextmanager
    def counted(self) -> Iterator[Callable[[], int]]:
        """How many requests were sent since the beginning of the block."""
        before = self._requests
        yield lambda: self._requests - before

    def lose_answers(self, number: int = 1, *, after: int = 0) -> None:
        """Close the connection instead of passing answers on, `after` some more; the server has done what was asked."""
        with self._lock:
            self._lose, self._spare = number, after

    def lost_all(self) -> bool:
        """Whether the answers that were to be lost have been."""
        return self._lose == 0

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._behind)
                except OSError:
                    client.close()
                    continue
                threading.Thread(target=self._forth, args=(client, server), daemon=True).start()
                threading.Thread(target=self._back, args=(client, server), daemon=True).start()

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        requests = self._counting()
        next(requests)
        with suppress(OSError):
            while data := client.recv(CHUNK):
                count = requests.send(data)
                with self._lock:
                    self._requests += count
                server.sendall(data)
        _close(client, server)

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(CHUNK):
                with self._lock:
                    losing = self._lose > 0 and self._spare == 0
                    self._lose -= losing
                    self._spare -= self._spare > 0
                if losing:
                    break
                client.sendall(data)
        _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


Counting = Iterator[int]


def _count_postgresql():
    """Sync and simple Query each ask for one answer. Messages before the session's start have no type."""
    pending, started, count = b"", False, 0
    while True:
        pending += yield count
        count = 0
        while len(pending) >= 5:
            kind, header = (pending[:1], 1) if started else (b"", 0)
            length = header + int.from_bytes(pending[header : header + 4], "big")
            if len(pending) < length:
                break
            started = started or pending[4:8] not in ENCRYPTION
            count += kind in (b"S", b"Q")
            pending = pending[length:]


def _count_mysql():
    """A command begins a new sequence of packets."""
    pending, count = b"", 0
    while True:
        pending += yield count
        count = 0
        while len(pending) >= 4:
            length = 4 + int.from_bytes(pending[:3], "little")
            if len(pending) < length:
                break
            count += pending[3] == 0
            pending = pending[length:]
