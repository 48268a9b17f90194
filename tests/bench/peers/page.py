"""The README's tables of peers: ``python -m tests.bench.peers.page docs/peers.json --into README.md``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from durastore.conformance import matrix

from .peer import ONCE, REPLAY, SKIPPED, STEP

BEGIN, END = "<!-- peers:begin -->", "<!-- peers:end -->"
_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "dynamodb": "DynamoDB"}
_OURS = {
    STEP: "`run_agent` over a list, per step, progress included",
    ONCE: "`run_once`, executed",
    REPLAY: "`run_agent`, replayed, per step",
    SKIPPED: "`run_once`, skipped",
}


def section(found: dict[str, Any]) -> str:
    """Two tables, of steps that are executed and of steps that had been, with a column for each store."""
    stores = found["stores"]
    return (
        f"{_how(found)}\n\n"
        f"{_table('executed', (STEP, ONCE), stores)}\n"
        f"{_table('replayed', (REPLAY, SKIPPED), stores)}"
        f"{_remarks(stores)}"
    )


def _how(found: dict[str, Any]) -> str:
    servers = ", ".join(f"{store['server']} (n = {store['steps']:,})" for store in found["stores"])
    return (
        "In floors, and in brackets how many of durastore's medians that is. Steady state; all in one process, in turns of\n"
        f"25 with the floor. {servers}; Python {found['python']}, {found['cpus']} cores, {found['date']}."
    )


def _head(store: dict[str, Any]) -> str:
    return f"{_NAMES[store['store']]} (floor {store['rows'][0]['median']:,.0f} µs)"


def _table(title: str, likes: Sequence[str], stores: Sequence[dict[str, Any]]) -> str:
    heads = [title, *map(_head, stores)]
    own = [[_OURS[like], *(_own(like, store) for store in stores)] for like in likes]
    peers: dict[str, dict[str, str]] = {}
    for store in stores:
        for row in store["rows"]:
            if row["like"] in likes:
                peers.setdefault(_who(row), {})[store["store"]] = f"{row['floors']:.2f} ({row['times']:.1f}x)"
    rows = [[who, *(cells.get(store["store"], "") for store in stores)] for who, cells in peers.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *own, *rows))


def _own(like: str, store: dict[str, Any]) -> str:
    return next(f"**{row['floors']:.2f}**" for row in store["rows"] if row["what"] == like)


def _who(row: dict[str, Any]) -> str:
    return f"{row['by']} {next(iter(row['versions'].values()))}, {row['what'].removesuffix(', replayed')}"


def _remarks(stores: Sequence[dict[str, Any]]) -> str:
    remarks = {
        f"{row['by']} on {_NAMES[store['store']]}: {row['remark']}."
        for store in stores
        for row in store["rows"]
        if row["remark"]
    }
    absent = {name for store in stores for name in store["not_installed"]}
    lines = [*sorted(remarks), *([f"Not installed: {', '.join(sorted(absent))}."] if absent else [])]
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def insert(page: str, text: str) -> str:
    """The page with the text between its markers. Raises `ValueError` when they are missing."""
    return matrix.insert(page, text, BEGIN, END)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="what `python -m tests.bench.peers --report` wrote")
    parser.add_argument("--into", type=Path, help="the file that holds the markers; without it the section is printed")
    given = parser.parse_args()
    text = section(json.loads(given.report.read_text(encoding="utf-8")))
    if given.into is None:
        sys.stdout.write(text)
    else:
        given.into.write_text(insert(given.into.read_text(encoding="utf-8"), text), encoding="utf-8")


if __name__ == "__main__":
    main()
