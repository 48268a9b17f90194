"""``durastore conformance URL``: does this store keep the contract?"""

from __future__ import annotations

import sys

import click

__all__ = ["conformance"]


@click.command()
@click.argument("url")
@click.option(
    "--report", "reports", multiple=True, metavar="FILE", help="Write the report too: .txt, .json or .md. Repeatable."
)
@click.option("--no-setup", is_flag=True, help="The store is set up already; do not try.")
@click.option("--examples", type=click.IntRange(1), metavar="N", help="Random programs of the model layer.")
def conformance(url: str, reports: tuple[str, ...], examples: int | None, *, no_setup: bool) -> None:
    """Run the conformance suite on the store that URL names, and print a report, clause by clause.

    The suite works in namespaces of its own and cleans up, but give it a store made for tests. Exit code 0: conformant;
    1: not; others: it could not be run.
    """
    from durastore.conformance.runner import run

    report = run(url, report=reports, setup=not no_setup, examples=examples)
    click.echo(report.to_text(), nl=False)
    sys.exit(report.exit_code)
