"""Commits: the result, the run's progress and the next claim, or an effect's own items, in one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from durastore import rules
from durastore.contract import ClaimRequest, Grant, Granted, Payload, StoredProgress, StoredRecord
from durastore.errors import PayloadError
from durastore_dynamodb.api import Api, Refused
from durastore_dynamodb.chunks import Chunks, Pointer
from durastore_dynamodb.claims import Claims
from durastore_dynamodb.items import Guard, Item, Update, number, retention, whole
from durastore_dynamodb.layout import Names
from durastore_dynamodb.runs import Runs

__all__ = ["Commits"]

_TRANSACTION_ITEMS = 100
_OF_A_CLAIM = ("error", "expires_at", "todo", "due")
"""What a claimed record has and a committed one has not."""


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a commit writes."""

    grant: Grant
    result: Payload
    retain: int | None
    progress: StoredProgress | None
    now: int | None


class Commits:
    """The commits of one namespace."""

    def __init__(
        self, api: Api, names: Names, chunks: Chunks, claims: Claims, runs: Runs, *, fuse: bool | None
    ) -> None:
        """`fuse`: whether the next key is claimed in the same transaction; None: if there is one anyway."""
        self._api = api
        self._names = names
        self._chunks = chunks
        self._claims = claims
        self._runs = runs
        self._fuse = fuse

    def commit(
        self,
        grant: Grant,
        *,
        result: Payload,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        then: ClaimRequest | None = None,
        now: int | None = None,
    ) -> Granted | None:
        """As in the contract."""
        commit = _Commit(grant, result, retain, progress, now)
        if then is None:
            self._commit(commit)
            return None
        fuse = progress is not None if self._fuse is None else self._fuse
        if fuse and then.key != grant.key:
            granted = self._fused(commit, then)
            if granted is not None:
                return granted
        else:
            self._commit(commit)
        return self._next(then, now)

    def _next(self, then: ClaimRequest, now: int | None) -> Granted | None:
        return rules.if_granted(lambda: self._claims.claim(then, now))

    def _fused(self, commit: _Commit, then: ClaimRequest) -> Granted | None:
        """Commit and claim an absent key at once; None when the commit landed alone."""
        sent = time.monotonic()
        answer, write = rules.claim(None, then, self._api.judged(commit.now))
        assert write is not None, "an absent key is granted"
        record = self._claims.stamped(write, None, commit.now)
        update = whole(record, None, self._names, physical=commit.now is None)
        if not self._commit(commit, [{"Update": update.arguments(self._api.table)}], optional=True):
            return None
        settled = self._claims.settled(record, sent, commit.now)
        if isinstance(settled, Refused) or not isinstance(answer, Granted):
            return None
        return Granted(rules.grant_of(settled))

    def _commit(self, commit: _Commit, extra: Sequence[Any] = (), *, optional: bool = False) -> bool:
        """Write a commit, and `extra` items of a transaction with it; whether those landed too.

        `optional`: when a condition of theirs fails, the commit lands alone. Else that is raised as the client raises it.
        """
        seen: Item | None = None
        while True:
            sent, stamp = time.monotonic(), self._api.stamp(commit.now)
            items = self._items(commit, seen, stamp)
            reasons = self._write_commit(items, extra, optional=optional)
            if reasons is None:
                self._settle_retention(commit, stamp, sent)
                return bool(extra) or not optional
            if reasons[0] is not None:
                rules.commit(self._claims.standing(reasons[0].item), commit.grant, commit.result, commit.retain, stamp)
                return False
            saving = None if commit.progress is None else reasons[1]
            if saving is not None:
                seen = saving.item
            elif optional and any(reasons[len(items) :]):
                extra = ()

    def _items(self, commit: _Commit, seen: Item | None, stamp: int) -> list[Any]:
        """The record, the progress, and what that does to payloads."""
        mark = self._mark(commit, stamp)
        pointers = [Pointer(mark.key, None, commit.result.blob, self._until(commit, stamp))]
        items = [{"Update": mark.arguments(self._api.table)}]
        if commit.progress is not None:
            saving = self._runs.saving(commit.progress, seen, stamp)
            items.append(saving.item)
            pointers += [] if saving.pointer is None else [saving.pointer]
        return items + [{"Update": one.arguments(self._api.table)} for one in self._chunks.follow(*pointers)]

    def _until(self, commit: _Commit, stamp: int) -> int | None:
        """When retention ends; like a lease of 0, one of 0 has ended at once, for everybody."""
        if commit.retain is None:
            return None
        return stamp + commit.retain if commit.now is not None else self._claims.expiry(stamp, commit.retain)

    def _mark(self, commit: _Commit, stamp: int) -> Update:
        item: Item = {
            "state": {"S": "committed"},
            "result": {"B": commit.result.data},
            "updated_at": number(stamp),
            **retention(commit.grant.key, self._until(commit, stamp), self._names, physical=commit.now is None),
        }
        if commit.result.blob is not None:
            item["blob"] = {"S": commit.result.blob}
        return self._claims.held(commit.grant, item, [name for name in _OF_A_CLAIM if name not in item])

    def _write_commit(self, items: list[Any], extra: Sequence[Any], *, optional: bool) -> list[Refused | None] | None:
        if len(items) == 1 and not extra:
            refused = self._api.write(items)
            return None if refused is None else [refused]
        if len(items) + len(extra) > _TRANSACTION_ITEMS:
            raise PayloadError(
                f"one transaction takes {_TRANSACTION_ITEMS} items, {len(items)} of which are durastore's; transact() wrote "
                f"{len(extra)}. Write fewer"
            )
        return self._api.transact([*items, *extra], ours=len(items), optional=optional)

    def _settle_retention(self, commit: _Commit, stamp: int, sent: float) -> None:
        """Write the end of retention anew if the answer's time says that it was wrong."""
        if not commit.retain or commit.now is not None or not self._api.clock.is_off(stamp, sent):
            return
        until, key = self._api.stamp(None) + commit.retain, commit.grant.key
        values = {":nonce": {"S": commit.grant.nonce}, ":committed": {"S": "committed"}}
        guard = Guard("#nonce = :nonce AND #state = :committed", values)
        self._api.update(Update(self._names.record(key), guard, retention(key, until, self._names, physical=True)))

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """As in the contract; `tx` is a list to which `effect` appends items of `transact_write_items`, as the low-level
        client takes them. A condition of theirs that fails is raised as boto3 raises it, and the claim stands.
        """
        record = self._claims.standing(self._api.get(self._names.record(grant.key)))
        if rules.commit(record, grant, Payload(b""), retain, self._api.judged(now)) is None:
            return _result(record)
        tx: list[Any] = []
        result = effect(tx)
        if not self._commit(_Commit(grant, result, retain, progress, now), tx):
            return _result(self._claims.record(self._api.get(self._names.record(grant.key))))
        return result


def _result(record: StoredRecord | None) -> Payload:
    assert record is not None, "it is committed"
    return rules.committed(record).result
