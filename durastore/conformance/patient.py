"""A backend that tries again what failed for a passing reason, as the store does for its callers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from durastore.contract import Backend
from durastore.errors import DurastoreError, StoreUnavailable

__all__ = ["patient"]

DEADLINE = 30.0
"""Seconds."""
_PAUSE = 0.02


def patient(backend: Backend, deadline: float | None = None) -> Backend:
    """The backend, each verb repeated with the same arguments while `classify` calls its error passing.

    A lock that was not had in time under load is no breach of the contract. One that is never had is: after the deadline the
    error is raised.
    """
    return cast("Backend", _Patient(backend, DEADLINE if deadline is None else deadline))


class _Patient:
    def __init__(self, backend: Backend, deadline: float) -> None:
        self._backend = backend
        self._deadline = deadline

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        return self._repeated(found) if callable(found) and name not in _LOCAL else found

    def _repeated(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            ends = time.monotonic() + self._deadline
            while True:
                try:
                    return verb(*args, **kwargs)
                except DurastoreError:
                    raise
                except Exception as exc:
                    if not isinstance(self._backend.classify(exc), StoreUnavailable) or time.monotonic() > ends:
                        raise
                    time.sleep(_PAUSE)

        return call


_LOCAL = frozenset({"classify", "close", "forked"})
