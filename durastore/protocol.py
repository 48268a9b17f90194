"""Claim, execute, commit: the protocol, once, for threads and for event loops.

Every rule about when an effect may run, what becomes of its claim, and which error the caller gets, stands here, in
:mod:`durastore.acquiring` and in :mod:`durastore.holding`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from durastore.acquiring import acquire, request
from durastore.claims import Claim, under
from durastore.clock import MICROSECONDS, microseconds
from durastore.contract import Payload, StoredProgress
from durastore.errors import ClaimLost, DurastoreError, StoreUnavailable
from durastore.holding import Next, Run, adopt, error_text, finish, give_back, nothing, pack_result, read_result
from durastore.steps import Effect, Steps
from durastore.terms import Outcome, Terms

__all__ = ["Performed", "perform", "run_once", "transact"]


def run_once(
    run: Run,
    key: str,
    effect: Callable[[], Any],
    terms: Terms,
    *,
    fingerprint: str | None = None,
    progress: StoredProgress | None = None,
) -> Steps[Outcome[Any]]:
    """All three phases for one key."""
    got = yield from acquire(run, request(run, key, terms, fingerprint), terms)
    if isinstance(got, Claim):
        done = yield from perform(run, got, effect, terms, progress=progress)
        return done.outcome
    yield from _save(run, progress)
    return got


def _save(run: Run, progress: StoredProgress | None) -> Steps[None]:
    """Save the progress that came with a key that was done already."""
    if progress is not None:
        yield partial(run.store.call, "save", run.store.backend.save, progress)


class Performed(NamedTuple):
    """What came of a step."""

    outcome: Outcome[Any]
    held: Claim | None
    """The claim of the next key."""
    took: float
    """Seconds that the commit took."""


def perform(
    run: Run,
    claim: Claim,
    effect: Callable[[], Any],
    terms: Terms,
    *,
    progress: StoredProgress | None = None,
    then: Next = nothing,
) -> Steps[Performed]:
    """Execute and commit under a claim; the key that `then` names is claimed in the same write, and held if it was free."""
    yield from _confirm(run, claim)
    try:
        value = yield Effect(claim, effect)
    except BaseException as exc:
        yield from give_back(run, claim, error_text(exc), in_doubt=terms.in_doubt != "rerun")
        raise
    began = run.store.clock.monotonic()
    value, granted = yield from finish(run, claim, value, terms, progress, then)
    took = run.store.clock.monotonic() - began
    run.count("executed")
    return Performed(Outcome(value, "executed"), None if granted is None else adopt(run, granted, began, terms), took)


def _confirm(run: Run, claim: Claim) -> Steps[None]:
    """A holder that slept past its lease before its effect began (a frozen sandbox) asks whether the claim is still its own."""
    if run.store.clock.monotonic() - claim.started < claim.grant.lease / MICROSECONDS:
        return
    try:
        ours = yield partial(_renew_held, run, claim)
    except BaseException as exc:
        yield from give_back(run, claim, error_text(exc), in_doubt=claim.took_over is not None)
        raise
    if not ours:
        run.let_go(claim)
        claim.lost.set()
        run.count("lost")
        raise ClaimLost(
            f"the claim of key {claim.key!r} (token {claim.token}) was lost before its effect began: this process stood still "
            f"past its lease, and somebody else took over. Nothing of this attempt was run"
        )


def _renew_held(run: Run, claim: Claim) -> bool:
    with claim.lock:
        [grant] = run.store.call("renew", run.store.backend.renew, [claim.grant])
        claim.grant = grant or claim.grant
    return grant is not None


class _EffectRaised(Exception):
    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def transact(
    run: Run,
    key: str,
    effect: Callable[[Any], Any],
    terms: Terms,
    *,
    fingerprint: str | None = None,
    progress: StoredProgress | None = None,
) -> Steps[Outcome[Any]]:
    """As `run_once`, the effect writing through the store's own transaction: a holder that vanished wrote nothing."""
    terms = replace(terms, in_doubt="rerun")
    got = yield from acquire(run, request(run, key, terms, fingerprint), terms)
    if not isinstance(got, Claim):
        yield from _save(run, progress)
        return got
    retain = None if terms.retain is None else microseconds(terms.retain)
    inner = partial(_in_transaction, run, got, effect, terms)
    failed: Exception
    try:
        stored = yield partial(
            run.store.call,
            "transact",
            run.store.backend.transact,
            got.grant,
            inner,
            retain=retain,
            progress=progress,
        )
    except _EffectRaised as exc:
        failed = exc.error
        run.let_go(got, failed)
    except (ClaimLost, StoreUnavailable) as exc:
        run.let_go(got)
        run.count("lost") if isinstance(exc, ClaimLost) else None
        raise
    except BaseException as exc:  # an interrupt does not say whether the transaction was through
        yield from give_back(run, got, error_text(exc), in_doubt=False, unsure=not isinstance(exc, Exception))
        raise
    else:
        run.let_go(got)
        value = yield partial(read_result, run, key, stored, terms)
        run.count("executed")
        return Outcome(value, "executed")
    yield from give_back(run, got, error_text(failed), in_doubt=False)
    raise failed


def _in_transaction(run: Run, claim: Claim, effect: Callable[[Any], Any], terms: Terms, tx: Any) -> Payload:
    """The effect and its encoding. An error of the effect passes the store's classification by, unless it is transient."""
    try:
        value = under(claim, partial(effect, tx))
    except DurastoreError as exc:
        raise _EffectRaised(exc) from exc
    except Exception as exc:
        if isinstance(run.store.backend.classify(exc), StoreUnavailable):
            raise
        raise _EffectRaised(exc) from exc
    return pack_result(run, value, terms).payload
