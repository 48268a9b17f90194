"""Listings and values on stdout: a table on a terminal, tab-separated lines in a pipe, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import click

from durastore.cli.escaping import visible

__all__ = ["age", "brief", "fields", "json_line", "listing", "moment"]

ROWS = 500
"""Rows of one table: a listing of any length is written in constant memory."""
BRIEF_MAX = 2000
"""Characters of a value that people are shown."""
Row = Mapping[str, Any]


def json_line(value: Any) -> None:
    """One JSON document on one line, in ASCII, so that no terminal or encoding changes it."""
    click.echo(json.dumps(value))


def listing(rows: Iterable[Row], columns: Sequence[str], *, as_json: bool) -> int:
    """Write rows as they come; returns how many."""
    count = 0
    write = _json_rows if as_json else _table if sys.stdout.isatty() else _tabbed
    remaining = iter(rows)
    while batch := list(islice(remaining, ROWS if write is _table else 1)):
        write(batch, columns, first=count == 0)
        count += len(batch)
    return count


def _json_rows(rows: Sequence[Row], columns: Sequence[str], *, first: bool) -> None:  # noqa: ARG001
    for row in rows:
        json_line(row)


def _tabbed(rows: Sequence[Row], columns: Sequence[str], *, first: bool) -> None:
    if first:
        click.echo("\t".join(columns))
    for row in rows:
        click.echo("\t".join(_cell(row[name]) for name in columns))


def _table(rows: Sequence[Row], columns: Sequence[str], *, first: bool) -> None:  # noqa: ARG001
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(_cell(row[name]), overflow="fold") for name in columns))
    Console().print(table)


def fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and values, one a line; those that are None are left out."""
    shown = [(name, _cell(value)) for name, value in pairs if value is not None]
    width = max(len(name) for name, _ in shown)
    for name, text in shown:
        click.echo(f"{name:<{width}}  {text}")


def _cell(value: Any) -> str:
    return "" if value is None else visible(value if isinstance(value, str) else json.dumps(value))


def brief(value: Any) -> str:
    """A value as JSON for people, cut when it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= BRIEF_MAX else f"{text[:BRIEF_MAX]}… ({len(text):,} characters; --json shows all)"


def moment(seconds: float | None) -> str | None:
    """A time of the store's clock, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age(seconds: float) -> str:
    """A duration for people."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.1f}s"
