"""Absurd: steps of a task, and the steps that its next attempt finds done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .peer import REPLAY, STEP, Line, Peer, Place
from .timing import REPLAYED, Effect, between, whole

_CLAIMED_S = 600


@contextmanager
def _postgresql(place: Place) -> Iterator[list[Line]]:
    import absurdctl
    import psycopg
    from absurd_sdk import Absurd

    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
    app = Absurd(place.url)
    try:
        app.create_queue()
        app.create_queue("replayed")
        effect = Effect()
        yield [
            Line("task step", STEP, between(_running(app, effect), effect)),
            Line(
                "task step, replayed by a retry",
                REPLAY,
                whole(_retrying(Absurd(place.url, "replayed"), effect), effect),
            ),
        ]
    finally:
        app.close()


def _running(app: Any, effect: Effect) -> Callable[[int, Callable[[], None]], None]:
    told: list[Callable[[], None]] = []

    @app.register_task(name="steps")
    def steps(number: int, task: Any) -> None:
        for item in range(number):
            task.step(f"step-{item}", effect)
            told[0]()

    def run(number: int, tell: Callable[[], None]) -> None:
        told[:] = [tell]
        app.spawn("steps", number)
        app.work_batch(claim_timeout=_CLAIMED_S)

    return run


def _retrying(app: Any, effect: Effect) -> Callable[[], float]:
    """An attempt from its claim to its end; the next one finds what this one found."""

    @app.register_task(name="again")
    def again(_params: Any, task: Any) -> None:
        for item in range(REPLAYED):
            task.step(f"step-{item}", effect)
        raise RuntimeError("so that there is a next attempt")

    def attempt() -> float:
        began = time.perf_counter()
        app.work_batch(claim_timeout=_CLAIMED_S)
        return time.perf_counter() - began

    app.spawn("again", None, max_attempts=1_000_000, retry_strategy={"kind": "none"})
    attempt()
    return attempt


PEERS = [Peer("Absurd", "postgresql", ("absurd-sdk", "absurdctl"), _postgresql)]
