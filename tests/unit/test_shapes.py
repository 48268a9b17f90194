"""Typed results: whoever asks, and however the result came about, gets an equal value of the type."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, Optional, Union
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from typing_extensions import TypedDict

import durastore
from durastore import ConfigError, Found, Outcome, PayloadError, aio
from durastore.memory import _Space
from tests.unit.virtual import VirtualClock, virtual

SECRET = "4929-secret"


class Color(Enum):
    RED = "r"


@dataclass(frozen=True)
class Line:
    cents: int
    day: date
    tags: frozenset[str] = frozenset()


@dataclass
class Order:
    lines: list[Line]
    total: Decimal
    made: int = field(init=False, default=3)


class Row(TypedDict):
    id: int
    when: datetime


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")
    cents_due: int = Field(alias="centsDue")
    validated: int = Field(default=1, validation_alias="in", serialization_alias="out")
    color: Color = Color.RED
    took: timedelta = timedelta(seconds=1.5)
    names: dict[int, str] = {}
    pair: tuple[int, str | None] = (1, None)
    line: Line | None = None
    ident: UUID = UUID(int=7)

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * self.cents_due


class Confusing(BaseModel):
    """Its default looks like a piece of a schema."""

    count: int
    more: dict[str, Any] = {"fields": [1, {SECRET: 1}]}


class Point(NamedTuple):
    x: int
    y: float


LINE = Line(2**53 + 1, date(2026, 6, 1), frozenset({"a", "b"}))
MODEL = Model(centsDue=5, names={1: "x"}, pair=(2, "b"), line=LINE)
VALUES: list[tuple[Any, Any]] = [
    (Line, LINE),
    (Order, Order([LINE], Decimal("1.50"))),
    (Row, {"id": 1, "when": datetime(2026, 6, 1, 12, tzinfo=timezone.utc)}),
    (Model, MODEL),
    (list[Model], [MODEL, MODEL]),
    (dict[str, Line], {"a": LINE}),
    (Model | None, None),
    (Optional[Line], LINE),  # noqa: UP045  the other spelling
    (Union[int, str], "5"),  # noqa: UP007  the other spelling
    (tuple[int, str], (1, "a")),
    (Point, Point(1, 0.1)),
    (float, float("inf")),
    (int, 10**30),
    (str, "\0 \N{SNOWMAN}"),
]


def _raises() -> Any:
    raise ValueError("the connection broke")


def _executed(ckpt: durastore.Checkpoint, returns: Any, value: Any) -> Outcome[Any]:
    return ckpt.run_once("k", lambda: value, returns=returns)


def _recovered(ckpt: durastore.Checkpoint, returns: Any, value: Any) -> Outcome[Any]:
    with pytest.raises(ValueError, match="broke"):
        ckpt.run_once("k", _raises, in_doubt="halt")
    return ckpt.run_once("k", _raises, in_doubt=lambda _: Found(value), returns=returns)


def _transacted(ckpt: durastore.Checkpoint, returns: Any, value: Any) -> Outcome[Any]:
    return ckpt.transact("k", lambda _tx: value, returns=returns)


def _by_hand(ckpt: durastore.Checkpoint, returns: Any, value: Any) -> Outcome[Any]:
    with ckpt.claim("k", returns=returns) as claim:
        return claim.commit(value)


def _decorated(ckpt: durastore.Checkpoint, returns: Any, value: Any) -> Outcome[Any]:
    @ckpt.once(key="k", returns=returns)
    def effect() -> Any:
        return value

    return Outcome(effect(), "executed")


def _step(ckpt: durastore.Checkpoint, returns: Any, value: Any) -> Outcome[Any]:
    seen: list[Outcome[Any]] = []
    durastore.run_agent(
        [1], ckpt, lambda _: value, key=lambda _: "k", returns=returns, on_step=lambda _, outcome: seen.append(outcome)
    )
    return seen[0]


FIRST = {
    _executed: "executed",
    _recovered: "recovered",
    _transacted: "executed",
    _by_hand: "executed",
    _decorated: "executed",
    _step: "executed",
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize(("returns", "value"), VALUES, ids=[str(returns) for returns, _ in VALUES])
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_replay_equals_run(store: str, returns: Any, value: Any, first: Callable[..., Outcome[Any]], tmp_path) -> None:
    """Whatever ran the effect, it returns what a replay returns by every way of asking: the value, of its type."""
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/a.db"
    with durastore.open(url) as opened:
        ckpt = opened.checkpoint("run")
        began = first(ckpt, returns, value)
        again = ckpt.run_once("k", _raises, returns=returns)
        with ckpt.claim("k", returns=returns) as claim:
            by_hand = claim.outcome
        ckpt.reset()
        stepped = _step(ckpt, returns, "never")
        transacted = ckpt.transact("k", lambda _: "never", returns=returns)
    assert began == (value, FIRST[first])
    for outcome in (again, by_hand, stepped, transacted):
        assert outcome == (value, "skipped")
        assert type(outcome.value) is type(began.value) is type(value)


def test_awaited() -> None:
    """Who waits for another holder gets the value of the type as well."""
    clock, space = VirtualClock(), _Space()
    store, _, _ = virtual(clock, space)
    other, _, _ = virtual(clock, space)
    with store.checkpoint("run").claim("k", returns=Model) as claim:

        def commit() -> None:
            if not claim.finished:
                claim.commit(MODEL)

        clock.during = commit
        waited = other.checkpoint("run").run_once("k", _raises, returns=Model)
    assert waited == (MODEL, "awaited")
    assert claim.outcome == (MODEL, "executed")


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("looks", [True, False])
def test_agent_replays(concurrency: int, looks: bool) -> None:
    """Each step's result is of the type, when it runs and when it is replayed, alone or in a batch."""
    with durastore.open("memory://") as store:
        ckpt = store.checkpoint("run")
        seen: dict[int, Any] = {}

        def go(effect: Callable[[int], Any]) -> durastore.Summary:
            on_step = (lambda step, outcome: seen.update({step: outcome.value})) if looks else None
            return durastore.run_agent(range(5), ckpt, effect, returns=Line, concurrency=concurrency, on_step=on_step)

        go(lambda cents: Line(cents, date(2026, 6, 1)))
        ran = dict(seen)
        ckpt.reset()
        seen.clear()
        assert go(lambda _: _raises()).skipped == 5
    assert seen == ran == ({step: Line(step, date(2026, 6, 1)) for step in range(5)} if looks else {})


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("looks", [True, False])
def test_agent_misfit(concurrency: int, looks: bool) -> None:
    """A stored step that does not fit stops the resume, also where nobody looks at the results."""
    with durastore.open("memory://") as store:
        ckpt = store.checkpoint("run")
        durastore.run_agent(range(3), ckpt, lambda step: {"cents": step if step < 2 else SECRET, "day": "2026-06-01"})
        ckpt.reset()
        on_step = (lambda _step, _outcome: None) if looks else None
        with pytest.raises(PayloadError, match=r"'run:step:2'.*cents: int_type") as caught:
            durastore.run_agent(
                range(3), ckpt, lambda _: _raises(), returns=Line, on_step=on_step, concurrency=concurrency
            )
    assert SECRET not in str(caught.value)


