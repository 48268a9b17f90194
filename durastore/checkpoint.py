"""A checkpoint: one run as its code holds it. Thin; the rules are in :mod:`durastore.protocol`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

from durastore import keys
from durastore.acquiring import acquire, request
from durastore.claims import Claim, running
from durastore.errors import ConfigError, InvalidKey
from durastore.holding import Run, error_text, finish, give_back
from durastore.protocol import run_once, transact
from durastore.shapes import TypeForm, shape
from durastore.stats import Stats
from durastore.steps import drive
from durastore.store import Store
from durastore.terms import InDoubtPolicy, Outcome, Terms

__all__ = ["Checkpoint", "ManualClaim", "Position"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Position(NamedTuple):
    """A run's progress: the next step to do, and the state saved with it."""

    step: int
    state: Any


class Checkpoint:
    """One run under one ``run_id``, made by `Store.checkpoint`. Thread-safe.

    Every method that runs an effect takes the options of `Store.checkpoint` again, for this one key.
    """

    def __init__(self, store: Store, run_id: str, terms: Terms, incarnation: int = 0) -> None:
        self.run = Run(store, run_id, incarnation)
        self.terms = terms

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.run.run_id

    @property
    def store(self) -> Store:
        """The store that the run lives in."""
        return self.run.store

    @property
    def stats(self) -> Stats:
        """How the calls through this checkpoint ended."""
        return self.run.stats

    def load(self) -> Position:
        """The run's progress, ``(0, {})`` for a new run. Raises `PayloadError` for a damaged state."""
        stored = self.store.call("load", self.store.backend.load, self.run_id)
        if stored is None or stored.state is None:
            return Position(0 if stored is None else stored.step, {})
        return Position(stored.step, self.store.unpack(stored.state))

    def save_progress(self, step: int, state: Any) -> Position:
        """Save the next step to do and a state (JSON). Durable on return.

        A step below the stored one changes nothing, an equal one replaces the state. Returns what is stored now. Raises
        `PayloadError` for a state that cannot be encoded.
        """
        stored = self.store.call("save", self.store.backend.save, self.run.progress(step, state))
        return Position(stored.step, {} if stored.state is None else self.store.unpack(stored.state))

    def reset(self) -> None:
        """Forget the run's progress, so that it starts at step 0. Its keys stay, so that no effect is repeated."""
        self.store.call("delete_run", self.store.backend.delete_run, self.run_id)

    @overload
    def run_once(
        self,
        key: str,
        side_effect: Callable[[], object],
        *,
        returns: type[T],
        fingerprint: Any = ...,
        lease: float | None = ...,
        wait: float | None = ...,
        in_doubt: InDoubtPolicy | None = ...,
        retain: float | None = ...,
        budget: float | None = ...,
        max_attempts: int | None = ...,
        progress: tuple[int, Any] | None = ...,
    ) -> Outcome[T]: ...

    @overload
    def run_once(
        self,
        key: str,
        side_effect: Callable[[], R],
        *,
        returns: TypeForm | None = ...,
        fingerprint: Any = ...,
        lease: float | None = ...,
        wait: float | None = ...,
        in_doubt: InDoubtPolicy | None = ...,
        retain: float | None = ...,
        budget: float | None = ...,
        max_attempts: int | None = ...,
        progress: tuple[int, Any] | None = ...,
    ) -> Outcome[R]: ...

    def run_once(
        self,
        key: str,
        side_effect: Callable[[], Any],
        *,
        returns: Any = None,
        fingerprint: Any = None,
        lease: float | None = None,
        wait: float | None = None,
        in_doubt: InDoubtPolicy | None = None,
        retain: float | None = None,
        budget: float | None = None,
        max_attempts: int | None = None,
        progress: tuple[int, Any] | None = None,
    ) -> Outcome[R]:
        """Run a side effect once for a key: claim, execute, commit. Returns ``(value, status)``.

        Guarantees: once a call has returned, no call with this key, anywhere, runs the effect again; all get its decoded
        result. While a holder lives, nobody else runs it. What happens to an attempt whose holder vanished or raised is
        `in_doubt`'s to say (see the README's table of promises).

        `fingerprint`: anything `content_key` takes; a later call with another one is an error instead of a wrong answer.
        `progress`: ``(step, state)``, saved in the same write as the result.

        `returns`: a type (dataclass, `TypedDict`, Pydantic model, or made of them, as ``list[Order]``; extra ``pydantic``) that
        the result is decoded into, for the first caller as for the later ones. Data is read strictly, by the fields' names. What
        the effect returns counts as what its JSON says: a dictionary that fits a model becomes one, and further fields of a
        subclass are not kept.

        Raises: what the effect raises; `InvalidKey`; `FingerprintMismatch`; `AwaitTimeout` when another holder lives and is not
        done within `wait`; `InDoubt`; `TooManyAttempts`; `ClaimLost` when somebody took over while the effect ran: its value is
        not stored; `PayloadError` when the result cannot be encoded, or does not fit `returns`: the effect counts as done, its
        result as lost; `PayloadError` when a stored result does not fit `returns`: nothing is run; `ConfigError` for a `returns`
        that cannot be used, before the store is asked; `StoreUnavailable`.
        Not guaranteed: that an effect which was interrupted had no effect.
        """
        terms = self.terms_with(
            returns=returns,
            lease=lease,
            wait=wait,
            in_doubt=in_doubt,
            retain=retain,
            budget=budget,
            max_attempts=max_attempts,
        )
        saved = None if progress is None else self.run.progress(*progress)
        return drive(
            run_once(
                self.run, keys.checked(key), side_effect, terms, fingerprint=fingerprint_of(fingerprint), progress=saved
            )
        )

    @overload
    def transact(
        self,
        key: str,
        effect: Callable[[Any], object],
        *,
        returns: type[T],
        fingerprint: Any = ...,
        lease: float | None = ...,
        wait: float | None = ...,
        retain: float | None = ...,
        budget: float | None = ...,
        max_attempts: int | None = ...,
        progress: tuple[int, Any] | None = ...,
    ) -> Outcome[T]: ...

    @overload
    def transact(
        self,
        key: str,
        effect: Callable[[Any], R],
        *,
        returns: TypeForm | None = ...,
        fingerprint: Any = ...,
        lease: float | None = ...,
        wait: float | None = ...,
        retain: float | None = ...,
        budget: float | None = ...,
        max_attempts: int | None = ...,
        progress: tuple[int, Any] | None = ...,
    ) -> Outcome[R]: ...

    def transact(
        self,
        key: str,
        effect: Callable[[Any], Any],
        *,
        returns: Any = None,
        fingerprint: Any = None,
        lease: float | None = None,
        wait: float | None = None,
        retain: float | None = None,
        budget: float | None = None,
        max_attempts: int | None = None,
        progress: tuple[int, Any] | None = None,
    ) -> Outcome[R]:
        """Run ``effect(tx)`` exactly once: what it writes through `tx` and the committed mark land in one transaction.

        `tx` is the store's own: a `sqlite3.Connection`, a SQLAlchemy `Connection`, a Firestore write batch. The effect may be
        called again when the transaction is retried, and must do nothing but write through `tx`. When it raises, all is rolled
        back and the claim given back. A holder that vanished wrote nothing, so that `in_doubt` plays no part.

        Raises as `run_once`; a result that cannot be encoded, or does not fit `returns`, rolls back.
        """
        terms = self.terms_with(
            returns=returns, lease=lease, wait=wait, retain=retain, budget=budget, max_attempts=max_attempts
        )
        saved = None if progress is None else self.run.progress(*progress)
        return drive(
            transact(
                self.run, keys.checked(key), effect, terms, fingerprint=fingerprint_of(fingerprint), progress=saved
            )
        )

    @overload
    def once(
        self, *, key: str | Callable[..., str], returns: type[T], **terms: Any
    ) -> Callable[[Callable[P, T]], Callable[P, T]]: ...

    @overload
    def once(self, *, key: str | Callable[..., str], **terms: Any) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def once(self, *, key: str | Callable[..., str], **terms: Any) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
        """A decorator: each call runs once for its key, and returns the value.

        `key` is a template over the function's arguments (``"charge:{order_id}"``) or a function of the arguments. Further
        options are those of `run_once`.
        """

        def decorate(function: Callable[P, Any]) -> Callable[P, Any]:
            name = key_maker(function, key)

            @wraps(function)
            def wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
                return self.run_once(name(args, kwargs), lambda: function(*args, **kwargs), **terms).value

            return wrapper

        return decorate

    @overload
    def claim(
        self,
        key: str,
        *,
        returns: type[T],
        fingerprint: Any = ...,
        lease: float | None = ...,
        wait: float | None = ...,
        in_doubt: InDoubtPolicy | None = ...,
        retain: float | None = ...,
        budget: float | None = ...,
        max_attempts: int | None = ...,
    ) -> AbstractContextManager[ManualClaim[T]]: ...

    @overload
    def claim(
        self,
        key: str,
        *,
        returns: TypeForm | None = ...,
        fingerprint: Any = ...,
        lease: float | None = ...,
        wait: float | None = ...,
        in_doubt: InDoubtPolicy | None = ...,
        retain: float | None = ...,
        budget: float | None = ...,
        max_attempts: int | None = ...,
    ) -> AbstractContextManager[ManualClaim[Any]]: ...

    @contextmanager
    def claim(
        self,
        key: str,
        *,
        returns: Any = None,
        fingerprint: Any = None,
        lease: float | None = None,
        wait: float | None = None,
        in_doubt: InDoubtPolicy | None = None,
        retain: float | None = None,
        budget: float | None = None,
        max_attempts: int | None = None,
    ) -> Iterator[ManualClaim[Any]]:
        """The three phases by hand.

        ``with ckpt.claim(key) as claim:`` then either ``claim.outcome`` is set (the key was done already), or execute and call
        ``claim.commit(result)``. Left without a commit, the key is given back; unless `in_doubt` is ``"rerun"`` it stays in
        doubt, since nobody knows how far the effect got. Raises as `run_once`.
        """
        terms = self.terms_with(
            returns=returns,
            lease=lease,
            wait=wait,
            in_doubt=in_doubt,
            retain=retain,
            budget=budget,
            max_attempts=max_attempts,
        )
        got = drive(acquire(self.run, request(self.run, keys.checked(key), terms, fingerprint_of(fingerprint)), terms))
        manual: ManualClaim[Any] = ManualClaim(self.run, got, terms)
        if isinstance(got, Outcome):
            yield manual
            return
        error = "left without a commit"
        try:
            with running(got):
                yield manual
        except BaseException as exc:
            error = error_text(exc)
            raise
        finally:
            if not manual.finished:
                drive(give_back(self.run, got, error, in_doubt=terms.in_doubt != "rerun"))

    def terms_with(self, *, returns: Any = None, **given: Any) -> Terms:
        """The run's terms with those that are given (not None) in their place. Raises `ConfigError`."""
        changed = {name: value for name, value in given.items() if value is not None}
        if returns is not None:
            changed["returns"] = shape(returns)
        try:
            return replace(self.terms, **changed) if changed else self.terms
        except TypeError as exc:
            raise ConfigError(f"unknown option: {exc}") from None


