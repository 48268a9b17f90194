"""Requests: each answer's ``Date`` heard, conflicts tried again, failed conditions as values instead of exceptions."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from durastore_dynamodb.clock import StoreClock
from durastore_dynamodb.items import Item, Update
from durastore_dynamodb.layout import Key
from durastore_dynamodb.target import Target

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["Api", "Refused", "code_of"]

_CONTENTION = 8.0
"""Seconds that a request is sent again while a transaction of somebody else's touches the same item."""
_LOOK_AGAIN = 5.0
"""Seconds after a look at the table that saw nothing."""
_PAUSE_FIRST, _PAUSE_MAX = 0.01, 0.5
"""Seconds, at most, before sending again; doubled each time."""
_READ_MAX = 100
_WRITE_MAX = 8
"""Items of one batch of chunks: about 3 MB, which is sent well within the time for one answer."""
_SKEWED = ("InvalidSignatureException", "RequestExpired", "RequestTimeTooSkewed")
_CONFLICT = "TransactionConflict"


@dataclass(frozen=True, slots=True)
class Refused:
    """A condition failed, and nothing was written."""

    item: Item | None
    """The item as it was; None when there was none."""
    again: bool
    """Whether the request was sent more than once, so that it may be its own success which it ran into."""


def code_of(error: Exception) -> str:
    """DynamoDB's name for an error; empty for what is not DynamoDB's."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


class Api:
    """One client and what it heard. Thread-safe."""

    def __init__(self, target: Target, look: Callable[[Api], bool]) -> None:
        """`look` is called before the first request, makes one, and is called no more once it says that it has seen the table."""
        self.target = target
        self.table = target.table
        self.clock = StoreClock()
        self.client: DynamoDBClient = target.client(self._timestamp)
        self._look = look
        self._looking = threading.RLock()
        self._looked = False
        self._look_due = float("-inf")
        """When to look again, by the monotonic clock."""

    def _timestamp(self) -> str | None:
        if not self.clock.known:
            return None
        return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.clock.bounds()[0] // 1_000_000))

    def ready(self) -> None:
        """Look at the table, if it was not seen yet. Raises what `look` does."""
        if self._is_seen():
            return
        with self._looking:
            if not self._is_seen():
                self._looked = self._look(self)
                self._look_due = time.monotonic() + _LOOK_AGAIN

    def _is_seen(self) -> bool:
        return self._looked or time.monotonic() < self._look_due

    # Time

    def stamp(self, now: int | None) -> int:
        """The time to write: the latest that it may be at the store, and never earlier than one before."""
        if now is not None:
            return now
        self.ready()
        return self.clock.stamp()

    def judged(self, now: int | None) -> int:
        """The time to judge by: the earliest that it may be at the store."""
        if now is not None:
            return now
        self.ready()
        return self.clock.bounds()[0]

    # Requests

    def call(self, operation: str, **arguments: Any) -> Any:
        """One call of the client. Sent again while a transaction touches the item, and when the signature's date was off."""
        self.ready()
        pauses = _pauses()
        while True:
            try:
                return self.once(operation, **arguments)
            except ClientError as error:
                pause = next(pauses) if code_of(error) == f"{_CONFLICT}Exception" else None
                if pause is None:
                    raise
            time.sleep(pause)

    def once(self, operation: str, **arguments: Any) -> Any:
        """One call of the client, without a look at the table before."""
        try:
            return self._send(operation, arguments)
        except ClientError as error:
            if code_of(error) not in _SKEWED or not self.clock.known:
                raise
        return self._send(operation, arguments)  # dated by what the first answer said

    def _send(self, operation: str, arguments: dict[str, Any]) -> Any:
        sent = time.monotonic()
        try:
            answer = getattr(self.client, operation)(**arguments)
        except ClientError as error:
            self._hear(error.response, sent)
            raise
        self._hear(answer, sent)
        return answer

    def _hear(self, answer: Any, sent: float) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self.clock.heard(headers.get("date"), sent, time.monotonic())

    def get(self, key: Key) -> Item | None:
        """One item, strongly consistent."""
        found: Item | None = self.call("get_item", TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        return found

    def update(self, update: Update, returns: str = "NONE") -> Item | Refused:
        """Write one item if its guard holds; answers with the attributes that `returns` names."""
        return self._try("update_item", "Attributes", ReturnValues=returns, **update.arguments(self.table))

    def write(self, items: Sequence[Any]) -> Refused | None:
        """Write one item, or several in a transaction; whether the condition of the first failed. The others have none."""
        if len(items) == 1:
            ((operation, arguments),) = items[0].items()
            landed = self._try(f"{operation.lower()}_item", "Attributes", **arguments)
            return landed if isinstance(landed, Refused) else None
        reasons = self.transact(items)
        return None if reasons is None else reasons[0]

    def _try(self, operation: str, part: str, **arguments: Any) -> Item | Refused:
        try:
            answer = self.call(operation, **arguments)
        except ClientError as error:
            refused = self.refused(error)
            if refused is None:
                raise
            return refused
        found: Item = answer.get(part, {})
        return found

    @staticmethod
    def refused(error: ClientError) -> Refused | None:
        """Whether it was the condition that failed."""
        response: Any = error.response
        if code_of(error) != "ConditionalCheckFailedException":
            return None
        return Refused(response.get("Item") or None, _sent_again(response))

    def transact(
        self, items: Sequence[Any], ours: int | None = None, *, optional: bool = False
    ) -> list[Refused | None] | None:
        """Write all or nothing; None when it was written, else for each item whether its condition failed.

        Raises what the driver does when it was something else than conditions and conflicts. Items after the first `ours` are
        somebody else's: when no condition of ours failed, but one of theirs, that is raised too. Unless they are `optional`:
        then a conflict over one of them counts as a failed condition, instead of being waited for.
        """
        pauses = _pauses()
        while True:
            try:
                self.call("transact_write_items", TransactItems=list(items))
            except ClientError as error:
                reasons = _reasons(error, ours if optional else None)
                if any(reasons if optional else reasons[:ours]):
                    return reasons
                if any(reasons):
                    raise
                pause = next(pauses) if _is_conflict(error) else None
                if pause is None:
                    raise
                time.sleep(pause)
            else:
                return None

    # Batches

    def get_all(self, keys: Sequence[Key]) -> dict[tuple[str, str], Item]:
        """Items by (pk, sk), strongly consistent each; those that are absent are left out. Keys are unique."""
        found: dict[tuple[str, str], Item] = {}
        for start in range(0, len(keys), _READ_MAX):
            for answer in self._in_batches("get", list(keys[start : start + _READ_MAX])):
                items = answer.get("Responses", {}).get(self.table, [])
                found.update({(item["pk"]["S"], item["sk"]["S"]): item for item in items})
        return found

    def write_all(self, requests: Sequence[dict[str, Any]]) -> None:
        """Unconditional puts and deletes, as ``BatchWriteItem`` has them."""
        for start in range(0, len(requests), _WRITE_MAX):
            for _ in self._in_batches("write", list(requests[start : start + _WRITE_MAX])):
                pass

    def _in_batches(self, kind: str, left: list[Any]) -> Iterable[Any]:
        """Send what DynamoDB left unprocessed again, until nothing is left."""
        pauses = _pauses()
        while left:
            table: Any = {"Keys": left, "ConsistentRead": True} if kind == "get" else left
            answer = self.call(f"batch_{kind}_item", RequestItems={self.table: table})
            yield answer
            rest = answer.get("UnprocessedKeys" if kind == "get" else "UnprocessedItems", {}).get(self.table, [])
            rest = rest.get("Keys", []) if isinstance(rest, dict) else rest
            if rest:
                self._wait(kind, pauses, progressed=len(rest) < len(left))
            left = rest

    def _wait(self, kind: str, pauses: Any, *, progressed: bool) -> None:
        pause = next(pauses)
        if pause is None and not progressed:
            error: Any = {"Error": {"Code": "ThrottlingException", "Message": "items of a batch were left unprocessed"}}
            raise ClientError(error, f"batch_{kind}_item")
        time.sleep(_PAUSE_MAX if pause is None else pause)


def _pauses() -> Any:
    """Pauses with jitter; None once patience has ended."""
    give_up = time.monotonic() + _CONTENTION
    longest = _PAUSE_FIRST
    while time.monotonic() < give_up:
        yield random.uniform(0, longest)  # noqa: S311  jitter
        longest = min(2 * longest, _PAUSE_MAX)
    while True:
        yield None


def _sent_again(response: Any) -> bool:
    return bool(response.get("ResponseMetadata", {}).get("RetryAttempts"))


def _reasons(error: ClientError, optional: int | None) -> list[Refused | None]:
    """For each item of a transaction whether its condition failed, or from `optional` on whether it was in conflict."""
    response: Any = error.response
    codes = [reason.get("Code") for reason in response.get("CancellationReasons", [])]
    failed = [
        code == "ConditionalCheckFailed" or (code == _CONFLICT and optional is not None and index >= optional)
        for index, code in enumerate(codes)
    ]
    return [
        Refused(reason.get("Item") or None, _sent_again(response)) if is_failed else None
        for reason, is_failed in zip(response.get("CancellationReasons", []), failed, strict=True)
    ]


def _is_conflict(error: ClientError) -> bool:
    response: Any = error.response
    if code_of(error) == "TransactionInProgressException":
        return True
    codes = {reason.get("Code") for reason in response.get("CancellationReasons", [])} - {"None", None}
    return codes == {_CONFLICT}
