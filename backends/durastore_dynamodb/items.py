"""Items: records and runs as typed attributes, and the expressions that write them. Integers travel as text, never as float."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from durastore.contract import Payload, RecordState, StoredProgress, StoredRecord
from durastore.soundness import sound
from durastore_dynamodb.clock import REMEMBERED
from durastore_dynamodb.layout import Key, Names, shard_of

__all__ = [
    "Guard",
    "Item",
    "Update",
    "are_remains",
    "bytes_of",
    "forgotten",
    "incarnation_of",
    "integer_of",
    "number",
    "record_item",
    "record_of",
    "remains_of",
    "retention",
    "run_of",
    "stands",
    "unchanged",
    "whole",
]

Item = dict[str, Any]
"""Attributes by name, as the low-level client has them: ``{"N": "1"}``."""
_TTL_DELAY = 3600
"""Seconds after the end of retention at which DynamoDB itself may delete a record: far beyond what clocks differ."""
_RECORD = (
    "state",
    "token",
    "attempt",
    "nonce",
    "owner",
    "run",
    "lease",
    "expires_at",
    "incarnation",
    "fingerprint",
    "error",
    "result",
    "blob",
    "retain_until",
    "taken_from",
    "created_at",
    "updated_at",
    "todo",
    "due",
    "ttl",
)
_NAME = re.compile(r"#(\w+)")


def number(value: int) -> dict[str, str]:
    """An integer attribute."""
    return {"N": str(value)}


def _present(values: Mapping[str, str | int | bytes | None]) -> Item:
    """Typed attributes; None is an absent one."""
    kinds = {str: lambda text: {"S": text}, int: number, bytes: lambda data: {"B": data}}
    return {name: kinds[type(value)](value) for name, value in values.items() if value is not None}  # type: ignore[no-untyped-call]


def record_item(record: StoredRecord, names: Names, *, physical: bool) -> Item:
    """A record's attributes but its keys. `physical`: DynamoDB may delete it after its retention (not in virtual time)."""
    result = record.result
    item = _present(
        {
            "state": record.state,
            "token": record.token,
            "attempt": record.attempt,
            "nonce": record.nonce,
            "owner": record.owner,
            "run": names.run_of(record.run_id),
            "lease": record.lease,
            "expires_at": record.expires_at,
            "incarnation": record.incarnation,
            "fingerprint": record.fingerprint,
            "error": record.error,
            "result": None if result is None else result.data,
            "blob": None if result is None else result.blob,
            "taken_from": record.taken_from,
            "created_at": record.created_at,
            "updated_at": record.updated_at,
        }
    )
    if are_remains(record):
        return (
            item
            | retention(record.key, record.token + REMEMBERED, names, physical=True)
            | _present({"retain_until": 0})
        )
    if record.state == "committed":
        return item | retention(record.key, record.retain_until, names, physical=physical)
    return item | _present({"todo": names.todo("open", shard_of(record.key)), "due": record.created_at})


