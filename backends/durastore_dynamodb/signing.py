"""Signatures dated by the store's clock: AWS refuses a request whose date is five minutes off, and a sandbox's may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.auth import AUTH_TYPE_MAPS, SigV4Auth

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["SIGNATURE", "sign_by"]

SIGNATURE = "durastore-v4"
_STAMP = "durastore_timestamp"


class _StoreTimeAuth(SigV4Auth):
    """Signature version 4, dated by the store."""

    def _modify_request_before_signing(self, request: Any) -> None:
        if request.context.get(_STAMP):
            request.context["timestamp"] = request.context[_STAMP]
        super()._modify_request_before_signing(request)  # type: ignore[misc]  # its stubs leave it out


AUTH_TYPE_MAPS[SIGNATURE] = _StoreTimeAuth


def sign_by(client: DynamoDBClient, timestamp: Callable[[], str | None]) -> None:
    """Date this client's signatures by `timestamp` (``20260131T235959Z``), or by the wall clock while it gives None."""

    def stamp(request: Any, **_: Any) -> None:
        request.context[_STAMP] = timestamp()

    client.meta.events.register("before-sign.dynamodb", stamp)
