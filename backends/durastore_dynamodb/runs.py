"""Runs: progress and incarnation, one item each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from durastore.contract import Payload, StoredProgress
from durastore_dynamodb.api import Api, Refused
from durastore_dynamodb.chunks import Chunks, Pointer
from durastore_dynamodb.items import (
    Guard,
    Item,
    Update,
    conditional,
    forgotten,
    incarnation_of,
    integer_of,
    number,
    run_of,
    stands,
)
from durastore_dynamodb.layout import Key, Names

__all__ = ["Runs", "Saving"]

_FREE = "(attribute_not_exists(#step) OR #step <= :step)"
_NEVER_DRAWN = "attribute_not_exists(#incarnation)"


@dataclass(frozen=True, slots=True)
class Saving:
    """How to save one progress beside other writes: an item of a transaction, and what it does to payloads."""

    item: dict[str, Any]
    pointer: Pointer | None


class Runs:
    """The runs of one namespace."""

    def __init__(self, api: Api, names: Names, chunks: Chunks) -> None:
        self._api = api
        self._names = names
        self._chunks = chunks

    def load(self, run_id: str) -> StoredProgress | None:
        """As in the contract."""
        item = self._api.get(self._names.run(run_id))
        return run_of(item) if item is not None and stands(item) else None

    def save(self, progress: StoredProgress, now: int | None) -> StoredProgress:
        """One request, unless large payloads come or go."""
        stamp = self._api.stamp(now)
        seen: Item | None = None
        if _blob(progress.state) is None:
            landed = self._api.update(self._update(progress, None, stamp), "ALL_OLD")
            if not isinstance(landed, Refused):
                return replace(progress, incarnation=incarnation_of(landed), updated_at=stamp)
            seen = landed.item
        while True:
            if seen is not None and run_of(seen).step > progress.step:
                return run_of(seen)
            saving = self.saving(progress, seen, stamp)
            pointers = [] if saving.pointer is None else [saving.pointer]
            beside = [{"Update": update.arguments(self._api.table)} for update in self._chunks.follow(*pointers)]
            reasons = self._api.transact([saving.item, *beside])
            if reasons is None:
                return self.load(progress.run_id) or replace(progress, updated_at=stamp)
            assert reasons[0] is not None, "payloads have no conditions"
            seen = reasons[0].item

    def saving(self, progress: StoredProgress, seen: Item | None, stamp: int) -> Saving:
        """Save unless a higher step is stored, given the run as last seen; None stands for one not seen."""
        if seen is not None and run_of(seen).step > progress.step:
            guard = Guard("#step > :step", {":step": number(progress.step)})
            check = conditional(self._api.table, self._names.run(progress.run_id), guard)
            return Saving({"ConditionCheck": check}, None)
        before = None if seen is None else _blob(run_of(seen).state)
        update = self._update(progress, before, stamp)
        return Saving({"Update": update.arguments(self._api.table)}, Pointer(update.key, before, _blob(progress.state)))

    def _update(self, progress: StoredProgress, before: str | None, stamp: int) -> Update:
        """Save the progress over one whose state has this payload."""
        values: Item = {":step": number(progress.step)}
        same = "attribute_not_exists(#blob)"
        if before is not None:
            same, values[":blob"] = "#blob = :blob", {"S": before}
        item: Item = {"step": number(progress.step), "updated_at": number(stamp)}
        if progress.state is not None:
            item["state"] = {"B": progress.state.data}
        blob = _blob(progress.state)
        if blob is not None:
            item["blob"] = {"S": blob}
        gone = [name for name in ("state", "blob", "ttl") if name not in item]
        return Update(self._names.run(progress.run_id), Guard(f"{_FREE} AND {same}", values), item, gone)

    def incarnate(self, run_id: str, now: int | None) -> int:
        """One request. A first number that was so long on its way that it may not be the highest is drawn anew."""
        key, stamp = self._names.run(run_id), self._api.stamp(now)
        drawn = integer_of(self._api.call("update_item", **self._draw(key, stamp))["Attributes"], "incarnation")
        while now is None and drawn == stamp and self._api.clock.may_be_forgotten(stamp):
            stamp = self._api.stamp(None)
            guard = Guard("#incarnation = :drawn", {":drawn": number(drawn)})
            if isinstance(self._api.update(Update(key, guard, {"incarnation": number(stamp)})), Refused):
                break
            drawn = stamp
        return drawn

    def _draw(self, key: Key, stamp: int) -> dict[str, Any]:
        values = {":before": number(stamp - 1), ":one": number(1), ":zero": number(0), ":at": number(stamp)}
        return {
            "TableName": self._api.table,
            "Key": key,
            "UpdateExpression": (
                "SET #incarnation = if_not_exists(#incarnation, :before) + :one, #step = if_not_exists(#step, :zero), "
                "#updated_at = if_not_exists(#updated_at, :at) REMOVE #ttl"
            ),
            "ExpressionAttributeNames": {f"#{name}": name for name in ("incarnation", "step", "updated_at", "ttl")},
            "ExpressionAttributeValues": values,
            "ReturnValues": "UPDATED_NEW",
        }

    def place(self, run: StoredProgress) -> StoredProgress:
        """As in the contract."""
        while True:
            update = self._placed(run)
            beside = self._chunks.follow(Pointer(update.key, None, _blob(run.state)))
            items = [{"Update": one.arguments(self._api.table)} for one in (update, *beside)]
            refused = self._api.write(items)
            if refused is None:
                return run
            if refused.item is not None:  # else it was removed in between
                return run_of(refused.item)

    def _placed(self, run: StoredProgress) -> Update:
        item: Item = {"step": number(run.step), "updated_at": number(run.updated_at)}
        if run.incarnation:
            item["incarnation"] = number(run.incarnation)
        if run.state is not None:
            item["state"] = {"B": run.state.data}
        blob = _blob(run.state)
        if blob is not None:
            item["blob"] = {"S": blob}
        gone = ("removed", "ttl") if run.incarnation else ("ttl",)
        return Update(self._names.run(run.run_id), Guard("attribute_not_exists(#step)"), item, gone)

    def delete(self, run_id: str) -> bool:
        """Remove a run; False when there was none."""
        key = self._names.run(run_id)
        seen = self._api.get(key)
        while seen is not None and stands(seen):
            blob = _blob(run_of(seen).state)
            removal = self._removal(key, integer_of(seen, "incarnation"), blob)
            beside = [
                {"Update": one.arguments(self._api.table)} for one in self._chunks.follow(Pointer(key, blob, None))
            ]
            refused = self._api.write([removal, *beside])
            if refused is None or (refused.again and (refused.item is None or not stands(refused.item))):
                return True
            seen = refused.item
        return False

    def _removal(self, key: Key, incarnation: int, blob: str | None) -> dict[str, Any]:
        """Its last incarnation stays behind if it is not old, as the last token of a record does."""
        values: Item = {":incarnation": number(incarnation)} if incarnation else {}
        parts = ["attribute_exists(#step)", "#incarnation = :incarnation" if incarnation else _NEVER_DRAWN]
        parts.append("attribute_not_exists(#blob)" if blob is None else "#blob = :blob")
        guard = Guard(" AND ".join(parts), values if blob is None else {**values, ":blob": {"S": blob}})
        if not self._api.clock.remembers(incarnation):
            return {"Delete": conditional(self._api.table, key, guard)}
        left = {"removed": number(incarnation), **forgotten(incarnation)}
        return {"Update": Update(key, guard, left, ("step", "state", "blob", "updated_at")).arguments(self._api.table)}


def _blob(state: Payload | None) -> str | None:
    return None if state is None else state.blob