def retention(key: str, until: int | None, names: Names, *, physical: bool) -> Item:
    """The attributes of a committed record that say when it goes."""
    if until is None:
        return {}
    item = _present({"retain_until": until, "todo": names.todo("due", shard_of(key)), "due": until})
    return item | (_present({"ttl": until // 1_000_000 + _TTL_DELAY}) if physical else {})


def remains_of(record: StoredRecord) -> StoredRecord:
    """What a record leaves behind when it is removed: its token, as a record whose retention has ended. So the next claim is a
    first attempt with a higher one. The nonce is its own, since no two records of a key may look the same to a condition.
    """
    return replace(
        record,
        state="committed",
        nonce=f"removed {record.nonce}",
        lease=None,
        expires_at=None,
        fingerprint=None,
        error=None,
        result=None,
        retain_until=0,
        taken_from=None,
    )


def are_remains(record: StoredRecord) -> bool:
    """Whether it is what a removed one left behind."""
    return record.state == "committed" and record.retain_until == 0 and record.result is None


def forgotten(last: int) -> Item:
    """When DynamoDB may delete what is left of a record or run: once no request is on its way that was made before its number."""
    return _present({"ttl": (last + REMEMBERED) // 1_000_000 + _TTL_DELAY})


@sound
def record_of(item: Item, names: Names) -> StoredRecord:
    """A record that was read."""
    result = Payload(_bytes(item["result"]), _text(item, "blob")) if "result" in item else None
    return StoredRecord(
        key=item["sk"]["S"],
        run_id=names.run_id(item["run"]["S"]),
        state=cast("RecordState", item["state"]["S"]),
        token=int(item["token"]["N"]),
        attempt=int(item["attempt"]["N"]),
        nonce=item["nonce"]["S"],
        owner=item["owner"]["S"],
        lease=_integer(item, "lease"),
        expires_at=_integer(item, "expires_at"),
        incarnation=int(item["incarnation"]["N"]),
        fingerprint=_text(item, "fingerprint"),
        error=_text(item, "error"),
        result=result,
        retain_until=_integer(item, "retain_until"),
        taken_from=_text(item, "taken_from"),
        created_at=int(item["created_at"]["N"]),
        updated_at=int(item["updated_at"]["N"]),
    )


@sound
def run_of(item: Item) -> StoredProgress:
    """A run that was read."""
    return StoredProgress(
        run_id=item["sk"]["S"],
        step=_integer(item, "step") or 0,
        state=Payload(_bytes(item["state"]), _text(item, "blob")) if "state" in item else None,
        incarnation=incarnation_of(item),
        updated_at=_integer(item, "updated_at") or 0,
    )


def stands(item: Item) -> bool:
    """Whether it is a run, and not what a removed one left behind: its last incarnation, `removed`."""
    return "step" in item


@sound
def incarnation_of(item: Item) -> int:
    """A run's incarnation, which is none if it is that of a run that was removed."""
    return 0 if item.get("incarnation") == item.get("removed") else _integer(item, "incarnation") or 0


@sound
def integer_of(item: Item, name: str) -> int:
    """A number of an item that is read beside records and runs; 0 when it has none."""
    return _integer(item, name) or 0


@sound
def bytes_of(item: Item, name: str) -> bytes:
    """The same of binary data, which must be there."""
    return _bytes(item[name])


def _text(item: Item, name: str) -> str | None:
    return item[name]["S"] if name in item else None


def _integer(item: Item, name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def _bytes(value: Mapping[str, Any]) -> bytes:
    """Binary data. What came with a failed condition was not decoded by some versions of botocore."""
    data = value["B"]
    if isinstance(data, str):
        from base64 import b64decode

        return b64decode(data)
    return bytes(memoryview(data))  # not as many zeros as a number says


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition: ``#name`` for attributes, ``:name`` for values."""

    condition: str
    values: Item = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update:
    """A conditional write of one item."""

    key: Key
    guard: Guard
    set: Item = field(default_factory=dict)
    remove: Sequence[str] = ()
    also: str = ""
    """More of the update expression; its values stand in `guard`."""

    def arguments(self, table: str) -> dict[str, Any]:
        """What `update_item` takes, and a transaction's ``Update``."""
        parts = []
        if self.set:
            parts.append("SET " + ", ".join(f"#{name} = :new_{name}" for name in self.set))
        if self.remove:
            parts.append("REMOVE " + ", ".join(f"#{name}" for name in self.remove))
        values = {**self.guard.values, **{f":new_{name}": value for name, value in self.set.items()}}
        made = conditional(table, self.key, self.guard, " ".join([*parts, self.also]).strip())
        return {**made, **({"ExpressionAttributeValues": values} if values else {})}


def conditional(table: str, key: Key, guard: Guard, update: str = "") -> dict[str, Any]:
    """The arguments that all conditional requests share; the old item comes back when the condition fails."""
    made: dict[str, Any] = {"TableName": table, "Key": key, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    if update:
        made["UpdateExpression"] = update
    if guard.condition:
        made["ConditionExpression"] = guard.condition
    if guard.values:
        made["ExpressionAttributeValues"] = guard.values
    names = {f"#{name}": name for name in _NAME.findall(f"{update} {guard.condition}")}
    return {**made, **({"ExpressionAttributeNames": names} if names else {})}


def unchanged(record: StoredRecord | None) -> Guard:
    """That a record is as it was read, or still absent."""
    if record is None:
        return Guard("attribute_not_exists(#pk)")
    values = _present({"expires_at": record.expires_at, "retain_until": record.retain_until})
    parts = ["#nonce = :nonce", "#state = :state"]
    parts += [
        f"#{name} = :{name}" if name in values else f"attribute_not_exists(#{name})"
        for name in ("expires_at", "retain_until")
    ]
    known = {":nonce": {"S": record.nonce}, ":state": {"S": record.state}}
    return Guard(" AND ".join(parts), known | {f":{name}": value for name, value in values.items()})


def whole(record: StoredRecord, before: StoredRecord | None, names: Names, *, physical: bool) -> Update:
    """Write a whole record, if nothing changed since it was read as `before`."""
    item = record_item(record, names, physical=physical)
    gone = () if before is None else [name for name in _RECORD if name not in item]
    return Update(names.record(record.key), unchanged(before), item, gone)
