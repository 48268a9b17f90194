"""idemkit: its method decorator, through the asynchronous interface, which is the faster of its two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .peer import ONCE, SKIPPED, Line, Peer, Place
from .tables import asking, client_of, drop
from .timing import Effect, each_awaited, numbered


@contextmanager
def _postgresql(place: Place) -> Iterator[list[Line]]:
    from idemkit.backends.postgres import PostgresBackend, init_pg

    with _loop() as loop:
        loop.run_until_complete(init_pg(place.url))
        backend = PostgresBackend.from_url(place.url)
        try:
            yield _lines(loop, backend)
        finally:
            loop.run_until_complete(backend.aclose())


@contextmanager
def _dynamodb(place: Place) -> Iterator[list[Line]]:
    from idemkit.backends.dynamodb import DynamoBackend

    name = f"{place.table}-idemkit"
    with _loop() as loop, client_of(place.url) as client:
        backend = DynamoBackend(table=name, **asking(place.url))
        try:
            yield _lines(loop, backend)
        finally:
            loop.run_until_complete(backend.aclose())
            drop(client, name)


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


def _lines(loop: asyncio.AbstractEventLoop, backend: Any) -> list[Line]:
    from idemkit import MethodConfig
    from idemkit.adapters.ai import idempotent

    effect, keys = Effect(), numbered("idemkit")
    scope = MethodConfig(key_fields=["item"], scope=lambda _call: "peers")  # without one it warns

    @idempotent(backend=backend, config=scope)
    async def step(*, item: str) -> Any:
        return effect(item)

    def again() -> Any:
        return step(item="idemkit")

    loop.run_until_complete(again())
    run = loop.run_until_complete
    return [
        Line("idempotent", ONCE, each_awaited(run, lambda: step(item=next(keys)), effect, executed=True)),
        Line("idempotent, replayed", SKIPPED, each_awaited(run, again, effect, executed=False)),
    ]


PEERS = [
    Peer("idemkit", "postgresql", ("idemkit", "asyncpg"), _postgresql),
    Peer("idemkit", "dynamodb", ("idemkit", "aioboto3"), _dynamodb),
]
