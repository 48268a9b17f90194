"""What type checkers must refuse: an error at each line that is marked WRONG, and nowhere else. Checked, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import durastore
from durastore import aio


@dataclass
class Order:
    cents: int


def order() -> Order:
    return Order(1)


def anything() -> Any:
    return {"cents": 1}


def sync(ckpt: durastore.Checkpoint) -> None:
    plain: int = ckpt.run_once("k", order).value  # WRONG
    typed: int = ckpt.run_once("k", anything, returns=Order).value  # WRONG
    print(ckpt.run_once("k", anything, returns=Order).value.pounds)  # WRONG
    ckpt.run_once("k", order, retrun=Order)  # WRONG
    ckpt.transact("k", order, returns=Order)  # WRONG

    @ckpt.once(key="charge:{name}", returns=Order)
    def charge(name: str) -> Order:
        return Order(1)

    charge(17)  # WRONG
    charge("a", "b")  # WRONG
    print(ckpt.once(key="k", returns=Order)(dict))  # WRONG
    with ckpt.claim("k", returns=Order) as held:
        held.commit({"cents": 1})  # WRONG
    print(plain, typed)


async def awaited(ckpt: aio.Checkpoint) -> None:
    typed: int = (await ckpt.run_once("k", anything, returns=Order)).value  # WRONG

    @ckpt.once(key="charge:{name}", returns=Order)
    async def charge(name: str) -> Order:
        return Order(1)

    await charge(17)  # WRONG
    async with ckpt.claim("k", returns=Order) as held:
        await held.commit({"cents": 1})  # WRONG
    print(typed)
