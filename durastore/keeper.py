"""The keeper: one thread per store that renews all its live claims, at a third of their leases."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from durastore.claims import Claim
from durastore.clock import MICROSECONDS, Clock
from durastore.contract import Grant
from durastore.telemetry import tell

__all__ = ["Keeper", "Leases"]

_RETRY_MAX = 1.0
"""Seconds between attempts of a renewal that failed for want of a connection, for leases of ten seconds and more."""
Renew = Callable[[Sequence[Grant]], Sequence[Grant | None]]


class Leases(NamedTuple):
    """The live claims of a process."""

    held: int
    oldest: float
    """Seconds since the oldest of their leases was granted or renewed: more than a third of a lease says that renewal lags."""


class Keeper:
    """Renews claims until they are dropped, found lost, out of budget, or garbage.

    Claims are held weakly: should an interrupt tear a holder out of its call at the worst moment, nothing keeps its claim alive
    and the lease ends the story. A renewal that fails sets nothing: to be out of reach is not to be replaced.

    Holders take the bare lock, not the condition around it, whose `__exit__` is Python: an interrupt at its entry would leave the
    lock taken for ever.
    """

    def __init__(self, renew: Renew, clock: Clock) -> None:
        self._renew = renew
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        self._due: dict[int, tuple[float, weakref.ref[Claim]]] = {}
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf
        self._closed = False

    def add(self, claim: Claim) -> None:
        """Keep a claim alive, counting from the moment before it was asked for."""
        if claim.grant.lease <= 0:
            return
        due = claim.started + claim.grant.lease / MICROSECONDS / 3
        with self._lock:
            self._due[id(claim)] = (due, weakref.ref(claim))
            if self._thread is None:
                self._start()
            elif due < self._wakes_at:
                self._condition.notify()

    def drop(self, claim: Claim) -> None:
        """Let a claim go."""
        with self._lock:
            self._due.pop(id(claim), None)

    def leases(self) -> Leases:
        """How many claims are held, and how old their oldest lease is."""
        with self._lock:
            held = [claim for _, reference in self._due.values() if (claim := reference()) is not None]
        oldest = min((claim.renewed for claim in held), default=math.inf)
        return Leases(len(held), max(0.0, self._clock.monotonic() - oldest))

    def forked(self) -> None:
        """In a child: hold nothing, and start a thread of one's own when there is something to hold."""
        self._reset()

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            self._closed = True
            self._due.clear()
            self._condition.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="durastore-keeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._wait()
                if self._closed:
                    return
                claims = self._take_due()
            if claims:
                self._renew_all(claims)

    def _wait(self) -> None:
        """Sleep until the first claim is due. A claim that comes and goes meanwhile need not wake the thread."""
        self._wakes_at = min((due for due, _ in self._due.values()), default=math.inf)
        pause = None if self._wakes_at == math.inf else max(0.0, self._wakes_at - self._clock.monotonic())
        if not self._closed and pause != 0.0:
            self._condition.wait(pause)
        self._wakes_at = -math.inf

    def _take_due(self) -> list[Claim]:
        """The claims to renew now; those that are garbage or out of budget are dropped."""
        now = self._clock.monotonic()
        found = []
        for name, (due, reference) in list(self._due.items()):
            claim = reference()
            if claim is None or (claim.renew_until is not None and now >= claim.renew_until):
                del self._due[name]
            elif due <= now:
                found.append(claim)
        return found

    def _renew_all(self, claims: list[Claim]) -> None:
        """Renew those that are not committing just now; a claim whose lock is taken is looked at again shortly."""
        locked = [claim for claim in claims if claim.lock.acquire(blocking=False)]
        began = self._clock.monotonic()
        try:
            renewed = self._renew([claim.grant for claim in locked]) if locked else []
            for claim, grant in zip(locked, renewed, strict=True):
                self._note(claim, grant, began)
        except Exception as exc:  # noqa: BLE001  whatever the driver says, the claims are tried again
            tell("warning", "could not renew %d claims, trying again: %s", len(locked), exc, claims=len(locked))
            renewed = None
        finally:
            for claim in locked:
                claim.lock.release()
        self._schedule(claims, set(map(id, locked)) if renewed is not None else set(), began)

    def _note(self, claim: Claim, grant: Grant | None, began: float) -> None:
        if grant is None:
            claim.lost.set()
            self.drop(claim)
            tell(
                "warning",
                "lost the claim of key %r: somebody took over, gave it back or settled it; what its effect returns will not be "
                "stored",
                claim.key,
                **claim.fields,
            )
        else:
            claim.grant, claim.renewed = grant, began

    def _schedule(self, claims: list[Claim], renewed: set[int], began: float) -> None:
        with self._condition:
            for claim in claims:
                if id(claim) in self._due:
                    lease = claim.grant.lease / MICROSECONDS
                    pause = lease / 3 if id(claim) in renewed else min(lease / 10, _RETRY_MAX)
                    self._due[id(claim)] = (began + pause, weakref.ref(claim))
