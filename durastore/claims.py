"""Live claims: what a holder has in its hands while an effect runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from durastore.contract import Grant, TookOver

if TYPE_CHECKING:
    from durastore.telemetry import Trace

__all__ = ["Claim", "current", "holds", "running", "under"]

T = TypeVar("T")


class Claim:
    """A granted key, as seen from inside its side effect (`durastore.current`) and by probes.

    Pass `key` downstream as the idempotency key, and `token` where the far side can fence: it grows with every grant of the
    key. `lost` is set when a renewal found that somebody else holds the claim by now: stop then, nothing of this attempt will
    be stored.
    """

    __slots__ = (
        "__weakref__",
        "_lost",
        "grant",
        "lock",
        "pid",
        "renew_until",
        "renewed",
        "started",
        "took_over",
        "trace",
    )

    def __init__(self, grant: Grant, took_over: TookOver | None, started: float, budget: float | None = None) -> None:
        self.grant = grant
        self.took_over = took_over
        """The earlier attempt that this one replaced, when its effect is in doubt."""
        self.lock = threading.Lock()
        """Serialises renewal and commit: where a store commits by update time, the one would fail the other."""
        self.pid = os.getpid()
        self.started = self.renewed = started
        """The monotonic times before it was asked for, and before its lease was last granted."""
        self.renew_until = None if budget is None else started + budget
        self.trace: Trace | None = None
        """Its span, for programs that use OpenTelemetry."""
        self._lost: threading.Event | None = None

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self.grant.key

    @property
    def run_id(self) -> str:
        """The run that holds the key."""
        return self.grant.run_id

    @property
    def token(self) -> int:
        """The fencing token: one more at each grant of this key, never less."""
        return self.grant.token

    @property
    def attempt(self) -> int:
        """1 for the first grant since the key was last committed or forgotten."""
        return self.grant.attempt

    @property
    def lost(self) -> threading.Event:
        """Set once the claim is known to be lost."""
        if self._lost is None:
            self._lost = threading.Event()
        return self._lost

    @property
    def fields(self) -> dict[str, str | int]:
        """What spans and log records say of it."""
        return {"key": self.key, "run_id": self.run_id, "attempt": self.attempt, "token": self.token}

    def __repr__(self) -> str:
        return f"<Claim {self.key!r} token={self.token} attempt={self.attempt}>"


_chain: ContextVar[tuple[Claim, ...]] = ContextVar("durastore_claims", default=())


def current() -> Claim | None:
    """Inside a side effect, its live claim; None elsewhere, and in a forked child (which holds none of its parent's claims).

    Per task and per thread; of nested effects, the innermost.
    """
    chain = _chain.get()
    return chain[-1] if chain and chain[-1].pid == os.getpid() else None


def holds(key: str, owner: str) -> bool:
    """Whether this very call chain holds the key for an owner: waiting for it would be waiting for oneself."""
    return any(claim.key == key and claim.grant.owner == owner for claim in _chain.get())


def under(claim: Claim, function: Callable[[], T]) -> T:
    """Call with a claim as the current one: as `running`, with nothing that an interrupt could keep from resetting it."""
    token = _chain.set((*_chain.get(), claim))
    try:
        if claim.trace is None:
            return function()
        with claim.trace:
            return function()
    finally:
        _chain.reset(token)


@contextmanager
def running(claim: Claim) -> Iterator[None]:
    """Make a claim the current one."""
    token = _chain.set((*_chain.get(), claim))
    try:
        with claim.trace or nullcontext():
            yield
    finally:
        _chain.reset(token)
