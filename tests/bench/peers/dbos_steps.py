"""DBOS: steps of a workflow, and the steps that a fork of it finds done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .peer import REPLAY, STEP, Line, Peer, Place
from .timing import REPLAYED, Effect, between, whole


@contextmanager
def _sqlite(place: Place) -> Iterator[list[Line]]:
    with _launched(f"sqlite:///{place.folder / 'dbos.db'}") as lines:
        yield lines


@contextmanager
def _postgresql(place: Place) -> Iterator[list[Line]]:
    with _launched(place.url) as lines:
        yield lines


@contextmanager
def _launched(url: str) -> Iterator[list[Line]]:
    from dbos import DBOS

    DBOS(config={"name": "peers", "system_database_url": url, "log_level": "WARNING", "executor_id": "peers"})
    effect = Effect()
    told: list[Callable[[], None]] = []  # a workflow's arguments are stored, and a function cannot be
    spans: list[float] = []

    @DBOS.step(name="step")
    def step(_number: int) -> Any:
        return effect()

    @DBOS.workflow(name="steps")
    def steps(number: int) -> None:
        began = time.perf_counter()
        for item in range(number):
            step(item)
            if told:
                told[0]()
        spans.append(time.perf_counter() - began)

    DBOS.launch()
    try:
        yield [
            Line("workflow step", STEP, between(_running(steps, told), effect)),
            Line("workflow step, replayed by a fork", REPLAY, whole(_forking(steps, spans), effect)),
        ]
    finally:
        DBOS.destroy(destroy_registry=True)


def _running(steps: Callable[[int], None], told: list[Callable[[], None]]) -> Callable[[int, Callable[[], None]], None]:
    def run(number: int, tell: Callable[[], None]) -> None:
        told.append(tell)
        steps(number)
        told.clear()

    return run


def _forking(steps: Callable[[int], None], spans: list[float]) -> Callable[[], float]:
    """Timed inside the workflow: when its queue is looked at next is not the step's cost."""
    from dbos import DBOS, SetWorkflowID

    with SetWorkflowID("replayed"):
        steps(REPLAYED)

    def replay() -> float:
        spans.clear()
        DBOS.fork_workflow("replayed", REPLAYED + 1).get_result()
        return spans[0]

    return replay


PEERS = [
    Peer("DBOS", "sqlite", ("dbos",), _sqlite),
    Peer("DBOS", "postgresql", ("dbos",), _postgresql),
]
