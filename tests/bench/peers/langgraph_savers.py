"""LangGraph: its savers alone, and a graph that saves each superstep before the next begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypedDict

from .peer import SKIPPED, STEP, Line, Peer, Place
from .timing import RESULT, Effect, between, each

_SAVED = {"configurable": {"thread_id": "saved", "checkpoint_ns": ""}}


@contextmanager
def _sqlite(place: Place) -> Iterator[list[Line]]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(place.folder / "langgraph.db")) as saver:
        yield _lines(saver)


@contextmanager
def _postgresql(place: Place) -> Iterator[list[Line]]:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(place.url) as saver:
        saver.setup()
        yield _lines(saver)


def _lines(saver: Any) -> list[Line]:
    saved, ran = Effect(), Effect()
    save = _saving(saver, saved)
    save()
    return [
        Line("saver: put and put_writes", STEP, each(save, saved, executed=True)),
        Line("saver: get_tuple", SKIPPED, each(_reading(saver), saved, executed=False)),
        Line("graph, durability=sync, superstep", STEP, between(_running(saver, ran), ran)),
    ]


def _saving(saver: Any, effect: Effect) -> Callable[[], object]:
    """What a loop of one's own over a saver does for each step."""
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.base.id import uuid6

    steps = count()
    config = _SAVED

    def save() -> None:
        nonlocal config
        step = next(steps)
        saver.put_writes(config, [("result", effect())], f"task-{step}") if step else effect()
        checkpoint = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=step)),
            "channel_values": {"step": step, **RESULT},
        }
        config = saver.put(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, {})

    return save


def _reading(saver: Any) -> Callable[[], object]:
    def read() -> None:
        if saver.get_tuple(_SAVED) is None:
            raise RuntimeError("the saver has forgotten its thread")

    return read


class _State(TypedDict):
    step: int


def _running(saver: Any, effect: Effect) -> Callable[[int, Callable[[], None]], None]:
    from langgraph.graph import END, START, StateGraph

    threads = count()
    told: list[Callable[[], None]] = []
    last: list[int] = [0]

    def step(state: _State) -> _State:
        effect()
        told[0]()
        return {"step": state["step"] + 1}

    graph = StateGraph(_State)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: END if state["step"] == last[0] else "step")
    compiled = graph.compile(checkpointer=saver)

    def run(number: int, tell: Callable[[], None]) -> None:
        told[:], last[:] = [tell], [number]
        config: Any = {"configurable": {"thread_id": f"graph-{next(threads)}"}, "recursion_limit": number + 1}
        compiled.invoke({"step": 0}, config, durability="sync")

    return run


PEERS = [
    Peer("LangGraph", "sqlite", ("langgraph", "langgraph-checkpoint-sqlite"), _sqlite),
    Peer("LangGraph", "postgresql", ("langgraph", "langgraph-checkpoint-postgres"), _postgresql),
]
