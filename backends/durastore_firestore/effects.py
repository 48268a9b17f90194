"""What effects of `transact` write through: a real `WriteBatch`, whose writes go into the one commit with the record."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from google.api_core.exceptions import from_grpc_error
from google.cloud import firestore

from durastore.errors import ConfigError
from durastore_firestore.wire import Message

__all__ = ["EffectBatch", "refused"]


class EffectBatch(firestore.WriteBatch):
    """A write batch that durastore commits. Make references with ``tx.client``, or any client of the same database."""

    def __init__(self, client: firestore.Client) -> None:
        super().__init__(client)
        self.client = client
        """The client to make references with, and to read."""

    def commit(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refused with a `ConfigError`."""
        raise ConfigError(
            "do not commit the batch inside transact(): its writes land together with the committed mark when the effect returns"
        )

    def __exit__(self, *_: object) -> None:
        """Leaving a ``with tx:`` commits nothing."""

    def clear(self) -> None:
        """Forget what an earlier try wrote."""
        self._write_pbs.clear()
        self._document_references.clear()

    @property
    def writes(self) -> list[Message]:
        """The writes, as raw messages."""
        return [type(write).pb(write) for write in self._write_pbs]


def refused(error: grpc.RpcError) -> Exception:
    """The official client's exception for a condition of the effect's own that failed."""
    made: Exception = from_grpc_error(error)  # type: ignore[no-untyped-call]  # google-api-core is half typed
    return made
