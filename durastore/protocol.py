"""Claim, execute, commit: the protocol, once, for threads and for event loops.

The functions are generators that yield *steps* (something to do that may block) and are sent what came of them, or have the
exception thrown in. :func:`drive` runs them in a thread; `durastore.aio` has the driver for event loops. Every rule about
when an effect may run, what becomes of its claim, and which error the caller gets, stands here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, Union

from durastore import payload
from durastore.claims import Claim, holds, under
from durastore.clock import MICROSECONDS, Clock, microseconds
from durastore.contract import Answer, ClaimRequest, Committed, Grant, Granted, Held, Payload, StoredProgress
from durastore.errors import (
    AwaitTimeout,
    ClaimLost,
    ConfigError,
    DurastoreError,
    InDoubt,
    PayloadError,
    StoreUnavailable,
    TooManyAttempts,
)
from durastore.stats import Stats
from durastore.store import Store, new_nonce

__all__ = [
    "Effect",
    "Found",
    "InDoubtPolicy",
    "Inline",
    "NotFound",
    "Outcome",
    "Pause",
    "Run",
    "Status",
    "Steps",
    "Terms",
    "Unknown",
    "acquire",
    "admit",
    "adopt",
    "drive",
    "error_text",
    "finish",
    "give_back",
    "perform",
    "request",
    "run_once",
    "transact",
]

T = TypeVar("T")
R = TypeVar("R")
Status: TypeAlias = Literal["executed", "skipped", "awaited", "recovered"]
ERROR_CHARACTERS_MAX = 2000
"""Characters of an effect's error that are kept in its record."""
_POLL_FIRST, _POLL_MAX, _POLL_GROWTH = 0.005, 0.5, 1.6
"""Seconds between two looks of a waiter: short at first, since most effects that are waited for are nearly done."""


@dataclass(frozen=True, slots=True)
class Found:
    """A probe's answer: the effect has happened, and this is its result."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """A probe's answer: the effect has not happened and will not; it may run now."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A probe's answer: the far side cannot tell, so nothing may run."""


Probe: TypeAlias = Callable[[Claim], Any]
InDoubtPolicy: TypeAlias = Union[Literal["rerun", "halt"], Probe]  # noqa: UP007  evaluated on 3.10


if TYPE_CHECKING or sys.version_info >= (3, 11):

    class Outcome(NamedTuple, Generic[R]):
        """What became of a key: its decoded value, and how this call came by it."""

        value: R
        status: Status

else:  # Python 3.10 has no generic named tuples; subscripting is for type checkers alone

    class Outcome(NamedTuple):
        """What became of a key: its decoded value, and how this call came by it."""

        value: Any
        status: Status

        @classmethod
        def __class_getitem__(cls, _item):  # noqa: ANN001, ANN206
            return cls


@dataclass(frozen=True, slots=True)
class Terms:
    """How a key is run; see `Store.checkpoint`. Times in seconds."""

    lease: float = 60.0
    wait: float = 30.0
    in_doubt: InDoubtPolicy = "rerun"
    retain: float | None = None
    max_attempts: int | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        for name in ("lease", "wait", "retain", "budget"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"{name} is a number of seconds, 0 or more, not {value!r}")
        if self.in_doubt not in ("rerun", "halt") and not callable(self.in_doubt):
            raise ConfigError(f"in_doubt is 'rerun', 'halt' or a probe to call, not {self.in_doubt!r}")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ConfigError(f"max_attempts is 1 or more, not {self.max_attempts!r}")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one store, as the protocol needs it."""

    store: Store
    run_id: str
    incarnation: int
    stats: Stats = field(default_factory=Stats)

    def count(self, name: str) -> None:
        """Count an event for this run and for its store."""
        self.stats.count(name)
        self.store.stats.count(name)

    def progress(self, step: int, state: Any) -> StoredProgress:
        """Progress ready to be stored, its state's chunks written. Raises `PayloadError`, `ConfigError`."""
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**63:
            raise ConfigError(f"a step is a whole number, 0 or more, not {step!r}")
        return StoredProgress(self.run_id, step, self.store.pack(state).payload)


