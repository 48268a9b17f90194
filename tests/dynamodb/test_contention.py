"""Conflicts between transactions, throttling, and errors of the service."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

import durastore
from durastore.contract import Held, Payload, StoredProgress
from durastore.errors import ClaimLost, StoreUnavailable
from durastore_dynamodb import DynamoDBBackend

from .conftest import Another
from .requests import RESULT, TABLE, granted, request
from .wiretap import Wiretap

CONFLICT, FAILED, NONE = {"Code": "TransactionConflict"}, "ConditionalCheckFailed", {"Code": "None"}
CANCELLED = "TransactionCanceledException"

pytestmark = pytest.mark.usefixtures("unhurried")


def progress(step: int) -> StoredProgress:
    return StoredProgress("run", step, RESULT)


def test_a_single_write_in_conflict_is_sent_again(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Somebody's transaction touches the item for a moment: claim and commit wait it out inside their verb."""
    tap.refuse("TransactionConflictException", times=3)
    grant = granted(backend.claim(request("key")))
    tap.refuse("TransactionConflictException", times=3)
    backend.commit(grant, result=RESULT)
    assert tap.idle
    assert isinstance(backend.claim(request("key")), durastore.contract.Committed)


def test_a_transaction_in_conflict_is_sent_again(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Cancelled for a conflict alone: again; what was read is decided anew."""
    grant = granted(backend.claim(request("key")))
    tap.refuse(CANCELLED, times=2, CancellationReasons=[CONFLICT, NONE])
    tap.refuse("TransactionInProgressException")
    backend.commit(grant, result=RESULT, progress=progress(1))
    assert tap.idle
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.state == "committed"


def test_a_conflict_over_the_next_key_does_not_hold_the_commit_up(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """A rival touches the next key just now: the commit lands alone at once, and the next key is asked for by itself."""
    grant = granted(backend.claim(request("key")))
    tap.requests()
    tap.refuse(CANCELLED, CancellationReasons=[NONE, NONE, CONFLICT])
    following = backend.commit(grant, result=RESULT, progress=progress(1), then=request("next"))
    assert following is not None
    first, second, third = tap.requests()
    assert (len(first.body["TransactItems"]), len(second.body["TransactItems"])) == (3, 2)
    assert third.operation == "UpdateItem"


def test_conflict_and_failed_condition_at_once(backend: DynamoDBBackend, tap: Wiretap, another: Another) -> None:
    """A lost claim is a lost claim, whatever the other item's reason; the record in the reason says whose it is."""
    grant = granted(backend.claim(request("key", lease=0)))
    rival = granted(another().claim(request("key")))
    item = backend.client.get_item(TableName=TABLE, Key=backend._names.record("key"))["Item"]
    tap.refuse(CANCELLED, CancellationReasons=[{"Code": FAILED, "Item": item}, CONFLICT])
    with pytest.raises(ClaimLost, match="under 'test'"):
        backend.commit(grant, result=RESULT, progress=progress(1))
    assert backend.load("run") is None
    backend.commit(rival, result=RESULT)


def test_a_condition_of_the_effects_own(store: durastore.Store, backend: DynamoDBBackend) -> None:
    """What the effect itself demanded and did not get is raised as boto3 raises it; nothing was written, the claim stands."""
    grant = granted(backend.claim(request("key")))
    check = {
        "TableName": TABLE,
        "Key": {"pk": {"S": "user/none"}, "sk": {"S": "-"}},
        "ConditionExpression": "attribute_exists(pk)",
    }

    def effect(tx: list[Any]) -> Payload:
        tx.append({"ConditionCheck": check})
        return RESULT

    with pytest.raises(ClientError) as caught:
        store.call("transact", backend.transact, grant, effect, progress=progress(1))
    reasons: Any = caught.value.response
    assert reasons["CancellationReasons"][2]["Code"] == FAILED
    assert backend.load("run") is None
    backend.commit(grant, result=RESULT)


def test_progress_that_went_on_meanwhile(backend: DynamoDBBackend, tap: Wiretap, another: Another) -> None:
    """The commit lands and leaves the higher step alone, although it was saved between decision and arrival."""
    rival = another()
    grant = granted(backend.claim(request("key")))
    tap.before(lambda: rival.save(progress(9)))
    backend.commit(grant, result=RESULT, progress=progress(1), then=request("next"))
    stored, (record,) = backend.load("run"), backend.read(["key"])
    assert stored is not None
    assert stored.step == 9
    assert record is not None
    assert record.state == "committed"


def test_takeover_rechecks_what_it_read(backend: DynamoDBBackend, tap: Wiretap, another: Another) -> None:
    """Between the look at a lapsed claim and its takeover the holder commits: the result stays."""
    rival = another()
    grant = granted(rival.claim(request("key", lease=0)))
    tap.let_through()
    tap.before(lambda: rival.commit(grant, result=RESULT))
    assert isinstance(backend.claim(request("key")), durastore.contract.Committed)
    assert tap.idle


def test_takeover_rechecks_a_renewal(backend: DynamoDBBackend, tap: Wiretap, another: Another) -> None:
    """Between the look and the takeover the holder renews: it keeps its claim."""
    rival = another()
    grant = granted(rival.claim(request("key", lease=0)))
    alive = durastore.contract.Grant(grant.key, grant.run_id, grant.owner, grant.nonce, grant.token, 1, 60_000_000)
    tap.let_through()
    tap.before(lambda: rival.renew([alive]))
    assert isinstance(backend.claim(request("key")), Held)
    assert tap.idle


def test_two_grants_never(backend: DynamoDBBackend, tap: Wiretap, another: Another) -> None:
    """The next key of a fused commit is taken between its decision and its arrival: one grant, the rival's."""
    rival = another()
    grant = granted(backend.claim(request("key")))
    tap.before(lambda: granted(rival.claim(request("next"))))
    assert backend.commit(grant, result=RESULT, progress=progress(1), then=request("next")) is None
    assert isinstance(backend.claim(request("next")), Held)


PASSING = [
    ("ProvisionedThroughputExceededException", 400),
    ("ThrottlingException", 400),
    ("RequestLimitExceeded", 400),
    ("InternalServerError", 500),
    ("ServiceUnavailable", 503),
]


@pytest.mark.parametrize(("code", "status"), PASSING)
def test_throttled_then_served(
    store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, code: str, status: int
) -> None:
    """Tried again with growing pauses until it is served, in every verb of a step."""
    tap.refuse(code, status, times=3)
    answer = store.call("claim", backend.claim, request("key"))
    assert tap.idle
    tap.refuse(code, status, times=3)
    store.call("commit", backend.commit, granted(answer), result=RESULT, progress=progress(1))
    assert tap.idle


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"])
def test_a_transaction_cancelled_for_passing_reasons(
    store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap, code: str
) -> None:
    """Throttled within a transaction is throttled."""
    grant = granted(backend.claim(request("key")))
    tap.refuse(CANCELLED, times=3, CancellationReasons=[NONE, {"Code": code}])
    store.call("commit", backend.commit, grant, result=RESULT, progress=progress(1))
    assert tap.idle


def test_throttled_for_good(store: durastore.Store, tap: Wiretap) -> None:
    """Past the verb's deadline: `StoreUnavailable`, which says what the service said; the effect did not run."""
    store.deadlines["claim"] = 0.3
    tap.refuse("ThrottlingException", times=1000)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"did not take a claim within 0.3 s.*ThrottlingException"):
        store.checkpoint("run").run_once("key", lambda: pytest.fail("ran without a claim"))
    assert time.monotonic() - began < 10


