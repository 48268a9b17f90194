"""``durastore conformance URL``: does this store keep the contract?"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from durastore.conformance.surface import Surface

from durastore.cli.options import file_name

__all__ = ["conformance"]


@click.command()
@click.argument("url")
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=file_name,
    metavar="FILE",
    help="Write the report too: .txt, .json or .md. Repeatable.",
)
@click.option("--no-setup", is_flag=True, help="The store is set up already; do not try.")
@click.option(
    "--soak", "minutes", type=click.FloatRange(0), metavar="MINUTES", help="Soak the store instead; 0 for one round."
)
@click.option("--seed", type=int, default=1, show_default=True, metavar="N", help="Where a soak begins.")
@click.option("--examples", type=click.IntRange(1), metavar="N", help="Random programs of the model layer.")
@click.option(
    "--surface",
    type=click.Choice(["sync", "async"]),
    envvar="DURASTORE_CONFORMANCE_SURFACE",
    default="sync",
    show_default=True,
    help="What the suite's programs use: durastore, or durastore.aio.",
)
def conformance(
    url: str,
    reports: tuple[str, ...],
    examples: int | None,
    minutes: float | None,
    seed: int,
    surface: Surface,
    *,
    no_setup: bool,
) -> None:
    """Run the conformance suite on the store that URL names, and print a report, clause by clause.

    The suite works in namespaces of its own and cleans up, but give it a store made for tests. Exit code 0: conformant;
    1: not; others: it could not be run.

    With --soak, random programs, kills, freezes and network faults instead, until the time is over or something is violated.
    """
    if minutes is not None:
        os.environ["DURASTORE_CONFORMANCE_SURFACE"] = surface  # for the soak's own processes as well
        _soak(url, reports, minutes * 60, seed, setup=not no_setup)
    from durastore.conformance.runner import run

    report = run(url, report=reports, setup=not no_setup, examples=examples, surface=surface)
    click.echo(report.to_text(), nl=False)
    sys.exit(report.exit_code)


def _soak(url: str, reports: tuple[str, ...], seconds: float, seed: int, *, setup: bool) -> None:
    from pathlib import Path

    from durastore.conformance.soak import soak
    from durastore.errors import ConfigError

    renderers = {".txt": "to_text", ".json": "to_json"}
    for name in reports:
        if Path(name).suffix not in renderers:
            raise ConfigError(f"a soak's report ends in .txt or .json, not {name!r}")
    found = soak(url, seconds=seconds, seed=seed, setup=setup, progress=lambda line: click.echo(line, err=True))
    click.echo(found.to_text(), nl=False)
    for name in reports:
        Path(name).write_text(getattr(found, renderers[Path(name).suffix])(), encoding="utf-8")
    sys.exit(found.exit_code)
