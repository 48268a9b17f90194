"""Listings and sweeps to their end, which a broken backend may never reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from durastore.contract import Backend, Page, Swept

__all__ = ["every", "sweep_all"]

T = TypeVar("T")
CALLS_MAX = 10_000


def every(page_at: Callable[[str | None], Page[T]]) -> Iterator[Page[T]]:
    """All pages; `page_at` takes the cursor."""
    cursor: str | None = None
    for _ in range(CALLS_MAX):
        page = page_at(cursor)
        yield page
        assert cursor is None or page.cursor != cursor, "a page's cursor leads on"
        cursor = page.cursor
        if cursor is None:
            return
    raise AssertionError(f"a listing ends within {CALLS_MAX:,} pages")


def sweep_all(backend: Backend, *, now: int, limit: int = 500) -> Iterator[Swept]:
    """Sweep until there is no more."""
    for _ in range(CALLS_MAX):
        swept = backend.sweep(limit=limit, now=now)
        yield swept
        if not swept.more:
            return
    raise AssertionError(f"a sweep ends within {CALLS_MAX:,} calls")
