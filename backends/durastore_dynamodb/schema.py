"""The table as it is: looked at once for each client, created by `setup`, inspected by `check`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from durastore.contract import Finding
from durastore.errors import ConfigError, SchemaError, StoreUnavailable
from durastore_dynamodb import faults, layout
from durastore_dynamodb.api import Api, Refused, code_of
from durastore_dynamodb.items import Guard, Update, number

__all__ = ["check", "look", "setup"]

_WAIT = 300.0
"""Seconds that `setup` waits for a table to become active."""
_PAUSE = 0.5


def look(api: Api) -> bool:
    """One request, the first of each client: it also tells the time. Raises `ConfigError` for a table in several regions.

    False: look again later, since the table is missing or the answer was none (throttled). A role that may not look is not
    asked again.
    """
    try:
        table = api.once("describe_table", TableName=api.table)["Table"]
    except ClientError as error:
        if not api.clock.known:
            raise
        return code_of(error) in faults.DENIED
    replicas = _replicas(table)
    if replicas:
        raise ConfigError(_too_many(api, replicas))
    return True


def _replicas(table: Any) -> list[str]:
    """The regions of a global table; it names all but, in some versions, its own."""
    return sorted(replica["RegionName"] for replica in table.get("Replicas", []))


def _too_many(api: Api, replicas: Sequence[str]) -> str:
    return (
        f"table {api.table!r} has replicas ({', '.join(replicas)}): in a global table the last writer wins, so two regions may "
        f"grant one key twice; use a table without replicas"
    )


def setup(api: Api) -> None:
    """Create the table unless it is there, wait until it is active, and switch on its TTL."""
    table = _described(api)
    if table is None:
        try:
            api.once("create_table", **layout.table_definition(api.table))
        except ClientError as error:
            if code_of(error) != "ResourceInUseException":  # somebody else was faster
                raise
    _wait(api)
    _enable_ttl(api)
    table = _described(api)
    wrong = [] if table is None else _differences(table)
    if wrong:
        raise SchemaError(f"table {api.table!r} is not durastore's: {'; '.join(wrong)}. Name another table in the URL")


def _described(api: Api) -> Any:
    try:
        return api.once("describe_table", TableName=api.table)["Table"]
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return None
        raise


def _wait(api: Api) -> None:
    give_up = time.monotonic() + _WAIT
    while True:
        table = _described(api)
        states = [] if table is None else [table, *table.get("GlobalSecondaryIndexes", [])]
        if states and all(
            state.get("TableStatus", state.get("IndexStatus")) in ("ACTIVE", "UPDATING") for state in states
        ):
            return
        if time.monotonic() > give_up:
            raise StoreUnavailable(f"table {api.table!r} did not become active within {_WAIT:g} s")
        time.sleep(_PAUSE)


def _enable_ttl(api: Api) -> None:
    if _ttl(api):
        return
    try:
        specification = {"Enabled": True, "AttributeName": layout.TTL}
        api.once("update_time_to_live", TableName=api.table, TimeToLiveSpecification=specification)
    except ClientError as error:
        if code_of(error) not in ("ValidationException", "ResourceInUseException") or not _ttl(api):
            raise  # else somebody else was faster


def _ttl(api: Api) -> bool:
    described = api.once("describe_time_to_live", TableName=api.table)["TimeToLiveDescription"]
    return described.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") and described.get("AttributeName") == layout.TTL


def _differences(table: Any) -> list[str]:
    """What a table lacks."""
    wanted = layout.table_definition("")
    wrong = [] if _same_keys(table, wanted) else ["its keys are not pk and sk"]
    found = {index["IndexName"]: index for index in table.get("GlobalSecondaryIndexes", [])}
    return wrong + [
        f"index {index['IndexName']} is missing or has other keys"
        for index in wanted["GlobalSecondaryIndexes"]
        if not _same_keys(found.get(index["IndexName"], {}), index)
    ]


def _same_keys(one: Any, other: Any) -> bool:
    keys = [
        sorted((key["AttributeName"], key["KeyType"]) for key in each.get("KeySchema", [])) for each in (one, other)
    ]
    return keys[0] == keys[1]


# check


def check(api: Api, namespace: str) -> Sequence[Finding]:
    """Where the table is, its replicas, indexes and TTL, and whether we may read and write."""
    where = f"{api.client.meta.endpoint_url} ({api.client.meta.region_name})"
    findings = [*_table_findings(api, where)]
    if findings[0].name == "table" and not findings[0].ok:
        return findings
    never = layout.Names(namespace).payload("never")
    findings.append(_finding("read", "readable", api, lambda: api.get(never)))
    findings.append(_finding("write", "writable", api, lambda: _write_nothing(api, never)))
    return findings


def _write_nothing(api: Api, key: Any) -> None:
    """A write on a condition that cannot hold needs the right to write, and changes nothing."""
    guard = Guard("attribute_exists(#pk) AND attribute_not_exists(#pk)", {":one": number(1)})
    assert isinstance(api.update(Update(key, guard, also="ADD #rev :one")), Refused)


def _table_findings(api: Api, where: str) -> list[Finding]:
    try:
        table = _described(api)
    except ClientError as error:
        if not isinstance(faults.classify(error, api.target), ConfigError) or "AccessDenied" not in code_of(error):
            return [_failed("table", error, api)]
        return [
            Finding(
                "description",
                ok=False,
                detail=f"this role may not describe {api.table!r}, so replicas and indexes were not looked at",
                advice="allow dynamodb:DescribeTable on the table, or look at it in the console",
            )
        ]
    except BotoCoreError as error:
        return [_failed("table", error, api)]
    if table is None:
        return [Finding("table", ok=False, detail=f"no table {api.table!r} at {where}", advice=faults.CREATE)]
    wrong, replicas = _differences(table), _replicas(table)
    return [
        Finding("table", ok=True, detail=f"{api.table} at {where}, {table.get('TableStatus', 'unknown').lower()}"),
        Finding(
            "indexes",
            ok=not wrong,
            detail="; ".join(wrong) or "as they should be",
            advice="" if not wrong else faults.CREATE,
        ),
        Finding(
            "regions",
            ok=not replicas,
            detail=_too_many(api, replicas) if replicas else "one region",
            advice="use a table without replicas" if replicas else "",
        ),
        _ttl_finding(api),
    ]


def _ttl_finding(api: Api) -> Finding:
    try:
        enabled = _ttl(api)
    except ClientError as error:
        return _failed("ttl", error, api)
    if enabled:
        return Finding("ttl", ok=True, detail=f"DynamoDB deletes by {layout.TTL!r} what is past retention")
    advice = f"switch TTL on for the attribute {layout.TTL!r}; until then sweep() alone deletes"
    return Finding("ttl", ok=False, detail="off: what is past retention stays stored", advice=advice)


def _finding(name: str, detail: str, api: Api, look: Callable[[], object]) -> Finding:
    try:
        look()
    except (ClientError, BotoCoreError) as error:
        return _failed(name, error, api)
    return Finding(name, ok=True, detail=detail)


def _failed(name: str, error: Exception, api: Api) -> Finding:
    meaning = faults.classify(error, api.target)
    if meaning is None:
        raise error
    what, _, advice = str(meaning).partition("; ")
    return Finding(
        name, ok=False, detail=what, advice=advice or "try again; see whether the network lets requests through"
    )
