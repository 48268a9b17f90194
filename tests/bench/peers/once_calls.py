"""Small libraries that run a call once for each key: agent-once, exactly-once, justonce and durastep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from .peer import ONCE, REPLAY, SKIPPED, STEP, Line, Peer, Place
from .timing import Effect, each, numbered

_NOT_SYNCED = "synchronous=NORMAL: what it returned may be gone after a power failure"


@contextmanager
def _agent_once_sqlite(place: Place) -> Iterator[list[Line]]:
    with _agent_once(str(place.folder / "agent-once.db")) as lines:
        yield lines


@contextmanager
def _agent_once_postgresql(place: Place) -> Iterator[list[Line]]:
    with _agent_once(place.url) as lines:
        yield lines


@contextmanager
def _agent_once(where: str) -> Iterator[list[Line]]:
    from once import Once

    effect = Effect()
    with Once(where) as once:
        yield _lines("execute", effect, lambda key: once.execute(effect, key=key, tool_name="step"))


@contextmanager
def _exactly_once_sqlite(place: Place) -> Iterator[list[Line]]:
    from exactly_once.stores.sqlite import SQLiteStore

    with closing(SQLiteStore(str(place.folder / "exactly-once.db"))) as store:
        yield _exactly_once(store)


@contextmanager
def _exactly_once_postgresql(place: Place) -> Iterator[list[Line]]:
    from exactly_once.stores.postgres import PostgresStore

    with closing(PostgresStore(place.url)) as store:
        yield _exactly_once(store)


def _exactly_once(store: Any) -> list[Line]:
    from exactly_once import once

    effect = Effect()

    @once(store, key=lambda key: key)
    def step(key: str) -> Any:
        return effect(key)

    return _lines("once", effect, step)


@contextmanager
def _justonce_sqlite(place: Place) -> Iterator[list[Line]]:
    from justonce.stores.sqlite import SqliteStore

    with closing(SqliteStore(str(place.folder / "justonce.db"))) as store:
        yield _justonce(store)


@contextmanager
def _justonce_postgresql(place: Place) -> Iterator[list[Line]]:
    from justonce.stores.postgres import PostgresStore

    yield _justonce(PostgresStore(place.url))


def _justonce(store: Any) -> list[Line]:
    from justonce import Idempotent

    effect, engine = Effect(), Idempotent(store)
    return _lines("run", effect, lambda key: engine.run(key, effect))


def _lines(what: str, effect: Effect, call: Callable[[str], object]) -> list[Line]:
    keys, again = numbered(what), f"{what} again"
    call(again)
    return [
        Line(what, ONCE, each(lambda: call(next(keys)), effect, executed=True)),
        Line(f"{what}, replayed", SKIPPED, each(lambda: call(again), effect, executed=False)),
    ]


@contextmanager
def _durastep(place: Place) -> Iterator[list[Line]]:
    from durastep import run, step
    from durastep.store import SQLiteStore

    effect, keys = Effect(), numbered("durastep")

    @step(name="step")
    def one(key: str) -> Any:
        return effect(key)

    with closing(SQLiteStore(place.folder / "durastep.db")) as store, run("peers", store):
        one("again")
        yield [
            Line("step", STEP, each(lambda: one(next(keys)), effect, executed=True)),
            Line("step, replayed", REPLAY, each(lambda: one("again"), effect, executed=False)),
        ]


PEERS = [
    Peer("agent-once", "sqlite", ("agent-once",), _agent_once_sqlite),
    Peer("agent-once", "postgresql", ("agent-once", "psycopg"), _agent_once_postgresql),
    Peer("exactly-once", "sqlite", ("exactly-once",), _exactly_once_sqlite, _NOT_SYNCED),
    Peer("exactly-once", "postgresql", ("exactly-once", "psycopg"), _exactly_once_postgresql),
    Peer("justonce", "sqlite", ("justonce",), _justonce_sqlite),
    Peer(
        "justonce", "postgresql", ("justonce", "psycopg"), _justonce_postgresql, "a new connection for each statement"
    ),
    Peer("durastep", "sqlite", ("durastep",), _durastep, "no claim: two callers at once both run the step"),
]