class Pause:
    """A step: wait for some seconds."""

    __slots__ = ("clock", "seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds

    def __call__(self) -> None:
        self.clock.sleep(self.seconds)


class Effect:
    """A step: run the user's code under its claim."""

    __slots__ = ("claim", "function")

    def __init__(self, claim: Claim, function: Callable[[], Any]) -> None:
        self.claim = claim
        self.function = function

    def __call__(self) -> Any:
        return under(self.claim, self.function)


class Inline:
    """A step: user code that is no side effect (the next input, a callback); run where the caller runs."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def __call__(self) -> Any:
        return self.function()


Step: TypeAlias = Callable[[], Any]
"""`Effect`, `Inline` and `Pause` are what they say; any other callable is a call of the store, which may block."""
Steps: TypeAlias = Generator[Step, Any, T]


def drive(steps: Steps[T]) -> T:
    """Run the protocol in this thread."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(value) if error is None else steps.throw(error)
            value = error = None
            try:
                value = step()
            except BaseException as exc:  # noqa: BLE001  the protocol decides, also about interrupts
                error = exc
        except StopIteration as stop:
            result: T = stop.value
            return result
        except BaseException as exc:
            import inspect

            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:  # raised by the protocol itself
                raise
            error = exc  # an interrupt between two steps


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
        outcome, _ = yield from perform(run, got, effect, terms, progress=progress)
        return outcome
    yield from _save(run, progress)
    return got


def _save(run: Run, progress: StoredProgress | None) -> Steps[None]:
    """Save the progress that came with a key that was done already."""
    if progress is not None:
        yield partial(run.store.call, "save", run.store.backend.save, progress)


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
            value = yield partial(run.store.unpack, answer.result)
            run.count(status)
            return Outcome(value, status)
        pause = patience.pause(asked.key, answer, run.store.owner)
        if status != "awaited":
            _tell_waiting(asked.key, answer)
        yield pause
        status = "awaited"


def _tell_waiting(key: str, held: Held) -> None:
    import logging

    logging.getLogger("durastore").info(
        "waiting for key %r, held by %r (attempt %d, %s)", key, held.owner, held.attempt, _lease_text(held)
    )


def _ask(run: Run, asked: ClaimRequest, terms: Terms) -> Steps[Answer]:
    try:
        answer: Answer = yield partial(run.store.call, "claim", run.store.backend.claim, asked)
    except (Exception, GeneratorExit):
        raise
    except BaseException:  # interrupted: whether it was granted is not known, so give back what there may be
        grant = Grant(asked.key, asked.run_id, asked.owner, asked.nonce, 0, 0, asked.lease)
        yield partial(_abandon, run, grant, "interrupted before the effect began", in_doubt=callable(terms.in_doubt))
        raise
    return answer


def adopt(run: Run, granted: Granted, started: float, terms: Terms) -> Claim:
    """Hold a grant from now on: `started` is the monotonic time before it was asked for."""
    claim = Claim(granted.grant, granted.took_over, started, terms.budget)
    run.store.keeper.add(claim)
    if granted.took_over is not None:
        run.count("taken_over")
    return claim


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
        value, _ = yield from finish(run, claim, answer.result, terms, None, None)
        run.count("recovered")
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


def perform(
    run: Run,
    claim: Claim,
    effect: Callable[[], Any],
    terms: Terms,
    *,
    progress: StoredProgress | None = None,
    then: ClaimRequest | None = None,
) -> Steps[tuple[Outcome[Any], Claim | None]]:
    """Execute and commit under a claim; with `then`, the next key is claimed in the same write, and held if it was free."""
    yield from _confirm(run, claim)
    try:
        value = yield Effect(claim, effect)
    except BaseException as exc:
        yield from give_back(run, claim, error_text(exc), in_doubt=terms.in_doubt != "rerun")
        raise
    began = run.store.clock.monotonic()
    value, granted = yield from finish(run, claim, value, terms, progress, then)
    run.count("executed")
    return Outcome(value, "executed"), None if granted is None else adopt(run, granted, began, terms)


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
        run.store.keeper.drop(claim)
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


def finish(
    run: Run,
    claim: Claim,
    value: Any,
    terms: Terms,
    progress: StoredProgress | None,
    then: ClaimRequest | None,
) -> Steps[tuple[Any, Granted | None]]:
    """Commit. An interrupt in mid-commit waits until the commit is through: the effect has happened."""
    commit = partial(_commit, run, claim, value, terms, progress, then)
    try:
        done: tuple[Any, Granted | None] = yield commit
    except ClaimLost:
        run.count("lost")
        raise
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        yield commit
        raise
    finally:
        run.store.keeper.drop(claim)
    return done


def _commit(
    run: Run,
    claim: Claim,
    value: Any,
    terms: Terms,
    progress: StoredProgress | None,
    then: ClaimRequest | None,
) -> tuple[Any, Granted | None]:
    if claim.pid != os.getpid():
        raise ClaimLost(
            f"the claim of key {claim.key!r} belongs to the parent process {claim.pid}; a fork inherits none"
        )
    try:
        packed = run.store.pack(value)
    except PayloadError as exc:
        _write_commit(run, claim, payload.lost(str(exc)), terms, progress, None)
        raise PayloadError(
            f"the effect of key {claim.key!r} was done and will not be repeated, but its result is lost: {exc}"
        ) from exc
    return packed.value, _write_commit(run, claim, packed.payload, terms, progress, then)


def _write_commit(
    run: Run,
    claim: Claim,
    result: Payload,
    terms: Terms,
    progress: StoredProgress | None,
    then: ClaimRequest | None,
) -> Granted | None:
    with claim.lock:
        return run.store.call(
            "commit",
            run.store.backend.commit,
            claim.grant,
            result=result,
            retain=None if terms.retain is None else microseconds(terms.retain),
            progress=progress,
            then=then,
        )


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
    inner = partial(_in_transaction, run, got, effect)
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
    except (ClaimLost, StoreUnavailable) as exc:
        run.store.keeper.drop(got)
        run.count("lost") if isinstance(exc, ClaimLost) else None
        raise
    except BaseException as exc:
        yield from give_back(run, got, error_text(exc), in_doubt=False)
        raise
    else:
        run.store.keeper.drop(got)
        value = yield partial(run.store.unpack, stored)
        run.count("executed")
        return Outcome(value, "executed")
    yield from give_back(run, got, error_text(failed), in_doubt=False)
    raise failed


def _in_transaction(run: Run, claim: Claim, effect: Callable[[Any], Any], tx: Any) -> Payload:
    """The effect and its encoding. An error of the effect passes the store's classification by, unless it is transient."""
    try:
        value = under(claim, partial(effect, tx))
    except DurastoreError as exc:
        raise _EffectRaised(exc) from exc
    except Exception as exc:
        if isinstance(run.store.backend.classify(exc), StoreUnavailable):
            raise
        raise _EffectRaised(exc) from exc
    return run.store.pack(value).payload


def give_back(run: Run, claim: Claim, error: str, *, in_doubt: bool) -> Steps[None]:
    """Let a claim go whose effect is not stored."""
    run.store.keeper.drop(claim)
    if claim.pid != os.getpid() or isinstance(
        sys.exc_info()[1], GeneratorExit
    ):  # what is thrown away cannot ask for steps
        return
    step = partial(_abandon_held, run, claim, error, in_doubt=in_doubt)
    try:
        yield step
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        yield step
        raise


def _abandon_held(run: Run, claim: Claim, error: str, *, in_doubt: bool) -> None:
    with claim.lock:
        if not _abandon(run, claim.grant, error, in_doubt=in_doubt):
            claim.lost.set()
            run.count("lost")


def _abandon(run: Run, grant: Grant, error: str, *, in_doubt: bool) -> bool:
    """False when it was no longer ours. A store that cannot be reached lets the claim lapse instead."""
    with suppress(DurastoreError):
        return run.store.call("abandon", run.store.backend.abandon, grant, error=error, in_doubt=in_doubt)
    return True


def error_text(error: BaseException) -> str:
    """An error as it is kept in a record: one string that every store takes."""
    text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX].replace("\0", "\N{SYMBOL FOR NULL}")
    return text.encode("utf-8", "replace").decode()


class _Patience:
    """How long, and how often, a waiter looks again."""

    def __init__(self, clock: Clock, wait: float) -> None:
        self._clock = clock
        self._wait = wait
        self._ends = clock.monotonic() + wait
        self._pause = _POLL_FIRST

    def pause(self, key: str, held: Held, owner: str) -> Pause:
        """The next pause. Raises `InDoubt`, or `AwaitTimeout` when there is none left."""
        if held.in_doubt:
            raise InDoubt(_doubt(key, held.error, "in_doubt='halt' lets nobody run it again"))
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
