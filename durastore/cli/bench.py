"""``durastore bench``: what durability costs on a store, and how often to save."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from durastore.cli.exits import tell
from durastore.cli.options import F, as_json, can_debug, duration, example
from durastore.cli.output import check_writable
from durastore.cli.printing import json_line
from durastore.cli.progressing import Progress
from durastore.cli.stopping import Stopper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from durastore.bench.experiment import Trial
    from durastore.bench.measuring import Report

__all__ = ["bench"]


def on_any_store(command: F) -> F:
    """``--url`` and ``--debug``. Not $DURASTORE_URL: nobody means to measure the store that is at work."""
    url = click.option("--url", metavar="URL", help="The store. Default: a SQLite file in a new temporary folder.")
    return url(can_debug(command))


@click.group(
    invoke_without_command=True,
    epilog=example(
        "durastore bench --url postgresql://localhost/test --steps 250",
        "durastore bench granularity --plot granularity.svg",
    ),
)
@on_any_store
@as_json
@click.option(
    "--steps", type=click.IntRange(25), default=1050, show_default=True, help="Samples of each kind, in blocks of 25."
)
@click.option(
    "--replayed", type=click.IntRange(1), default=1000, show_default=True, help="Finished steps that a resume finds."
)
@click.option("--cold", is_flag=True, help="Measure at once, on an empty store: writes are cheaper there for a while.")
@click.option("--report", metavar="FILE", help="Write the report there too, as JSON.")
@click.pass_context
def bench(
    ctx: click.Context, url: str | None, steps: int, replayed: int, report: str | None, *, cold: bool, as_json: bool
) -> None:
    """Measure what a step costs on a store, in floors: one durable write by the raw driver, taken in turns in the same run.

    On a SQLite URL it works in new files beside that one, on others in a namespace and a table of its own. All of it is removed
    at the end. Effects do nothing, so that only durability costs.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    from durastore.bench.measuring import measure

    if report is not None:
        check_writable(report)
    with Stopper(), Progress() as progress:
        found = measure(url, steps=steps, replayed=replayed, warm_up=not cold, tell=progress)
    if report is not None:
        Path(report).write_text(json.dumps(found.as_json(), indent=2) + "\n", encoding="utf-8")
    if as_json:
        json_line(found.as_json())
    else:
        _show(found)


def _show(found: Report) -> None:
    rows = [
        [row.name, f"{row.median:,.0f}", f"{row.p95:,.0f}", f"{row.floors:.2f}", f"{row.samples:,}"]
        for row in found.rows
    ]
    started = "in the steady state" if found.warmed_up else "on an empty store"
    _table(
        f"{found.store}, {started}, {found.cpus} CPUs",
        ("per step", "median µs", "p95 µs", "floors", "samples"),
        rows,
        "a floor is the first row's median",
    )


@bench.command(
    epilog=example("durastore bench granularity", "durastore bench granularity --step 20ms --plot granularity.svg")
)
@on_any_store
@as_json
@click.option("--steps", type=click.IntRange(10), default=1000, show_default=True, help="Steps of the run.")
@click.option(
    "--kill-at", type=click.IntRange(0), default=620, show_default=True, help="The step at whose end the worker dies."
)
@click.option("--step", default="1ms", show_default=True, metavar="TIME", help="How long one effect takes.")
@click.option("--plot", metavar="FILE", help="Draw it as SVG.")
@click.pass_context
def granularity(
    ctx: click.Context, url: str | None, steps: int, kill_at: int, step: str, plot: str | None, *, as_json: bool
) -> None:
    """Kill a worker in mid-run and resume, for several numbers of steps between two saves.

    A plain loop that saves its progress now and then does again what came after the last save: each save costs, and each step
    that is redone. durastore commits each step and reads what is done. Workers are processes and die by SIGKILL.
    """
    if kill_at >= steps - 1:
        raise click.UsageError(f"--kill-at must be below the last step, {steps - 1}")
    if plot is not None:
        check_writable(plot)
    seconds = duration(step)
    from durastore.bench.experiment import EVERY, best, trials
    from durastore.bench.measuring import disposable

    found: list[Trial] = []
    every: list[Any] = [*(each for each in EVERY if each < steps), "auto"]
    with Stopper(), Progress() as progress, disposable(url or ctx.obj, progress) as (store, _raw, where):
        store.setup()
        for trial in trials(where, every, steps=steps, kill_at=kill_at, seconds=seconds):
            found.append(trial)
            progress("killing and resuming", f": {len(found)} of {2 * len(every) - 1} runs")
    advised = best(found, kill_at=kill_at, seconds=seconds)
    if plot is not None:
        from durastore.bench.plot import curves

        Path(plot).write_text(curves(found, advised), encoding="utf-8")
        tell(f"wrote {plot}")
    if as_json:
        json_line(
            {"young_daly": advised, "kill_at": kill_at, "step": seconds, "trials": [asdict(trial) for trial in found]}
        )
    else:
        _compare(found, advised)


def _compare(found: Sequence[Trial], advised: int) -> None:
    rows = [
        [
            "progress only" if trial.mode == "progress" else trial.mode,
            str(trial.saved_every or "auto"),
            str(trial.redone),
            *(f"{value:,.1f}" for value in (trial.store, trial.catching_up, trial.total)),
        ]
        for trial in sorted(found, key=lambda trial: (trial.mode != "progress", trial.saved_every or 10**6))
    ]
    _table(
        f"{found[0].steps:,} steps, killed once",
        ("", "save every", "redone", "store ms", "catching up ms", "sum ms"),
        rows,
        f"Young/Daly for the plain loop: every {advised} steps. The effects' own time is left out, redone ones are in.",
    )


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
    import sys

    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=caption)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 110).print(table)
