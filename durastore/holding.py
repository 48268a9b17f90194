"""What becomes of a claim once it is held: it is kept alive, and ends in a commit or is given back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, Union

from durastore import payload
from durastore.claims import Claim
from durastore.clock import microseconds
from durastore.contract import ClaimRequest, Grant, Granted, Payload, StoredProgress, TookOver
from durastore.errors import ClaimLost, ConfigError, DurastoreError, PayloadError
from durastore.stats import Stats
from durastore.steps import Steps
from durastore.store import Store
from durastore.telemetry import Trace, tell
from durastore.terms import Terms

__all__ = [
    "UNBEGUN",
    "Next",
    "Run",
    "abandon",
    "adopt",
    "error_text",
    "finish",
    "give_back",
    "grant_of",
    "nothing",
    "pack_result",
    "read_result",
]

UNBEGUN = "left before its effect began"
"""The error of a claim that was given back before anything happened."""
ERROR_CHARACTERS_MAX = 2000
"""Characters of an effect's error that are kept in its record."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one store, as the protocol needs it."""

    store: Store
    run_id: str
    incarnation: int
    stats: Stats = field(default_factory=Stats)

    def count(self, name: str, times: int = 1) -> None:
        """Count an event for this run and for its store."""
        self.stats.count(name, times)
        self.store.count(name, times)

    def span(self) -> AbstractContextManager[None]:
        """The run's span, around its steps."""
        telemetry = self.store.telemetry
        return nullcontext() if telemetry is None else telemetry.run(self.run_id)

    def let_go(self, claim: Claim, error: BaseException | None = None) -> None:
        """A claim is over: it is kept alive no longer. Its span ends with the error, or with what is being raised."""
        self.store.keeper.drop(claim)
        if claim.trace is not None:
            claim.trace.end(error or sys.exc_info()[1])

    def progress(self, step: int, state: Any) -> StoredProgress:
        """Progress ready to be stored, its state's chunks written. Raises `PayloadError`, `ConfigError`."""
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**63:
            raise ConfigError(f"a step is a whole number, 0 or more, not {step!r}")
        return StoredProgress(self.run_id, step, self.store.pack(state).payload)


def adopt(run: Run, granted: Granted, started: float, terms: Terms) -> Claim:
    """Hold a grant from now on: `started` is the monotonic time before it was asked for."""
    claim = Claim(granted.grant, granted.took_over, started, terms.budget)
    run.store.keeper.add(claim)
    if (telemetry := run.store.telemetry) is not None:
        claim.trace = Trace(telemetry, claim.fields)
    if granted.took_over is not None:
        run.count("taken_over")
        before = granted.took_over
        tell("info", "took over key %r from %r, who %s", claim.key, before.owner, _end_of(before), **claim.fields)
    return claim


def _end_of(before: TookOver) -> str:
    return "vanished" if before.error is None else "gave up"


Next: TypeAlias = Callable[[], Union[ClaimRequest, None]]  # noqa: UP007  evaluated on 3.10
"""Says which claim the commit is to ask for. It never raises, and says the same whenever it is asked."""


def nothing() -> None:
    """No next key."""


def finish(
    run: Run,
    claim: Claim,
    value: Any,
    terms: Terms,
    progress: StoredProgress | None,
    then: Next = nothing,
) -> Steps[tuple[Any, Granted | None]]:
    """Commit. An interrupt in mid-commit waits until the commit is through: the effect has happened. The next key, which the
    commit may have claimed, is given back then.
    """
    commit = partial(_commit, run, claim, value, terms, progress, then)
    try:
        done: tuple[Any, Granted | None] = yield commit
    except ClaimLost:
        run.count("lost")
        raise
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        yield from _commit_after_all(commit, run, terms, then)
        raise
    finally:
        run.let_go(claim)
    return done


def _commit_after_all(commit: partial[tuple[Any, Granted | None]], run: Run, terms: Terms, then: Next) -> Steps[None]:
    granted: Granted | None = None
    try:
        _, granted = yield commit
    finally:
        asked = then()
        if asked is not None and not isinstance(sys.exc_info()[1], GeneratorExit):
            if granted is None:
                grant, in_doubt = grant_of(asked), callable(terms.in_doubt)
            else:
                grant, in_doubt = granted.grant, granted.took_over is not None
            yield partial(abandon, run, grant, UNBEGUN, in_doubt=in_doubt)


def _commit(
    run: Run,
    claim: Claim,
    value: Any,
    terms: Terms,
    progress: StoredProgress | None,
    then: Next,
) -> tuple[Any, Granted | None]:
    if claim.pid != os.getpid():
        raise ClaimLost(
            f"the claim of key {claim.key!r} belongs to the parent process {claim.pid}; a fork inherits none"
        )
    try:
        packed = pack_result(run, value, terms)
    except PayloadError as exc:
        _write_commit(run, claim, payload.lost(str(exc)), terms, progress, None)
        raise PayloadError(
            f"the effect of key {claim.key!r} was done and will not be repeated, but its result is lost: {exc}"
        ) from exc
    return packed.value, _write_commit(run, claim, packed.payload, terms, progress, then())


def pack_result(run: Run, value: Any, terms: Terms) -> payload.Packed:
    """An effect's result ready to be stored, its `value` as a replay will have it. Raises `PayloadError`."""
    if terms.returns is None:
        return run.store.pack(value)
    packed = run.store.pack(terms.returns.dump(value))
    return replace(packed, value=terms.returns.load(packed.value))


def read_result(run: Run, key: str, stored: Payload, terms: Terms) -> Any:
    """The result of a committed key. Raises `PayloadError`."""
    value = run.store.unpack(stored)
    return value if terms.returns is None else terms.returns.read(key, value)


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


def give_back(run: Run, claim: Claim, error: str, *, in_doubt: bool, unsure: bool = False) -> Steps[None]:
    """Let a claim go whose effect is not stored, or (`unsure`) may be: that it is not ours any more is no loss then."""
    run.let_go(claim)
    if in_doubt:
        run.count("in_doubt")
    if claim.pid != os.getpid() or isinstance(
        sys.exc_info()[1], GeneratorExit
    ):  # what is thrown away cannot ask for steps
        return
    step = partial(_abandon_held, run, claim, error, in_doubt=in_doubt, unsure=unsure)
    try:
        yield step
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        yield step
        raise


def _abandon_held(run: Run, claim: Claim, error: str, *, in_doubt: bool, unsure: bool) -> None:
    with claim.lock:
        if not abandon(run, claim.grant, error, in_doubt=in_doubt) and not unsure:
            claim.lost.set()
            run.count("lost")


def grant_of(asked: ClaimRequest) -> Grant:
    """What to give back when nobody knows whether it was granted: by its nonce, which is all that counts."""
    return Grant(asked.key, asked.run_id, asked.owner, asked.nonce, 0, 0, asked.lease)


def abandon(run: Run, grant: Grant, error: str, *, in_doubt: bool) -> bool:
    """False when it was no longer ours. A store that cannot be reached lets the claim lapse instead."""
    with suppress(DurastoreError):
        return run.store.call("abandon", run.store.backend.abandon, grant, error=error, in_doubt=in_doubt)
    return True


def error_text(error: BaseException) -> str:
    """An error as it is kept in a record: one string that every store takes."""
    text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX].replace("\0", "\N{SYMBOL FOR NULL}")
    return text.encode("utf-8", "replace").decode()
