"""Powertools for AWS Lambda: its idempotency utility on DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .peer import ONCE, SKIPPED, Line, Peer, Place
from .tables import client_of, table
from .timing import Effect, each, numbered


class _Context:
    """What Lambda gives a function; without it Powertools warns at each call."""

    function_name = "peers"

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 60_000


@contextmanager
def _dynamodb(place: Place) -> Iterator[list[Line]]:
    from aws_lambda_powertools.utilities.idempotency import (
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )

    effect, keys, name = Effect(), numbered("powertools"), f"{place.table}-powertools"
    config = IdempotencyConfig()
    context: Any = _Context()
    config.register_lambda_context(context)
    with client_of(place.url) as client, table(client, name, key="id"):
        layer = DynamoDBPersistenceLayer(table_name=name, boto3_client=client)

        @idempotent_function(data_keyword_argument="item", persistence_store=layer, config=config)
        def step(*, item: str) -> Any:
            return effect(item)

        step(item="powertools")
        yield [
            Line("idempotent_function", ONCE, each(lambda: step(item=next(keys)), effect, executed=True)),
            Line(
                "idempotent_function, replayed", SKIPPED, each(lambda: step(item="powertools"), effect, executed=False)
            ),
        ]


PEERS = [Peer("Powertools", "dynamodb", ("aws-lambda-powertools", "boto3"), _dynamodb)]
