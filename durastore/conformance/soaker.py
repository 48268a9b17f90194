"""One process of a soak: a random program of bare verbs, and of effects under each mode, each step written down before it is
taken, for it may be killed at any moment.
"""

from __future__ import annotations

import base64
import pickle
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from durastore import urls
from durastore.checkpoint import Checkpoint
from durastore.claims import Claim, current
from durastore.conformance.client import nonce
from durastore.conformance.history import Event
from durastore.conformance.points import Deadly, Points
from durastore.conformance.racer import Job, Racer
from durastore.conformance.receiver import Fenced, Receiver
from durastore.conformance.surface import surfaced
from durastore.conformance.userdata import UserData
from durastore.contract import Backend
from durastore.errors import AwaitTimeout, ClaimLost, InDoubt, StoreUnavailable
from durastore.store import Store
from durastore.terms import Found, NotFound

__all__ = ["MODES", "Journal", "Soaker", "effect_keys", "policy", "quick"]

MODES = ("rerun", "halt", "probe", "transact")
LEASE = 0.4
_WORK_SECONDS_MAX, _FAILS = 0.05, 0.1
_DEADLINE = 4.0
Wrap = Callable[[Backend], Any]


class EffectFailed(Exception):
    """The application's own error."""


_EXPECTED = (AwaitTimeout, ClaimLost, EffectFailed, Fenced, InDoubt, StoreUnavailable)


def effect_keys(number: int) -> Sequence[tuple[str, str]]:
    """(Mode, key) of a round's effects."""
    return [(mode, f"soak {number} {mode} {letter}") for mode in MODES for letter in "ab"]


def policy(mode: str, receiver: Receiver) -> Any:
    """What to do about a key in doubt."""

    def probe(claim: Claim) -> Found | NotFound:
        return Found(claim.key) if receiver.asked(claim.key, claim.token) else NotFound()

    return {"probe": probe, "transact": "rerun"}.get(mode, mode)


def quick(store: Store) -> Store:
    """Give up sooner than in earnest: a soak is short."""
    store.deadlines = dict.fromkeys(
        ("claim", "renew", "abandon", "load", "save", "read", "commit", "transact"), _DEADLINE
    )
    return store


class Journal:
    """What one process was about to do, and what came of it: one line each, on disk at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, *what: Any) -> None:
        """Add a line."""
        with self._path.open("ab") as file:
            file.write(base64.b64encode(pickle.dumps(what)) + b"\n")

    def read(self) -> Iterator[tuple[Any, ...]]:
        """All whole lines."""
        for line in self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else ():
            if line.endswith(b"\n"):
                yield pickle.loads(base64.b64decode(line))  # noqa: S301  written by our own children

    def events(self) -> Iterator[Event]:
        """The calls of bare verbs; the one that was cut short may have happened, or not."""
        pending: list[Event] = []
        for kind, *what in self.read():
            if kind == "started":
                event, fused = what
                pending = [event, *(fused.events(event, None) if fused else ())]
            elif kind == "answered":
                pending = []
                yield from what[0]
        yield from pending


@dataclass(frozen=True)
class Soaker:
    """What a process is to do. Goes to other processes."""

    url: str
    seed: int
    process: int
    calls: int
    folder: Path
    data: UserData | None
    stops_at: int = 0
    """At which point between two calls it gets `signum`; 0 for never."""
    signum: int = signal.SIGKILL
    wrap: Wrap | None = None

    @property
    def journal(self) -> Journal:
        """Its own."""
        return Journal(self.folder / f"journal-{self.process}")

    def __call__(self) -> None:
        """Do it, in this process."""
        backend: Any = urls.connect(urls.parse(self.url))
        backend = backend if self.wrap is None else self.wrap(backend)
        backend = Deadly(backend, Points(self.stops_at, self.signum))
        try:
            _Program(self, backend).run()
        except BaseException as exc:
            self.journal.write("failed", f"{type(exc).__name__}: {exc}")
            raise


class _Program:
    def __init__(self, soaker: Soaker, backend: Backend) -> None:
        self._soaker, self._journal = soaker, soaker.journal
        self._receiver = Receiver(soaker.folder / "outside")
        self._store = surfaced(quick(Store(backend)))
        self._racer = Racer(backend, Job(soaker.process, soaker.seed, 1, soaker.calls, settling=True))
        self._racer.started = partial(self._journal.write, "started")
        self._random = random.Random(f"{soaker.seed} {soaker.process} effects")  # noqa: S311  a program, not a secret

    def run(self) -> None:
        for _ in range(self._soaker.calls):
            if self._random.random() < 0.7:
                self._bare()
            else:
                self._effect(*self._random.choice(effect_keys(self._soaker.seed)))

    def _bare(self) -> None:
        before = len(self._racer.events)
        self._racer.act(self._soaker.seed)
        self._journal.write("answered", self._racer.events[before:])

    def _effect(self, mode: str, key: str) -> None:
        self._journal.write("asked", key)
        ckpt = self._store.checkpoint(key, lease=LEASE, wait=1.0, in_doubt=policy(mode, self._receiver))
        try:
            value, status = self._once(mode, key, ckpt)
            self._journal.write("outcome", key, value, status)
        except _EXPECTED as exc:
            self._journal.write("error", key, type(exc).__name__)

    def _once(self, mode: str, key: str, ckpt: Checkpoint) -> tuple[Any, str]:
        if mode == "transact":
            return ckpt.transact(key, partial(self._row, key)) if self._soaker.data else (key, "not run")
        return ckpt.run_once(key, partial(self._deliver, mode, key))

    def _deliver(self, mode: str, key: str) -> str:
        claim = current()
        assert claim is not None
        self._work()
        self._receiver.deliver(key, claim.token, fence=mode == "probe")
        self._work()
        return key

    def _work(self) -> None:
        """An effect takes its time, and may fail at any time."""
        time.sleep(self._random.uniform(0, _WORK_SECONDS_MAX))
        if self._random.random() < _FAILS:
            raise EffectFailed

    def _row(self, key: str, tx: Any) -> str:
        assert self._soaker.data is not None
        name = f"{key} {nonce()}"[:64]
        self._journal.write("row", key, name)
        self._soaker.data.write(tx, name, key)
        if self._random.random() < _FAILS:
            raise EffectFailed
        return key
