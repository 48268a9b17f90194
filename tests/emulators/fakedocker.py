"""A daemon that speaks enough of Docker's API for one container, which answers HTTP with ``Ok`` on the port that it is bound to.

The real testcontainers and the real docker client talk to it, since most machines that run these tests have no Docker.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Ok(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answer(self, 200, b"Ok")

    def log_message(self, *_: Any) -> None: ...


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


class FakeDocker:
    """`created` is what containers were asked for; `names` those there now; `asked` all requests."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.names: dict[str, dict[str, Any]] = {}
        self.volumes: set[str] = set()
        self.asked: list[str] = []
        self._serving: dict[str, ThreadingHTTPServer] = {}
        self._server = serve(self._handler(), 0)
        self.address = f"tcp://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        for server in [self._server, *self._serving.values()]:
            server.shutdown()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path, _, query = self.path.partition("?")
                path = re.sub(r"^/v[\d.]+", "", path)
                daemon.asked.append(f"{self.command} {path}")
                status, document = daemon.handle(self.command, path, query, json.loads(body or b"null"))
                answer(self, status, json.dumps(document).encode() if document is not None else b"")

            do_POST = do_DELETE = do_GET  # noqa: N815  names of http.server

            def log_message(self, *_: Any) -> None: ...

        return Handler

    def handle(self, verb: str, path: str, query: str, body: Any) -> tuple[int, Any]:
        if path in {"/version", "/info"}:
            return 200, {"ApiVersion": "1.44", "Version": "fake", "OSType": "linux"}
        if path == "/_ping":
            return 200, "OK"
        if path.startswith("/images/"):
            return 200, {"Id": "sha256:1", "RepoTags": ["any"]}
        if path == "/containers/create":
            return self._create(re.search(r"name=([^&]+)", query)[1], body)
        if path.startswith("/volumes/"):
            name = path.split("/")[2]
            known = name in self.volumes
            if verb == "DELETE":
                self.volumes.discard(name)
            return (200 if verb == "GET" else 204, {"Name": name}) if known else (404, {"message": "no such volume"})
        return self._container(verb, path)

    def _create(self, name: str, body: dict[str, Any]) -> tuple[int, Any]:
        assert name not in self.names, "a name is free once its container has been removed"
        self.created.append(body)
        self.names[name] = body
        self.volumes |= {bind.split(":")[0] for bind in body["HostConfig"].get("Binds") or []}
        return 201, {"Id": name, "Warnings": []}

    def _container(self, verb: str, path: str) -> tuple[int, Any]:
        name = path.split("/")[2]
        if name not in self.names:
            return 404, {"message": "no such container"}
        if path.endswith("/start"):
            ((bound,),) = self.names[name]["HostConfig"]["PortBindings"].values()
            assert bound["HostIp"] == "127.0.0.1", bound
            self._serving[name] = serve(Ok, int(bound["HostPort"]))
            return 204, None
        if verb == "DELETE":
            del self.names[name]
            server = self._serving.pop(name)
            server.shutdown()
            server.server_close()
            return 204, None
        state = {"Status": "running" if name in self._serving else "created"}
        return 200, {"Id": name, "Name": name, "State": state, "Image": "sha256:1", "Config": {}}


def serve(handler: type[BaseHTTPRequestHandler], port: int) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server
