"""Asking a local server over HTTP whether it serves."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

__all__ = ["ask"]

TIMEOUT = 5.0


def ask(address: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The body of an answer with status 200; anything else raises `OSError`. With a body it is a POST."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT)
    try:
        connection.request("GET" if body is None else "POST", parts.path or "/", body, dict(headers or {}))
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise OSError(f"{address} answers {answer.status}: {text[:200]!r}")
    return text
