"""Large payloads: chunks in items of their own, and one item that describes them and knows who points to them.

Every write that points to a payload, or ceases to, says so in the describing item, in the same transaction. `due` is when
to see whether the payload is orphaned: a day after it was written, until something points to it; never, while something
does; when retention ends, where the record has one; at once when it was let go. So `sweep` reads what may be orphaned,
not all there is, and verifies it by consistent reads of those that pointed to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from durastore import rules
from durastore_dynamodb.api import Api, Refused
from durastore_dynamodb.items import Guard, Item, Update, bytes_of, conditional, integer_of, number, record_of
from durastore_dynamodb.layout import BY_TODO, SHARDS, Key, Names, shard_of

__all__ = ["CHUNK", "Chunks", "Pointer"]

CHUNK = 384 * 1024
"""Bytes of a chunk; an item takes 400 KB with the names of its attributes."""
_READ = 40
"""Chunks of one batch: an answer holds 16 MB."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A change of what one item points to."""

    key: Key
    before: str | None
    after: str | None
    until: int | None = None
    """When the retention of what is pointed to ends."""

    @property
    def user(self) -> str:
        """How the describing item names the one that points to it."""
        return f"{self.key['pk']['S']}\n{self.key['sk']['S']}"


class Chunks:
    """The chunks of one namespace."""

    def __init__(self, api: Api, names: Names) -> None:
        self._api = api
        self._names = names

    def put(self, blob: str, chunks: Sequence[bytes], now: int | None) -> None:
        """Write chunks; again with the same ones changes nothing."""
        written = self._api.stamp(now)
        about = {"count": number(len(chunks)), "written": number(written)}
        due = written + rules.ORPHAN_AGE
        fresh = Update(
            self._names.payload(blob),
            Guard("attribute_not_exists(#users)", {":one": number(1)}),
            {**about, **self._todo(blob, due)},
            also="ADD #rev :one",
        )
        if isinstance(self._api.update(fresh), Refused):
            self._api.update(Update(fresh.key, Guard("", {":one": number(1)}), about, also="ADD #rev :one"))
        puts = [
            {"PutRequest": {"Item": {**self._names.chunk(blob, index), "data": {"B": data}}}}
            for index, data in enumerate(chunks)
        ]
        self._api.write_all(puts)

    def _todo(self, blob: str, due: int) -> Item:
        return {"todo": {"S": self._names.todo("blob", shard_of(blob))}, "due": number(due)}

    def get(self, blob: str) -> list[bytes]:
        """The chunks in order, without those that are missing."""
        about = self._api.get(self._names.payload(blob))
        keys = [self._names.chunk(blob, index) for index in range(_count(about))]
        found: dict[tuple[str, str], Item] = {}
        for start in range(0, len(keys), _READ):
            found.update(self._api.get_all(keys[start : start + _READ]))
        stored = [found.get((key["pk"]["S"], key["sk"]["S"])) for key in keys]
        return [bytes_of(item, "data") for item in stored if item is not None]

    def follow(self, *pointers: Pointer) -> list[Update]:
        """What to write beside items whose payloads change: one update for each describing item."""
        blobs: dict[str, list[tuple[Pointer, bool]]] = {}
        for pointer in pointers:
            if pointer.before == pointer.after:
                continue
            for blob, attached in ((pointer.before, False), (pointer.after, True)):
                if blob is not None:
                    blobs.setdefault(blob, []).append((pointer, attached))
        return [self._follow(blob, changes) for blob, changes in blobs.items()]

    def _follow(self, blob: str, changes: Sequence[tuple[Pointer, bool]]) -> Update:
        attached = [pointer for pointer, is_attached in changes if is_attached]
        users = {"SS": [pointer.user for pointer in attached or [pointer for pointer, _ in changes]]}
        guard = Guard("", {":users": users, ":one": number(1)})
        key = self._names.payload(blob)
        if not attached:
            return Update(key, guard, self._todo(blob, 0), also="ADD #rev :one DELETE #users :users")
        untils = [pointer.until for pointer in attached]
        if None in untils:
            return Update(key, guard, remove=("todo", "due"), also="ADD #rev :one, #users :users")
        due = max(until for until in untils if until is not None)
        return Update(key, guard, self._todo(blob, due), also="ADD #rev :one, #users :users")

    def drop(self, blob: str) -> None:
        """Delete a payload that nobody points to any more; should this fail half-way, `sweep` finds what is left."""
        about = self._api.get(self._names.payload(blob))
        if about is not None:
            self._drop(blob, about)

    def _drop(self, blob: str, about: Item) -> bool:
        """Delete a payload if its describing item is as it was read: that item last, so that nothing is left unfound."""
        doomed = Update(
            self._names.payload(blob),
            Guard("#rev = :rev", {":rev": about["rev"], ":one": number(1)}),
            self._todo(blob, 0),
            also="ADD #rev :one",
        )
        if isinstance(self._api.update(doomed), Refused):
            return False
        keys = [self._names.chunk(blob, index) for index in range(_count(about))]
        self._api.write_all([{"DeleteRequest": {"Key": key}} for key in keys])
        after = {":rev": number(integer_of(about, "rev") + 1)}
        removal = conditional(self._api.table, doomed.key, Guard("#rev = :rev", after))
        return self._api.write([{"Delete": removal}]) is None

    # Orphans

    def sweep(self, at: int, limit: int) -> tuple[int, bool]:
        """Delete orphans; how many, and whether there may be more."""
        due = [blob for shard in SHARDS for blob in self._due(shard, at, limit)]
        removed = sum(self._sweep(blob, at) for blob in due[:limit])
        return removed, len(due) > limit

    def _due(self, shard: str, at: int, limit: int) -> list[str]:
        answer = self._api.call(
            "query",
            TableName=self._api.table,
            IndexName=BY_TODO,
            KeyConditionExpression="#todo = :todo AND #due <= :at",
            ExpressionAttributeNames={"#todo": "todo", "#due": "due"},
            ExpressionAttributeValues={":todo": {"S": self._names.todo("blob", shard)}, ":at": number(at)},
            Limit=limit + 1,
        )
        return [item["pk"]["S"].rpartition("/")[2] for item in answer["Items"]]

    def _sweep(self, blob: str, at: int) -> bool:
        """Delete a payload unless it is young or pointed to; then note when to look again."""
        about = self._api.get(self._names.payload(blob))
        if about is None or "todo" not in about or integer_of(about, "due") > at:
            return False  # the index was behind
        due = integer_of(about, "written") + rules.ORPHAN_AGE
        if due <= at:
            used = self._used_until(blob, about, at)
            if used == 0:
                return self._drop(blob, about)
            due = used
        self._look_again(blob, about, due)
        return False

    def _used_until(self, blob: str, about: Item, at: int) -> int:
        """When what points to a payload lets it go: 0 when nothing does, -1 for never."""
        users = [user.split("\n", 1) for user in about.get("users", {}).get("SS", [])]
        found = self._api.get_all([{"pk": {"S": pk}, "sk": {"S": sk}} for pk, sk in users])
        return max((self._until(item, at) for item in found.values() if _points(item, blob)), default=0, key=_later)

    def _until(self, item: Item, at: int) -> int:
        if "nonce" not in item:
            return -1  # a run
        record = record_of(item, self._names)
        if rules.is_absent(record, at):
            return 0
        return -1 if record.retain_until is None else record.retain_until

    def _look_again(self, blob: str, about: Item, due: int) -> None:
        guard = Guard("#rev = :rev", {":rev": about["rev"], ":one": number(1)})
        key = self._names.payload(blob)
        if due < 0:
            self._api.update(Update(key, guard, remove=("todo", "due"), also="ADD #rev :one"))
        else:
            self._api.update(Update(key, guard, self._todo(blob, due), also="ADD #rev :one"))


def _later(until: int) -> float:
    return float("inf") if until < 0 else float(until)


def _points(item: Mapping[str, Mapping[str, str]], blob: str) -> bool:
    return "blob" in item and item["blob"]["S"] == blob


def _count(about: Item | None) -> int:
    return 0 if about is None else integer_of(about, "count")
