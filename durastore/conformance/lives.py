"""A short run that may die at any of its points, in each mode of `in_doubt` and by `transact`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from durastore import urls
from durastore.claims import Claim
from durastore.conformance.client import nonce
from durastore.conformance.harness import BASE
from durastore.conformance.points import Deadly, Outside, Points
from durastore.conformance.surface import run_agent, surfaced
from durastore.conformance.userdata import UserData
from durastore.conformance.virtual import StillKeeper, VirtualClock
from durastore.contract import Backend
from durastore.store import Store
from durastore.terms import Found, NotFound

__all__ = ["LAST", "Life", "Mode", "Script", "virtual_store"]

Mode = Literal["rerun", "halt", "probe", "transact"]
LAST = 9
"""The step that is saved at the end."""


@dataclass(frozen=True)
class Life:
    """What a process is to do, and when it is to die. Goes to other processes."""

    url: str
    mode: Mode
    run_id: str
    outside: Path
    data: UserData | None
    target: int = 0

    @property
    def keys(self) -> tuple[str, str]:
        """Its two steps."""
        return (f"{self.run_id}:one", f"{self.run_id}:two")

    def __call__(self) -> None:
        """Live it, in this process."""
        points = Points(self.target)
        backend = urls.connect(urls.parse(self.url))
        Script(virtual_store(backend, points), self, points).run()


def virtual_store(backend: Backend, point: Callable[..., None] = lambda *_: None, *, elapsed: float = 0.0) -> Store:
    """A store at a time of our own, with a point before and after each of its calls."""
    clock = VirtualClock(BASE)
    clock.elapsed = elapsed
    store = Store(Deadly(backend, point), clock=clock)
    store.keeper = StillKeeper(store._renew, clock)
    return surfaced(store)


class Script:
    """The run itself, and what it did."""

    def __init__(self, store: Store, life: Life, point: Callable[[], None] = lambda: None) -> None:
        self.life, self.point = life, point
        self.probed: list[str] = []
        self.outside = Outside(life.outside)
        policy: Any = {"probe": self.probe, "transact": "rerun"}.get(life.mode, life.mode)
        self.ckpt = store.checkpoint(life.run_id, in_doubt=policy, wait=0)

    def run(self) -> None:
        """Both steps and a last save."""
        if self.life.mode == "transact":
            for step, key in enumerate(self.life.keys):
                self.ckpt.transact(key, partial(self.row, key), progress=(step + 1, {"processed": step + 1}))
        else:
            run_agent(self.life.keys, self.ckpt, self.effect, key=str, save_every=1)
        self.ckpt.save_progress(LAST, {"end": True})

    def probe(self, claim: Claim) -> Found | NotFound:
        """Ask the receiver."""
        self.probed.append(claim.key)
        return Found({"did": claim.key}) if self.outside.count()[claim.key] else NotFound()

    def effect(self, key: str) -> Any:
        """Deliver to the receiver."""
        self.point()
        self.outside.deliver(key)
        self.point()
        return {"did": key}

    def row(self, key: str, tx: Any) -> Any:
        """Write a row that no other call writes, and say outside which."""
        assert self.life.data is not None
        name = f"{key} {nonce()}"
        self.outside.deliver(name)
        self.point()
        self.life.data.write(tx, name, key)
        self.point()
        return {"did": key}

    def delivered(self, backend: Backend) -> Counter[str]:
        """How often each key's effect happened: at the receiver, or in rows that stand."""
        counted = self.outside.count()
        if self.life.mode != "transact":
            return counted
        data = self.life.data
        assert data is not None
        return Counter(name.rpartition(" ")[0] for name in counted if data.read(backend, name) is not None)
