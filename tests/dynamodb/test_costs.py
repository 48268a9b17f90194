"""What a step costs, counted from the requests it sends; and what the README says it costs, and needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import urls
from durastore.contract import StoredProgress
from durastore_dynamodb import ACTIONS, OPTIONAL_ACTIONS, STEPS, DynamoDBBackend, connect
from durastore_dynamodb.costs import Units

from .requests import RESULT, granted, request
from .wiretap import Sent, Wiretap

ROUNDED = 0.0051
"""Dollars: a half cent, rounded up."""
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.usefixtures("unhurried")


def written(sent: Sent) -> int:
    """Write units of a request whose items are below 1 KB: one for each item, two in a transaction, one for each index entry."""
    if sent.operation == "TransactWriteItems":
        return sum(2 + _entries(item["Update"]) for item in sent.body["TransactItems"])
    return 1 + _entries(sent.body) if sent.operation == "UpdateItem" else 0


def _entries(update: dict[str, Any]) -> int:
    """Index entries that an update makes or removes: of by_run, and of by_todo."""
    values = update["ExpressionAttributeValues"]
    removed = update["UpdateExpression"].partition("REMOVE")[2]
    return (":new_run" in values) + (":new_todo" in values) + ("#todo" in removed)


def spent(tap: Wiretap) -> tuple[int, int]:
    sent = tap.requests()
    return len(sent), sum(map(written, sent))


def test_units_by_verb(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """What `STEPS` says is what is sent."""
    grant = granted(backend.claim(request("a")))
    assert spent(tap) == (1, STEPS["claim"].writes)
    assert backend.renew([grant]) == [grant]
    assert spent(tap) == (1, STEPS["renewal"].writes)
    following = backend.commit(grant, result=RESULT, progress=StoredProgress("run", 1, RESULT), then=request("b"))
    assert spent(tap) == (1, STEPS["commit with progress and the next claim, fused"].writes)
    assert following is not None
    backend.commit(following.grant, result=RESULT, progress=StoredProgress("run", 2, RESULT))
    assert spent(tap) == (1, STEPS["commit with progress"].writes)
    grant = granted(backend.claim(request("c")))
    tap.requests()
    backend.commit(grant, result=RESULT)
    assert spent(tap) == (1, STEPS["commit"].writes)
    backend.save(StoredProgress("run", 3, RESULT))
    assert spent(tap) == (1, STEPS["save"].writes)


def test_a_skip_is_billed_as_the_write_that_failed(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """One unit for each KB of the record: nothing is written, no index entry either."""
    backend.commit(granted(backend.claim(request("key"))), result=RESULT)
    item = backend._api.get(backend._names.record("key"))
    tap.requests()
    backend.claim(request("key"))
    assert len(tap.requests()) == 1
    assert len(json.dumps(item, default=str)) < 1024
    assert STEPS["skip"] == Units(1)


@pytest.mark.parametrize(
    ("options", "save_every", "row"),
    [
        ("", 1, "`run_agent`, progress at every step"),
        ("&fuse=false", 1, r"the same with `\?fuse=false`"),
        ("", 1000, "`run_agent`, progress seldom"),
        ("&fuse=true", 1000, r"the same with `\?fuse=true`"),
    ],
)
def test_the_readmes_steps(url: str, options: str, save_every: int, row: str) -> None:
    """Requests, units and dollars of a step, as a run of this kind sends them."""
    backend = connect(urls.parse(url + options))
    tap = Wiretap().attach(backend.client)
    marks: list[int] = []
    with durastore.Store(backend) as store:
        durastore.run_agent(
            list(range(8)),
            store.checkpoint("run"),
            lambda item: item,
            save_every=save_every,
            on_step=lambda *_: marks.append(len(tap.sent)),
        )
        step = tap.sent[marks[2] : marks[3]]
    units = Units(sum(map(written, step)))
    requests, writes, reads, dollars = _row(row)
    assert (len(step), units.writes, 0) == (requests, writes, reads)
    assert abs(units.dollars_per_million() - dollars) < ROUNDED


def _row(name: str) -> tuple[float, float, float, float]:
    (found,) = re.findall(rf"^\| {name}[^|]*\| ([\d.]+) \| (\d+) \| (\d+) \| \$([\d.]+) \|$", README, re.MULTILINE)
    requests, writes, reads, dollars = found
    return float(requests), float(writes), float(reads), float(dollars)


def test_the_readmes_rows_add_up() -> None:
    """Each row's dollars are its units at the prices that stand above the table."""
    write, read = 0.625, 0.125
    rows = re.findall(r"^\| [^|]+\| ([\d.]+) \| (\d+) \| (\d+) \| \$([\d.]+) \|$", README, re.MULTILINE)
    assert len(rows) == 6
    for _, writes, reads, dollars in rows:
        assert abs(int(writes) * write + int(reads) * read - float(dollars)) < ROUNDED


def test_the_readmes_policy() -> None:
    """It grants what a client calls, and what it looks at once; nothing else."""
    (block,) = re.findall(r"```json\n(\{.*?\n\})\n```", README, re.DOTALL)
    (statement,) = json.loads(block)["Statement"]
    assert set(statement["Action"]) == {*ACTIONS, *OPTIONAL_ACTIONS}
    assert len(statement["Resource"]) == 2
