"""The first phase: get a key, or its result. A claim that was taken over is asked about before its effect may run again."""

from __future__ import annotations

from functools import partial
from typing import Any

from durastore.claims import Claim, holds
from durastore.clock import MICROSECONDS, Clock, microseconds
from durastore.contract import Answer, ClaimRequest, Committed, Granted, Held
from durastore.errors import AwaitTimeout, ConfigError, InDoubt, TooManyAttempts
from durastore.holding import Run, abandon, adopt, error_text, finish, give_back, grant_of, read_result
from durastore.steps import Effect, Pause, Steps
from durastore.store import new_nonce
from durastore.telemetry import tell
from durastore.terms import Found, NotFound, Outcome, Probe, Status, Terms, Unknown

__all__ = ["acquire", "admit", "request"]

_POLL_FIRST, _POLL_MAX, _POLL_GROWTH = 0.005, 0.5, 1.6
"""Seconds between two looks of a waiter: short at first, since most effects that are waited for are nearly done."""


def request(run: Run, key: str, terms: Terms, fingerprint: str | None) -> ClaimRequest:
    """What to ask the store for. Its nonce serves all tries: a grant whose answer was lost is still ours."""
    return ClaimRequest(
        key=key,
        run_id=run.run_id,
        owner=run.store.owner,
        nonce=new_nonce(),
        lease=microseconds(terms.lease),
        takeover=terms.in_doubt != "halt",
        fingerprint=fingerprint,
        incarnation=run.incarnation,
    )


def acquire(run: Run, asked: ClaimRequest, terms: Terms) -> Steps[Claim | Outcome[Any]]:
    """Get the key, or its result: wait for a live holder, take over from a dead one, ask the probe about its effect."""
    clock = run.store.clock
    patience = _Patience(clock, terms.wait)
    status: Status = "skipped"
    while True:
        started = clock.monotonic()
        answer = yield from _ask(run, asked, terms)
        if isinstance(answer, Granted):
            return (yield from admit(run, adopt(run, answer, started, terms), terms))
        if isinstance(answer, Committed):
            value = yield partial(read_result, run, asked.key, answer.result, terms)
            run.count(status)
            return Outcome(value, status)
        if answer.in_doubt:
            run.count("in_doubt")
            raise InDoubt(_doubt(asked.key, answer.error, "in_doubt='halt' lets nobody run it again"))
        pause = patience.pause(asked.key, answer, run.store.owner)
        if status != "awaited":
            _tell_waiting(asked.key, answer)
        yield pause
        status = "awaited"


def _tell_waiting(key: str, held: Held) -> None:
    tell(
        "info",
        "waiting for key %r, held by %r (attempt %d, %s)",
        key,
        held.owner,
        held.attempt,
        _lease_text(held),
        key=key,
        run_id=held.run_id,
        attempt=held.attempt,
        owner=held.owner,
    )


def _ask(run: Run, asked: ClaimRequest, terms: Terms) -> Steps[Answer]:
    try:
        answer: Answer = yield partial(run.store.call, "claim", run.store.backend.claim, asked)
    except (Exception, GeneratorExit):
        raise
    except BaseException:  # interrupted: whether it was granted is not known, so give back what there may be
        error = "interrupted before the effect began"
        yield partial(abandon, run, grant_of(asked), error, in_doubt=callable(terms.in_doubt))
        raise
    return answer


def admit(run: Run, claim: Claim, terms: Terms) -> Steps[Claim | Outcome[Any]]:
    """Whether the effect may run under this claim, or an earlier attempt's is found."""
    doubtful = claim.took_over is not None
    if terms.max_attempts is not None and claim.attempt > terms.max_attempts:
        yield from give_back(run, claim, _last_error(claim), in_doubt=doubtful)
        raise TooManyAttempts(
            f"key {claim.key!r} was tried {claim.attempt - 1} times without a commit, max_attempts is {terms.max_attempts}"
            f" (last: {_last_error(claim)}); find the cause, then forget the key or raise max_attempts"
        )
    if doubtful and callable(terms.in_doubt):
        return (yield from _probe(run, claim, terms.in_doubt, terms))
    return claim


def _last_error(claim: Claim) -> str:
    return (claim.took_over and claim.took_over.error) or "its holder vanished"


def _probe(run: Run, claim: Claim, probe: Probe, terms: Terms) -> Steps[Claim | Outcome[Any]]:
    try:
        answer = yield Effect(claim, partial(probe, claim))
    except BaseException as exc:
        yield from give_back(run, claim, error_text(exc), in_doubt=True)
        raise
    if isinstance(answer, NotFound):
        return claim
    if isinstance(answer, Found):
        value, _ = yield from finish(run, claim, answer.result, terms, None)
        run.count("recovered")
        tell("info", "the probe found the effect of key %r: it is not repeated", claim.key, **claim.fields)
        return Outcome(value, "recovered")
    yield from give_back(run, claim, _last_error(claim), in_doubt=True)
    if isinstance(answer, Unknown):
        raise InDoubt(_doubt(claim.key, _last_error(claim), "its probe cannot tell"))
    raise ConfigError(f"a probe returns Found(result), NotFound() or Unknown(), not {answer!r}")


def _doubt(key: str, error: str | None, why: str) -> str:
    return (
        f"key {key!r} is in doubt: an earlier attempt may have had its effect ({error or 'its holder vanished'}), and {why}. "
        f"Find out, then resolve the key with a result or for a retry"
    )


class _Patience:
    """How long, and how often, a waiter looks again."""

    def __init__(self, clock: Clock, wait: float) -> None:
        self._clock = clock
        self._wait = wait
        self._ends = clock.monotonic() + wait
        self._pause = _POLL_FIRST

    def pause(self, key: str, held: Held, owner: str) -> Pause:
        """The next pause. Raises `AwaitTimeout` when there is none left."""
        if holds(key, owner):
            raise AwaitTimeout(f"key {key!r} is held by the very effect that asks for it; use another key inside")
        left = self._ends - self._clock.monotonic()
        if left <= 0:
            raise AwaitTimeout(
                f"key {key!r} is held by {held.owner!r} (run {held.run_id!r}, attempt {held.attempt}, "
                f"{_lease_text(held)}); not done within {self._wait:g} s. Wait longer, or look with: durastore record KEY"
            )
        return Pause(self._clock, min(left, self._next(held)))

    def _next(self, held: Held) -> float:
        import random

        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311  jitter
        self._pause = min(self._pause * _POLL_GROWTH, _POLL_MAX)
        if held.lease_left is None:
            return pause
        return min(pause, max(held.lease_left / MICROSECONDS, 0.001))


def _lease_text(held: Held) -> str:
    return "without a lease" if held.lease_left is None else f"lease left {held.lease_left / MICROSECONDS:.1f} s"
