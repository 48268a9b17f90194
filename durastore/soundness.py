"""What was read out of a store may have been written by anybody: a record that makes no sense is an error, never a guess.

Backends put `sound` on the functions that turn what they read into the contract's records and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import NoneType
from typing import Any, ParamSpec, TypeVar, get_args

from durastore.contract import Payload, RecordState, StoredProgress, StoredRecord
from durastore.errors import PayloadError

__all__ = ["sound"]

P = ParamSpec("P")
T = TypeVar("T")
Types = tuple[type, ...]
_TEXT: Types = (str,)
_NUMBER: Types = (int,)
_RECORD: Mapping[str, Types] = {
    **dict.fromkeys(("key", "run_id", "state", "nonce", "owner"), _TEXT),
    **dict.fromkeys(("token", "attempt", "incarnation", "created_at", "updated_at"), _NUMBER),
    **dict.fromkeys(("lease", "expires_at", "retain_until"), (int, NoneType)),
    **dict.fromkeys(("fingerprint", "error", "taken_from"), (str, NoneType)),
    "result": (Payload, NoneType),
}
_RUN: Mapping[str, Types] = {
    "run_id": _TEXT,
    **dict.fromkeys(("step", "incarnation", "updated_at"), _NUMBER),
    "state": (Payload, NoneType),
}
_PAYLOAD: Mapping[str, Types] = {"data": (bytes,), "blob": (str, NoneType)}
_STATES = frozenset(get_args(RecordState))
_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What decoding raises when a field is missing, or is something else."""


def sound(read: Callable[P, T]) -> Callable[P, T]:
    """A decoder that raises `PayloadError` for what durastore did not write so: fields that are missing or of another type, a
    state of no meaning.
    """

    @wraps(read)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            found = read(*args, **kwargs)
        except _DAMAGE as exc:
            raise _damaged("a record or run", f"{type(exc).__name__}: {exc}") from exc
        _check(found)
        return found

    return checked


def _check(found: Any) -> None:
    if isinstance(found, StoredRecord):
        _fields(found, _RECORD, f"the record of key {found.key!r}")
        if found.state not in _STATES:
            raise _damaged(f"the record of key {found.key!r}", f"its state is {found.state!r}")
        if found.result is not None:
            _fields(found.result, _PAYLOAD, f"the record of key {found.key!r}")
    elif isinstance(found, StoredProgress):
        _fields(found, _RUN, f"run {found.run_id!r}")
        if found.state is not None:
            _fields(found.state, _PAYLOAD, f"run {found.run_id!r}")


def _fields(found: Any, types: Mapping[str, Types], what: str) -> None:
    for name, expected in types.items():
        value = getattr(found, name)
        if type(value) not in expected and (type(value) is bool or not isinstance(value, expected)):
            raise _damaged(what, f"{name} is a {type(value).__name__}")


def _damaged(what: str, why: str) -> PayloadError:
    return PayloadError(
        f"{what} is damaged, or of a later version of durastore ({why[:200]}): restore it or remove it in the store itself"
    )
