"""What type checkers know of results. Checked, never run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Optional, TypedDict

from pydantic import BaseModel
from typing_extensions import assert_type

import durastore
from durastore import aio


@dataclass
class Order:
    cents: int


class Row(TypedDict):
    cents: int


class Model(BaseModel):
    cents: int


def order() -> Order:
    return Order(1)


def maybe() -> Order | None:
    return None


def anything() -> Any:
    return {"cents": 1}


def in_transaction(tx: Any) -> Order:
    return Order(1)


def run_once(ckpt: durastore.Checkpoint) -> None:
    assert_type(ckpt.run_once("k", order), durastore.Outcome[Order])
    assert_type(ckpt.run_once("k", order).value, Order)
    assert_type(ckpt.run_once("k", order, wait=1.0, progress=(1, {})).value, Order)
    assert_type(ckpt.run_once("k", order, returns=Order), durastore.Outcome[Order])
    assert_type(ckpt.run_once("k", anything, returns=Order).value, Order)
    assert_type(ckpt.run_once("k", anything, returns=Row).value, Row)
    assert_type(ckpt.run_once("k", lambda: Model(cents=1), returns=Model, fingerprint=1).value, Model)
    assert_type(ckpt.run_once("k", anything, returns=list[Model]).value, list[Model])
    assert_type(ckpt.run_once("k", maybe, returns=Optional[Order]).value, Order | None)  # noqa: UP045  the other spelling
    assert_type(ckpt.run_once("k", maybe, returns=Order | None).value, Order | None)


def transact(ckpt: durastore.Checkpoint) -> None:
    assert_type(ckpt.transact("k", in_transaction), durastore.Outcome[Order])
    assert_type(ckpt.transact("k", in_transaction, returns=Order), durastore.Outcome[Order])


def once(ckpt: durastore.Checkpoint) -> None:
    @ckpt.once(key="charge:{name}")
    def plain(name: str, *, cents: int = 0) -> Order:
        return Order(cents)

    @ckpt.once(key="charge:{name}", returns=Order, wait=1.0)
    def typed(name: str, *, cents: int = 0) -> Order:
        return Order(cents)

    assert_type(plain("a", cents=1), Order)
    assert_type(typed("a", cents=1), Order)


def claim(ckpt: durastore.Checkpoint) -> None:
    with ckpt.claim("k", returns=Order) as held:
        assert_type(held, durastore.ManualClaim[Order])
        assert_type(held.commit(Order(1)), durastore.Outcome[Order])
        assert_type(held.outcome, durastore.Outcome[Order] | None)
    with ckpt.claim("k") as untyped:
        untyped.commit({"cents": 1})


async def awaited_order() -> Order:
    return Order(1)


async def awaited(ckpt: aio.Checkpoint) -> None:
    assert_type(await ckpt.run_once("k", awaited_order), durastore.Outcome[Order])
    assert_type(await ckpt.run_once("k", order), durastore.Outcome[Order])
    assert_type(await ckpt.run_once("k", awaited_order, returns=Order), durastore.Outcome[Order])
    assert_type(await ckpt.run_once("k", anything, returns=Row), durastore.Outcome[Row])
    assert_type(await ckpt.transact("k", in_transaction), durastore.Outcome[Order])
    assert_type(await ckpt.transact("k", in_transaction, returns=Order), durastore.Outcome[Order])
    async with ckpt.claim("k", returns=Order) as held:
        assert_type(await held.commit(Order(1)), durastore.Outcome[Order])

    @ckpt.once(key="charge:{name}", returns=Order)
    async def typed(name: str) -> Order:
        return Order(1)

    @ckpt.once(key="charge:{name}", returns=Order)
    def plain(name: str) -> Order:
        return Order(1)

    @ckpt.once(key="charge:{name}")
    async def untyped(name: str) -> Order:
        return Order(1)

    assert_type(await plain("a"), Order)
    assert_type(await untyped("a"), Order)
    call: Callable[[str], Coroutine[Any, Any, Order]] = typed
    assert_type(await call("a"), Order)
    assert_type(await typed("a"), Order)


def agent(ckpt: durastore.Checkpoint) -> None:
    durastore.run_agent([1], ckpt, Order, returns=Order)
