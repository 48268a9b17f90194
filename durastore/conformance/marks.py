"""How tests say which clause they hold, and how an override says that it stands in for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["clause", "clauses_of", "instead_of", "reason_of"]

Test = TypeVar("Test", bound=Callable[..., Any])
_CLAUSES = "__durastore_clauses__"
_REASON = "__durastore_reason__"


def clause(*ids: str) -> Callable[[Test], Test]:
    """Mark a test with the clauses that it holds."""

    def mark(test: Test) -> Test:
        setattr(test, _CLAUSES, ids)
        return test

    return mark


def instead_of(*ids: str, reason: str) -> Callable[[Test], Test]:
    """Mark a test that replaces the suite's own of the same name. The report names it with the reason.

    An override without this mark makes the report "not conformant", however green it is.
    """
    if not reason.strip():
        raise ValueError("say why the suite's own test does not do")

    def mark(test: Test) -> Test:
        setattr(test, _REASON, reason)
        return clause(*ids)(test)

    return mark


def clauses_of(test: Any) -> tuple[str, ...]:
    """The clauses that a test is marked with."""
    found: tuple[str, ...] = getattr(test, _CLAUSES, ())
    return found


def reason_of(test: Any) -> str | None:
    """Why a test replaces the suite's own; None when it does not say so."""
    found: str | None = getattr(test, _REASON, None)
    return found
