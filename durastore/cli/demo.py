"""``durastore demo``: the proof, on an embedded SQLite or any store."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from durastore.cli.exits import Exit, complain, tell
from durastore.cli.options import as_json, example, on_store
from durastore.cli.printing import json_line
from durastore.cli.progressing import Progress

if TYPE_CHECKING:
    from durastore.demo.running import Row

__all__ = ["demo"]

LIMIT = 1000
KILLS = 12
_ABOUT = {
    "naive": "start again from the first step",
    "progress": "save how far it got, now and then",
    "rerun": "durastore, in_doubt='rerun'",
    "probe": "durastore, a probe asks the world",
    "transact": "durastore, the delivery in its transaction",
}


@click.command(
    epilog=example(
        "durastore demo", "durastore demo --seed 7 --json", "durastore demo --url postgresql://localhost/test"
    )
)
@on_store
@as_json
@click.option(
    "--limit",
    type=click.IntRange(20),
    default=LIMIT,
    show_default=True,
    help="Steps at most: one for each file of the standard library.",
)
@click.option("--kills", type=click.IntRange(1), default=KILLS, show_default=True, help="Workers to kill in each mode.")
@click.option("--seed", type=click.IntRange(0), help="Repeat a schedule of kills. Default: a new one, which is shown.")
@click.option("--keep", is_flag=True, help="Keep the folder with the world's files and the SQLite store.")
def demo(url: str | None, limit: int, kills: int, seed: int | None, *, as_json: bool, keep: bool) -> None:
    """Kill workers in mid-step, five ways to resume, side by side on the same schedule.

    Each step posts the line count and digest of one file of this Python's standard library to a small receiver, which counts.
    Workers die by SIGKILL: before the delivery, after it was counted but before its answer was used, after the effect but
    before its result was stored, and after that. Exit code 1 when durastore breaks a promise: rerun may deliver twice once
    for each kill, probe and transact never, and nothing may be lost.
    """
    from durastore.cli.stopping import Stopper
    from durastore.demo.running import broken, run
    from durastore.demo.worker import sources

    if kills >= len(sources(limit)):
        raise click.UsageError(f"there must be more steps than kills, and there are {len(sources(limit))}")
    chosen = secrets.randbelow(10_000) if seed is None else seed
    with Stopper(), _folder(keep=keep) as folder, Progress() as progress:
        store = url or f"sqlite:///{folder}/demo.db"

        def tell_progress(mode: str, killed: int, of: int) -> None:
            progress(f"{mode}: {_ABOUT[mode]}", f" … {killed}/{of} workers killed")

        rows = list(run(store, folder, seed=chosen, kills=kills, limit=limit, tell=tell_progress))
    if as_json:
        json_line({"seed": chosen, "rows": [asdict(row) for row in rows]})
    else:
        _table(rows, chosen)
    faults = [fault for fault in map(broken, rows) if fault is not None]
    for fault in faults:
        complain(f"a promise is broken: {fault}")
    if faults:
        raise click.exceptions.Exit(Exit.FAILED)


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    if keep:
        folder = tempfile.mkdtemp(prefix="durastore-demo-")
        tell(f"keeping {folder}")
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="durastore-demo-") as folder:
        yield Path(folder)


def _table(rows: list[Row], seed: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"The same {rows[0].kills} kills, seed {seed}", caption="redone: effects begun again, delivered or not"
    )
    table.add_column("mode")
    for name in ("steps", "kills", "deliveries", "duplicates", "lost", "redone", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("how")
    for row in rows:
        values = asdict(row)
        bad = {name: "[red]" for name in ("duplicates", "lost") if values[name]}
        numbers = [f"{bad.get(name, '')}{values[name]}" for name in values if name != "mode"]
        table.add_row(row.mode, *numbers, _ABOUT[row.mode])
    Console(width=None if sys.stdout.isatty() else 130).print(table)
