"""Options that several commands share, and the store that they lead to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from durastore import urls
from durastore.cli.exits import tell
from durastore.store import Store
from durastore.store import open as open_store

__all__ = ["SECONDS", "Seconds", "as_json", "on_store", "to_look", "to_work"]

F = TypeVar("F", bound=Callable[..., Any])
FALLBACK_URL = "sqlite:///durastore.db"
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Seconds(click.ParamType):
    """A duration: seconds, or a number with ms, s, m, h or d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d|)", value.strip())
        if match is None:
            self.fail(f"{value!r} is no duration; write 30, 1.5s, 500ms, 15m, 12h or 7d", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


SECONDS = Seconds()


def on_store(command: F) -> F:
    """``--url`` and ``--debug``."""
    url = click.option(
        "--url", metavar="URL", help="The store. Default: $DURASTORE_URL, else sqlite:///durastore.db in this directory."
    )
    debug = click.option(
        "--debug", is_flag=True, expose_value=False, callback=_remember_debug, help="Show tracebacks."
    )
    return url(debug(command))


def _remember_debug(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    ctx.meta["durastore.debug"] = wanted


as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON for programs on stdout.")
"""``--json``."""


def to_work(url: str | None) -> Store:
    """A store to run things in: set up when it is a file of one's own."""
    return open_store(_chosen(url))


def to_look(url: str | None) -> Store:
    """A store to look at or repair: nothing is created or migrated, whatever the URL says."""
    parsed = replace(urls.parse(_chosen(url)), create=False)
    return Store(urls.connect(parsed), url=str(parsed))


def _chosen(url: str | None) -> str:
    chosen = url or os.environ.get("DURASTORE_URL")
    if not chosen:
        tell(f"using {FALLBACK_URL} (no --url, no $DURASTORE_URL)")
    return chosen or FALLBACK_URL
