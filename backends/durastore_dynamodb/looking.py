"""Reading and listing, and the sweep of records, which is a listing that deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from durastore import rules
from durastore.contract import Page, RecordState, StoredProgress, StoredRecord
from durastore_dynamodb.api import Api
from durastore_dynamodb.claims import Claims
from durastore_dynamodb.items import Item, are_remains, number, record_of, run_of, stands
from durastore_dynamodb.layout import BY_RUN, BY_TODO, SHARDS, Names

__all__ = ["read", "records", "runs", "sweep"]


def read(api: Api, names: Names, keys: Sequence[str], now: int | None) -> list[StoredRecord | None]:
    """As in the contract."""
    found = _records(api, names, list(dict.fromkeys(keys)))
    at = api.judged(now)
    return [None if rules.is_absent(found.get(key), at) else found[key] for key in keys]


def _records(api: Api, names: Names, keys: Sequence[str]) -> dict[str, StoredRecord]:
    """Records by key, strongly consistent."""
    if len(keys) == 1:
        item = api.get(names.record(keys[0]))
        items = [] if item is None else [item]
    else:
        items = list(api.get_all([names.record(key) for key in keys]).values())
    return {item["sk"]["S"]: record_of(item, names) for item in items}


def records(
    api: Api,
    names: Names,
    *,
    run_id: str | None,
    state: RecordState | None,
    prefix: str,
    cursor: str | None,
    limit: int,
    now: int | None,
) -> Page[StoredRecord]:
    """One page: by the run's index, by the index of what is not committed, or of the table itself."""
    if run_id is not None:
        found, more = _of_run(api, names, run_id, prefix, cursor, limit)
    elif state in (None, "committed") or prefix:
        items, more = _of_table(api, names.records, prefix, cursor, limit)
        found = [record_of(item, names) for item in items]
    else:
        found, more = _of_open(api, names, cursor, limit)
    at = api.judged(now)
    matching = [record for record in found if run_id in (None, record.run_id) and rules.is_listed(record, state, at)]
    return Page(matching, more)


def runs(api: Api, names: Names, cursor: str | None, limit: int) -> Page[StoredProgress]:
    """One page of the runs, strongly consistent."""
    items, more = _of_table(api, names.runs, "", cursor, limit)
    return Page([run_of(item) for item in items if stands(item)], more)


def _query(
    api: Api, hash_name: str, hash_value: str, *, more: str = "", **arguments: Any
) -> tuple[list[Item], Item | None]:
    """One request: items, and where to go on."""
    values = {":hash": {"S": hash_value}, **arguments.pop("values", {})}
    names = {f"#{name}": name for name in (hash_name, *arguments.pop("names", ()))}
    answer = api.call(
        "query",
        TableName=api.table,
        KeyConditionExpression=f"#{hash_name} = :hash{more}",
        ExpressionAttributeNames=names,
        ExpressionAttributeValues=values,
        **{name: value for name, value in arguments.items() if value is not None},
    )
    return answer["Items"], answer.get("LastEvaluatedKey")


def _beginning(prefix: str) -> dict[str, Any]:
    """The part of a query that a prefix asks for."""
    if not prefix:
        return {}
    return {"more": " AND begins_with(#sk, :prefix)", "values": {":prefix": {"S": prefix}}, "names": ("sk",)}


def _of_table(api: Api, partition: Any, prefix: str, cursor: str | None, limit: int) -> tuple[list[Item], str | None]:
    """A page of the table, shard after shard. The cursor is the shard and the last sort key, if any was seen in it."""
    shard, _, last = (cursor or SHARDS[0]).partition("/")
    found: list[Item] = []
    for one in SHARDS[SHARDS.index(shard) :]:
        start = {"pk": {"S": partition(one)}, "sk": {"S": last}} if last else None
        while True:
            items, start = _query(
                api,
                "pk",
                partition(one),
                ConsistentRead=True,
                Limit=limit - len(found),
                ExclusiveStartKey=start,
                **_beginning(prefix),
            )
            found += items
            if len(found) == limit:
                return found, _next(one, found[-1]["sk"]["S"], more=start is not None)
            if start is None:
                break
        last = ""
    return found, None


def _next(shard: str, last: str, *, more: bool) -> str | None:
    """Where a full page goes on: after its last item, or with the next shard."""
    if more:
        return f"{shard}/{last}"
    following = SHARDS.index(shard) + 1
    return SHARDS[following] if following < len(SHARDS) else None


def _of_run(
    api: Api, names: Names, run_id: str, prefix: str, cursor: str | None, limit: int
) -> tuple[list[StoredRecord], str | None]:
    """Which records: by the index, eventually consistent. What they are: read consistently. The cursor is the last key."""
    start = None if cursor is None else {"run": {"S": names.run_of(run_id)}, **names.record(cursor)}
    items, last = _query(
        api,
        "run",
        names.run_of(run_id),
        IndexName=BY_RUN,
        Limit=limit,
        ExclusiveStartKey=start,
        **_beginning(prefix),
    )
    found = _records(api, names, [item["sk"]["S"] for item in items])
    return list(found.values()), None if last is None else last["sk"]["S"]


def _of_open(api: Api, names: Names, cursor: str | None, limit: int) -> tuple[list[StoredRecord], str | None]:
    """What is not committed, the oldest of each shard first; consistent as in `_of_run`. The cursor: shard, `due`, last key."""
    shard, due, last = (cursor or f"{SHARDS[0]}//").split("/", 2)
    keys: list[str] = []
    for one in SHARDS[SHARDS.index(shard) :]:
        todo = names.todo("open", one)
        start = {"todo": {"S": todo}, "due": {"N": due}, **names.record(last)} if due else None
        items, start = _query(api, "todo", todo, IndexName=BY_TODO, Limit=limit - len(keys), ExclusiveStartKey=start)
        keys += [item["sk"]["S"] for item in items]
        if start is not None:
            return list(_records(api, names, keys).values()), f"{one}/{start['due']['N']}/{start['sk']['S']}"
        if len(keys) == limit:
            following = _next(one, "", more=False)
            return list(_records(api, names, keys).values()), None if following is None else f"{following}//"
        due = ""
    return list(_records(api, names, keys).values()), None


def sweep(api: Api, names: Names, claims: Claims, *, limit: int, now: int | None) -> tuple[int, bool]:
    """Remove records past retention, each on condition that it is as it was read, and what is left of those removed long ago.

    How many records, and whether there may be more.
    """
    at = api.judged(now)
    due = [key for shard in SHARDS for key in _due(api, names, shard, at, limit)]
    past = [record for record in _records(api, names, due[:limit]).values() if rules.is_absent(record, at)]
    gone = [record for record in past if claims.remove(record, now) is None]
    return sum(not are_remains(record) for record in gone), len(due) > limit and len(gone) > 0


def _due(api: Api, names: Names, shard: str, at: int, limit: int) -> Iterator[str]:
    items, _ = _query(
        api,
        "todo",
        names.todo("due", shard),
        more=" AND #due <= :at",
        values={":at": number(at)},
        names=("due",),
        IndexName=BY_TODO,
        Limit=limit + 1,
    )
    return (item["sk"]["S"] for item in items)
