"""Requests and payloads for tests that speak to the backend itself."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlsplit

from durastore.contract import Answer, ClaimRequest, Grant, Granted, Payload

MINUTE = 60_000_000
TABLE = "durastore-tests"
"""This folder's table, whatever the emulator's URL names."""
RESULT = Payload(b"json\n1")


def request(key: str, **changes: Any) -> ClaimRequest:
    terms: dict[str, Any] = {"run_id": "run", "owner": "test", "nonce": uuid.uuid4().hex, "lease": MINUTE}
    return ClaimRequest(key=key, **{**terms, **changes})


def on_table(url: str, table: str) -> str:
    """The URL of another table of the same endpoint."""
    return urlsplit(url)._replace(netloc=table).geturl()


def granted(answer: Answer) -> Grant:
    assert isinstance(answer, Granted), answer
    return answer.grant