def test_what_fits_becomes_the_type() -> None:
    """The effect's JSON decides: a dictionary with a model's fields becomes one, at once and later."""
    with durastore.open("memory://") as store:
        ckpt = store.checkpoint("run")
        for _ in range(2):
            assert ckpt.run_once("k", lambda: {"cents_due": 5}, returns=Model).value == Model(centsDue=5)
        assert ckpt.run_once("k", _raises).value["cents_due"] == 5


MISFITS: list[tuple[Any, Any]] = [
    (int, SECRET),
    (Line, {"cents": SECRET, "day": "2026-06-01"}),
    (Model, {"cents_due": 1, SECRET: 1}),
    (dict[str, int], {SECRET: SECRET}),
    (list[Line], [LINE, {"cents": SECRET}]),
    (Line, object()),
    (Confusing, {"count": SECRET}),
    (bytes, b"\xff" + SECRET.encode()),
]


@pytest.mark.parametrize(("returns", "value"), MISFITS, ids=[str(returns) for returns, _ in MISFITS])
def test_effect_that_returns_a_misfit(returns: Any, value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """As a result that cannot be encoded: the effect counts as done, its result as lost, and nothing of it is told."""
    caplog.set_level(logging.DEBUG)
    ran: list[int] = []

    def effect() -> Any:
        ran.append(1)
        return value

    with durastore.open("memory://") as store:
        ckpt = store.checkpoint("run")
        with pytest.raises(
            PayloadError, match="'k' was done and will not be repeated, but its result is lost"
        ) as first:
            ckpt.run_once("k", effect, returns=returns)
        with pytest.raises(PayloadError, match="its result was lost") as again:
            ckpt.run_once("k", effect, returns=returns)
        assert store.record("k").state == "committed"
    assert ran == [1]
    assert SECRET not in f"{first.value}{again.value}{caplog.text}"


@pytest.mark.parametrize(("returns", "value"), MISFITS, ids=[str(returns) for returns, _ in MISFITS])
def test_transaction_that_returns_a_misfit(returns: Any, value: Any, tmp_path) -> None:
    """It is rolled back, and the claim given back: the next caller runs it."""
    with durastore.open(f"sqlite:///{tmp_path}/a.db") as store:
        ckpt = store.checkpoint("run")
        ckpt.transact("table", lambda tx: tx.execute("CREATE TABLE mine (n INTEGER)") and None)

        def effect(tx: Any) -> Any:
            tx.execute("INSERT INTO mine VALUES (1)")
            return value

        with pytest.raises(PayloadError) as caught:
            ckpt.transact("k", effect, returns=returns)
        count = ckpt.transact("k", lambda tx: tx.execute("SELECT count(*) FROM mine").fetchone()[0], returns=int)
    assert count == (0, "executed")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "stored", [{"cents": SECRET, "day": "2026-06-01"}, {"cents": "5", "day": "2026-06-01"}, {SECRET: 1}, SECRET, None]
)
def test_stored_misfit(stored: Any) -> None:
    """Nothing is run, bent or changed; the message names the key and what to do, and no value."""
    with durastore.open("memory://") as store:
        ckpt = store.checkpoint("run")
        ckpt.run_once("k", lambda: stored)
        before = store.record("k")
        with pytest.raises(
            PayloadError, match=r"key 'k' is not what returns= says.*Line.*store.resolve\('k'"
        ) as caught:
            ckpt.run_once("k", _raises, returns=Line)
        assert store.record("k") == before
        assert ckpt.run_once("k", _raises).value == stored
        store.resolve("k", result={"cents": 5, "day": "2026-06-01"}, force=True)
        assert ckpt.run_once("k", _raises, returns=Line).value == Line(5, date(2026, 6, 1))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@dataclass
