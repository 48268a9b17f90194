"""Options that several commands share, and the store that they lead to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from durastore import urls
from durastore.cli.exits import LEGEND, tell
from durastore.store import Store
from durastore.store import open as open_store

__all__ = ["F", "as_json", "can_debug", "chosen", "duration", "example", "file_name", "on_store", "to_look", "to_work"]

F = TypeVar("F", bound=Callable[..., Any])
FALLBACK_URL = "sqlite:///durastore.db"
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: str | float) -> float:
    """Seconds, from a number or one with ms, s, m, h or d. Raises `click.BadParameter`."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d|)", str(value).strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no duration; write 30, 1.5s, 500ms, 15m, 12h or 7d")
    return float(match[1]) * _UNITS[match[2]]


def file_name(value: str) -> str:
    """A name by which the system can open a file, or ``-``: said before any work is begun. Raises `click.BadParameter`."""
    try:
        usable = value != "" and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise click.BadParameter(f"{value!r} is no file's name")
    return value


def on_store(command: F) -> F:
    """``--url`` and ``--debug``."""
    url = click.option(
        "--url",
        metavar="URL",
        help="The store. Default: $DURASTORE_URL, else sqlite:///durastore.db in this directory.",
    )
    return url(can_debug(command))


def can_debug(command: F) -> F:
    """``--debug``."""
    return click.option("--debug", is_flag=True, expose_value=False, callback=_remember_debug, help="Show tracebacks.")(
        command
    )


def _remember_debug(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    ctx.meta["durastore.debug"] = wanted


def example(*lines: str, legend: bool = False) -> str:
    """A command's epilog: examples, and with `legend` the exit codes."""
    shown = "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
    return f"{shown}\n\n{LEGEND}" if legend else shown


as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON for programs on stdout.")
"""``--json``."""


def to_work(url: str) -> Store:
    """A store to run things in: set up when it is a file of one's own."""
    return open_store(url)


def to_look(url: str | None) -> Store:
    """A store to look at or repair: nothing is created or migrated, whatever the URL says."""
    parsed = replace(urls.parse(chosen(url)), create=False)
    return Store(urls.connect(parsed), url=str(parsed))


def chosen(url: str | None) -> str:
    """The URL that was given, or what stands in for it; a fallback is told."""
    found = url or os.environ.get("DURASTORE_URL")
    if not found:
        tell(f"using {FALLBACK_URL} (no --url, no $DURASTORE_URL)")
    return found or FALLBACK_URL
