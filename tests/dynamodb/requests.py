"""Requests and payloads for tests that speak to the backend itself."""

from __future__ import annotations

import uuid
from typing import Any

from durastore.contract import Answer, ClaimRequest, Grant, Granted, Payload

MINUTE = 60_000_000
RESULT = Payload(b"json\n1")


def request(key: str, **changes: Any) -> ClaimRequest:
    terms: dict[str, Any] = {"run_id": "run", "owner": "test", "nonce": uuid.uuid4().hex, "lease": MINUTE}
    return ClaimRequest(key=key, **{**terms, **changes})


def granted(answer: Answer) -> Grant:
    assert isinstance(answer, Granted), answer
    return answer.grant