class Odd:
    """Its check quotes what it was given."""

    text: str

    def __post_init__(self) -> None:
        raise RuntimeError(self.text)


def test_a_check_that_raises() -> None:
    """Whatever a type's own code raises is a misfit, told by its kind alone."""
    with durastore.open("memory://") as store:
        ckpt = store.checkpoint("run")
        ckpt.run_once("k", lambda: {"text": SECRET})
        with pytest.raises(PayloadError, match="RuntimeError") as caught:
            ckpt.run_once("k", _raises, returns=Odd)
    assert SECRET not in str(caught.value)


class Unfinished(BaseModel):
    later: NotThere  # noqa: F821


@pytest.mark.parametrize("returns", [object(), "Line", Unfinished, type("Plain", (), {})])
def test_no_type(returns: Any) -> None:
    """What cannot be read and written is refused before the store is asked, let alone the effect run."""
    store, backend, _ = virtual()
    with pytest.raises(ConfigError, match="returns="):
        store.checkpoint("run").run_once("k", _raises, returns=returns)
    assert backend.calls == []


@pytest.mark.parametrize(
    "block", ["sys.modules['pydantic'] = None", "import pydantic; pydantic.version.VERSION = '2.9.1'"]
)
def test_missing_extra(block: str) -> None:
    """Without Pydantic, or with one that is too old, one line says what to install, before anything runs."""
    program = (
        f"import sys, durastore\n{block}\n"
        "store = durastore.open('memory://')\n"
        "try:\n    store.checkpoint('run').run_once('k', lambda: print('ran'), returns=int)\n"
        "except durastore.ConfigError as exc:\n    print(exc)\n"
        "print(store.record('k'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "returns= needs Pydantic 2.11 or later; run: pip install 'durastore[pydantic]'",
        "None",
    ]


def test_slim() -> None:
    """Pydantic is imported by the first `returns=`, not before."""
    program = (
        "import sys, durastore, durastore.aio\n"
        "ckpt = durastore.open('memory://').checkpoint('run')\n"
        "ckpt.run_once('k', lambda: 1)\n"
        "assert 'pydantic' not in sys.modules\n"
        "ckpt.run_once('k', lambda: 1, returns=int)\n"
        "assert 'pydantic' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


@pytest.mark.parametrize(("returns", "value"), VALUES, ids=[str(returns) for returns, _ in VALUES])
def test_awaited_surface(returns: Any, value: Any) -> None:
    """`durastore.aio` passes the type on, everywhere."""

    async def effect() -> Any:
        return value

    async def main() -> list[Any]:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            got = [(await ckpt.run_once("a", effect, returns=returns)).value]
            got.append((await ckpt.run_once("a", effect, returns=returns)).value)
            got.append((await ckpt.transact("b", lambda _: value, returns=returns)).value)
            async with ckpt.claim("c", returns=returns) as claim:
                got.append((await claim.commit(value)).value)
            async with ckpt.claim("c", returns=returns) as claim:
                got.append(claim.outcome.value)
            decorated = ckpt.once(key="d", returns=returns)(effect)
            got += [await decorated(), await decorated()]
            for concurrency in (1, 2):
                await aio.run_agent(
                    [1, 2],
                    ckpt,
                    lambda _: value,
                    returns=returns,
                    concurrency=concurrency,
                    on_step=lambda _, outcome: got.append(outcome.value),
                )
                await ckpt.reset()
            return got

    got = asyncio.run(asyncio.wait_for(main(), 60))
    assert got == [value] * 11
    assert {type(one) for one in got} == {type(value)}
