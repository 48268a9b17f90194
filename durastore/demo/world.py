"""The outside world: a small HTTP receiver in a process of its own, which counts deliveries for each key in its own file.

``POST /deliveries`` with ``{"key": …, "lines": …, "digest": …}`` counts one; the answer is sent when it is on disk. ``GET
/deliveries/KEY`` answers what was delivered first, or 404: what a probe asks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote

__all__ = ["World", "ask", "deliver", "serve"]

_SECONDS_MAX = 30.0


class World:
    """A receiver that runs until it is closed. `port` is where it listens, on the loopback address."""

    def __init__(self, file: Path) -> None:
        self.file = file
        command = [sys.executable, "-m", "durastore.demo.world", str(file)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603  ourselves
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def deliveries(self) -> list[str]:
        """The key of every delivery, in order."""
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        return [json.loads(line)["key"] for line in lines]

    def close(self) -> None:
        """Stop the receiver: it ends when its standard input does, so that it outlives nobody."""
        self._process.communicate()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def deliver(port: int, delivery: dict[str, Any]) -> dict[str, Any]:
    """Deliver once; returns when the world has it on disk."""
    return _request(port, "POST", "/deliveries", json.dumps(delivery))[1]


def ask(port: int, key: str) -> dict[str, Any] | None:
    """What was delivered for a key first, None for nothing."""
    status, answer = _request(port, "GET", f"/deliveries/{quote(key, safe='')}", None)
    return answer if status == 200 else None  # noqa: PLR2004  HTTP


def _request(port: int, method: str, path: str, body: str | None) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=_SECONDS_MAX)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


class _Ledger:
    """The file, and what it says, by key."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="utf-8")
        self._first: dict[str, dict[str, Any]] = {}
        self._lock = Lock()

    def add(self, delivery: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(delivery) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            self._first.setdefault(delivery["key"], delivery)

    def first(self, key: str) -> dict[str, Any] | None:
        with self._lock:
            return self._first.get(key)


class _Handler(BaseHTTPRequestHandler):
    ledger: _Ledger

    def do_POST(self) -> None:
        delivery = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.ledger.add(delivery)
        self._answer(200, {"received": delivery["key"], "lines": delivery["lines"]})

    def do_GET(self) -> None:
        found = self.ledger.first(unquote(self.path.rpartition("/")[2]))
        self._answer(404 if found is None else 200, found or {})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """The ledger is log enough."""


def serve(file: Path) -> None:
    """Receive until standard input ends."""
    _Handler.ledger = _Ledger(file)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    from threading import Thread

    Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)  # noqa: T201  what the parent waits for
    sys.stdin.buffer.read()
    server.shutdown()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
