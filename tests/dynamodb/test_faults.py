"""What goes wrong with a table, and what the message tells people to run."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    ReadTimeoutError,
    SSOTokenLoadError,
)

import durastore
from durastore import urls
from durastore.errors import ConfigError, DurastoreError, PayloadError, SchemaError, StoreUnavailable
from durastore_dynamodb import faults
from durastore_dynamodb.target import parse

from .wiretap import Wiretap

TARGET = parse(urls.parse("dynamodb://jobs?region=eu-central-1"))


def answered(
    code: str, said: str = "by the test", status: int = 400, operation: str = "UpdateItem", **more: Any
) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": said}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    return ClientError(response, operation)


def cancelled(*codes: str) -> ClientError:
    return answered("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])


@pytest.mark.parametrize(
    ("error", "meaning", "advice"),
    [
        (answered("ThrottlingException"), StoreUnavailable, "ThrottlingException"),
        (answered("ProvisionedThroughputExceededException"), StoreUnavailable, "Throughput"),
        (answered("InternalServerError", status=500), StoreUnavailable, "InternalServerError"),
        (answered("SomethingNew", status=503), StoreUnavailable, "SomethingNew"),
        (answered("TransactionConflictException"), StoreUnavailable, "Conflict"),
        (cancelled("None", "TransactionConflict"), StoreUnavailable, "Cancel"),
        (cancelled("ThrottlingError", "TransactionConflict"), StoreUnavailable, "Cancel"),
        (cancelled("ConditionalCheckFailed", "TransactionConflict"), None, ""),
        (cancelled("ConditionalCheckFailed"), None, ""),
        (answered("ConditionalCheckFailedException"), None, ""),
        (answered("AccessDeniedException"), ConfigError, "durastore_dynamodb.ACTIONS"),
        (answered("UnrecognizedClientException"), ConfigError, "aws sts get-caller-identity"),
        (answered("ExpiredTokenException"), ConfigError, "aws sts get-caller-identity"),
        (answered("ResourceNotFoundException"), SchemaError, "durastore init"),
        (
            answered("ValidationException", "The table does not have the specified index: by_run", operation="Query"),
            SchemaError,
            "durastore init",
        ),
        (
            answered("ValidationException", "The provided key element does not match the schema", operation="GetItem"),
            SchemaError,
            "not durastore's",
        ),
        (
            answered("ValidationException", "does not match the schema", operation="TransactWriteItems"),
            None,
            "",
        ),
        (answered("ValidationException", "Item size has exceeded the maximum allowed size"), PayloadError, "400 KB"),
        (answered("ValidationException", "Invalid UpdateExpression"), None, ""),
        (EndpointConnectionError(endpoint_url="http://x"), StoreUnavailable, "DynamoDB"),
        (ConnectTimeoutError(endpoint_url="http://x"), StoreUnavailable, "DynamoDB"),
        (ReadTimeoutError(endpoint_url="http://x"), StoreUnavailable, "DynamoDB"),
        (NoCredentialsError(), ConfigError, "aws configure"),
        (NoRegionError(), ConfigError, "?region="),
        (SSOTokenLoadError(error_msg="gone"), ConfigError, "aws sso login"),
        (ParamValidationError(report="tx"), ConfigError, "boto3"),
        (ValueError("the effect's own"), None, ""),
    ],
    ids=lambda value: None if isinstance(value, Exception) else str(value)[:20],
)
def test_classify(error: Exception, meaning: type[DurastoreError] | None, advice: str) -> None:
    """Passing errors are tried again; others are final, on one line, with what to do; a failed condition is the caller's."""
    found = faults.classify(error, TARGET)
    assert (None if found is None else type(found)) is meaning
    assert advice in str(found)
    assert "\n" not in str(found)


def test_nobody_listens() -> None:
    """A refused connection is reported within the deadline, not after minutes; `open` does not fail for it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"dynamodb://jobs?endpoint_url=http://127.0.0.1:{held.getsockname()[1]}"
        with durastore.open(url) as store:
            store.deadlines = dict.fromkeys(("claim", "load"), 0.3)
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="did not take a load"):
                store.checkpoint("run").load()
            assert time.monotonic() - began < 10


def test_a_host_that_never_answers() -> None:
    """A request has a timeout although the connection stands."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"dynamodb://jobs?endpoint_url=http://127.0.0.1:{silent.getsockname()[1]}&timeout=0.2&attempts=1"
        with durastore.open(url) as store:
            store.deadlines = {"load": 0.1}
            with pytest.raises(StoreUnavailable, match=r"[Tt]imeout"):
                store.checkpoint("run").load()


def test_an_emulator_that_is_too_old(store: durastore.Store, tap: Wiretap) -> None:
    """One that does not return the item with a failed condition cannot serve, and is told from a busy one."""
    tap.refuse("ConditionalCheckFailedException")
    with pytest.raises(ConfigError, match="ReturnValuesOnConditionCheckFailure"):
        store.checkpoint("run").run_once("key", lambda: 1)
