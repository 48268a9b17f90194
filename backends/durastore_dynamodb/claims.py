"""Claims: asked for, renewed, given back. One record each; every write of it stands on a condition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from durastore import rules
from durastore.contract import Answer, ClaimRequest, Grant, Granted, StoredRecord
from durastore.errors import ConfigError
from durastore_dynamodb.api import Api, Refused
from durastore_dynamodb.chunks import Chunks, Pointer
from durastore_dynamodb.clock import MARGIN
from durastore_dynamodb.items import (
    Guard,
    Item,
    Update,
    are_remains,
    conditional,
    number,
    record_of,
    remains_of,
    unchanged,
    whole,
)
from durastore_dynamodb.layout import Names

__all__ = ["WRITERS", "Claims", "blob_of"]

_RESTAMPS = 3
_MUTE = (
    "this endpoint says that a record exists and does not show it: it does not know ReturnValuesOnConditionCheckFailure, which "
    "DynamoDB has since 2023; use another emulator (durastore emulators up dynamodb), or a newer one"
)
WRITERS = 8
"""Threads that write many records; each is a request of its own, since batches have no conditions."""


class Claims:
    """The claims of one namespace."""

    def __init__(self, api: Api, names: Names, chunks: Chunks) -> None:
        self._api = api
        self._names = names
        self._chunks = chunks

    def claim(self, request: ClaimRequest, now: int | None) -> Answer:
        """As in the contract."""
        record: StoredRecord | None = None
        while True:
            sent = time.monotonic()
            answer, write = rules.claim(record, request, self._api.judged(now))
            if write is None and not isinstance(answer, Granted):
                return answer
            stamped = record if write is None else self.stamped(write, record, now)
            assert stamped is not None, "a claim is granted by a record"
            landed = stamped if write is None else self.write(stamped, record, now)
            if not isinstance(landed, Refused):
                landed = self.settled(stamped, sent, now)
            if not isinstance(landed, Refused):
                assert isinstance(answer, Granted), "only a grant writes"
                return Granted(rules.grant_of(landed), answer.took_over)
            record = self.record(landed.item)

    def record(self, item: Item | None) -> StoredRecord | None:
        """What was read, as a record; perhaps the remains of one."""
        return None if item is None else record_of(item, self._names)

    def standing(self, item: Item | None) -> StoredRecord | None:
        """The same, None for remains."""
        record = self.record(item)
        return None if record is None or are_remains(record) else record

    def stamped(self, write: StoredRecord, before: StoredRecord | None, now: int | None) -> StoredRecord:
        """A new claim with the time to write instead of the time to judge by."""
        if now is not None:
            return write
        stamp = self._api.stamp(now)
        fresh = write.created_at == write.updated_at
        return replace(
            write,
            token=stamp if before is None else write.token,
            expires_at=self.expiry(stamp, write.lease or 0),
            created_at=stamp if fresh else write.created_at,
            updated_at=stamp,
        )

    def expiry(self, stamp: int, lease: int) -> int:
        """When a lease from a stamp ends. One of 0 has lapsed at once, for everybody: nobody judges by a time a margin ago."""
        return stamp + lease if lease else self._api.judged(None) - MARGIN

    def write(self, record: StoredRecord, before: StoredRecord | None, now: int | None) -> StoredRecord | Refused:
        """Write a whole record if nothing changed since it was read, and what that does to payloads."""
        update = whole(record, before, self._names, physical=now is None)
        pointer = Pointer(update.key, blob_of(before), blob_of(record), record.retain_until)
        updates = (update, *self._chunks.follow(pointer))
        refused = self._api.write([{"Update": one.arguments(self._api.table)} for one in updates])
        if refused is not None and refused.item is None and before is None:
            raise ConfigError(_MUTE)
        return refused or record

    def settled(self, record: StoredRecord, sent: float, now: int | None) -> StoredRecord | Refused:
        """The claim, stamped anew if the answer's time says that the stamp was wrong, or had grown old on its way.

        The token stays, since others may have seen it, unless it is a first one and so old that it may not be the highest.
        """
        is_first = record.token == record.created_at
        is_fresh = record.created_at == record.updated_at
        for _ in range(_RESTAMPS):
            if now is not None or record.expires_at is None:
                break
            if not self._api.clock.is_off(record.updated_at, sent, landed=True):
                break
            late = is_first and self._api.clock.may_be_forgotten(record.token)
            sent, stamp = time.monotonic(), self._api.stamp(None)
            again = replace(
                record,
                token=stamp if late else record.token,
                created_at=stamp if is_fresh else record.created_at,
                expires_at=self.expiry(stamp, record.lease or 0),
                updated_at=stamp,
            )
            landed = self.write(again, record, None)
            if isinstance(landed, Refused):
                return landed
            record = again
        return record

    def remove(self, record: StoredRecord, now: int | None) -> Refused | None:
        """Remove a record if it is as it was read, and its payload. In the store's own time a token that is not old stays behind:
        a claim with a first token that was stamped before may be on its way.
        """
        key, blob, remains = self._names.record(record.key), blob_of(record), remains_of(record)
        if now is None and self._api.clock.remembers(record.token):
            removal = {"Update": whole(remains, record, self._names, physical=True).arguments(self._api.table)}
        else:
            removal = {"Delete": conditional(self._api.table, key, unchanged(record))}
        beside = [{"Update": one.arguments(self._api.table)} for one in self._chunks.follow(Pointer(key, blob, None))]
        refused = self._api.write([removal, *beside])
        if refused is not None and not (refused.again and self.record(refused.item) in (None, remains)):
            return refused
        if blob is not None:
            self._chunks.drop(blob)
        return None

    def renew(self, grants: Sequence[Grant], now: int | None) -> Sequence[Grant | None]:
        """As in the contract."""
        if len(grants) <= 1:
            return [self._renew(grant, now) for grant in grants]
        with ThreadPoolExecutor(min(WRITERS, len(grants))) as pool:
            return list(pool.map(lambda grant: self._renew(grant, now), grants))

    def _renew(self, grant: Grant, now: int | None) -> Grant | None:
        for _ in range(_RESTAMPS):
            sent, stamp = time.monotonic(), self._api.stamp(now)
            expiry = stamp + grant.lease if now is not None else self.expiry(stamp, grant.lease)
            times = {"lease": grant.lease, "expires_at": expiry, "updated_at": stamp}
            landed = self._api.update(self.held(grant, {name: number(value) for name, value in times.items()}))
            if isinstance(landed, Refused):
                return rules.renew(self.record(landed.item), grant, stamp)[0]
            if now is not None or not self._api.clock.is_off(stamp, sent):
                break
        return grant

    def held(self, grant: Grant, set: Item, remove: Sequence[str] = ()) -> Update:  # noqa: A002  as in `Update`
        """Change the record if the grant still stands."""
        values = {":nonce": {"S": grant.nonce}, ":claimed": {"S": "claimed"}}
        return Update(
            self._names.record(grant.key), Guard("#nonce = :nonce AND #state = :claimed", values), set, remove
        )

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None) -> bool:
        """As in the contract."""
        item: Item = {
            "state": {"S": "in_doubt" if in_doubt else "abandoned"},
            "updated_at": number(self._api.stamp(now)),
        }
        if error is not None:
            item["error"] = {"S": error}
        landed = self._api.update(
            self.held(grant, item, ("expires_at",) if error is not None else ("expires_at", "error"))
        )
        if not isinstance(landed, Refused):
            return True
        record = self.record(landed.item)
        return rules.abandon(record, grant, error=error, in_doubt=in_doubt, now=0)[0]


def blob_of(record: StoredRecord | None) -> str | None:
    """The payload that a record points to."""
    return None if record is None or record.result is None else record.result.blob