class ManualClaim(Generic[R]):
    """A key in the hands of a ``with ckpt.claim(key)`` block."""

    def __init__(self, run: Run, got: Claim | Outcome[R], terms: Terms) -> None:
        self._run = run
        self._claim = got if isinstance(got, Claim) else None
        self._terms = terms
        self.outcome: Outcome[R] | None = None if isinstance(got, Claim) else got
        """Set when the key is done, by somebody else before or by `commit`; None while it is ours to execute."""
        self.finished = self._claim is None
        """Whether there is nothing to give back."""

    @property
    def live(self) -> Claim:
        """The live claim: key, token, attempt, lost. Raises `ConfigError` when the key was done already."""
        if self._claim is None:
            raise ConfigError("the key was done already: look at claim.outcome before executing")
        return self._claim

    def commit(self, result: R, *, progress: tuple[int, Any] | None = None) -> Outcome[R]:
        """Store the result and the committed mark, once. Raises as `run_once`."""
        claim = self.live
        if self.finished:
            raise ConfigError(f"the claim of key {claim.key!r} is over: a second commit would change nothing")
        saved = None if progress is None else self._run.progress(*progress)
        self.finished = True
        value, _ = drive(finish(self._run, claim, result, self._terms, saved))
        self._run.count("executed")
        self.outcome = Outcome(value, "executed")
        return self.outcome


def key_maker(function: Callable[..., Any], key: str | Callable[..., str]) -> Callable[[Any, Any], str]:
    """How a decorated function's arguments become its key."""
    if callable(key):
        return lambda args, kwargs: key(*args, **kwargs)
    signature = inspect.signature(function)

    def make(args: Any, kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return key.format(**bound.arguments)
        except (KeyError, IndexError) as exc:
            raise InvalidKey(
                f"the key template {key!r} names {exc}, which {function.__qualname__}() does not take"
            ) from None

    return make


def fingerprint_of(value: Any) -> str | None:
    """What is stored of a fingerprint: a digest, which says nothing about its content. Raises `InvalidKey`."""
    return None if value is None else keys.digest(value)