def test_a_commit_that_never_lands(store: durastore.Store, backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Past the commit's deadline the claim is left to lapse, so that the next caller finds it in doubt."""
    store.deadlines["commit"] = 0.3
    with pytest.raises(StoreUnavailable):
        store.checkpoint("run").run_once("key", lambda: tap.refuse("InternalServerError", 500, times=1000))
    tap._plans.clear()
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.state == "claimed"


def test_items_of_a_batch_left_unprocessed(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """DynamoDB may leave a part of a batch: it is sent again, and nothing is missing."""
    chunks = [bytes([number]) * 100_000 for number in range(6)]
    client: Any = backend.client
    leave = [3]

    def partly(params: dict[str, Any], **_: Any) -> None:
        table = params["RequestItems"][TABLE]
        whole = table if isinstance(table, list) else table["Keys"]
        if leave[0]:
            leave[0] -= 1
            left.append(whole[2:])
            del whole[2:]

    def report(parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if left:
            rest = left.pop()
            write = model.name == "BatchWriteItem"
            parsed["UnprocessedItems" if write else "UnprocessedKeys"] = {TABLE: rest if write else {"Keys": rest}}

    left: list[Any] = []
    for name in ("BatchWriteItem", "BatchGetItem"):
        client.meta.events.register(f"provide-client-params.dynamodb.{name}", partly)
        client.meta.events.register(f"after-call.dynamodb.{name}", report)
    backend.put_chunks("blob", chunks)
    assert leave == [0]
    leave[0] = 3
    assert backend.get_chunks("blob") == chunks
    assert leave == [0]


def test_one_of_many_wins(another: Another) -> None:
    """Eight clients at once on each of five keys, by claims and by fused commits alike: one grant for each."""
    clients = [another() for _ in range(8)]
    own = [granted(client.claim(request(f"own-{number}"))) for number, client in enumerate(clients)]
    start = threading.Barrier(8)
    grants: list[str] = []

    def ask(number: int) -> None:
        start.wait()
        answer: Any = clients[number].commit(
            own[number], result=RESULT, progress=progress(number), then=request("key-0")
        )
        asked = [clients[number].claim(request(f"key-{key}")) for key in range(1, 5)]
        grants.extend(one.grant.key for one in [answer, *asked] if isinstance(one, durastore.contract.Granted))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(grants) == [f"key-{number}" for number in range(5)]
