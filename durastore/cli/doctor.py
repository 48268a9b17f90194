"""``durastore doctor``: what is wrong with a store, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict

import click

from durastore.cli.escaping import visible
from durastore.cli.exits import Exit
from durastore.cli.options import as_json, example, on_store, to_look
from durastore.cli.printing import json_line
from durastore.contract import Finding
from durastore.errors import DurastoreError

__all__ = ["doctor"]


@click.command(epilog=example("durastore doctor --url sqlite:///jobs.db"))
@on_store
@as_json
def doctor(url: str | None, *, as_json: bool) -> None:
    """Check reach, latency, clocks, rights, schema and settings of a store. Changes nothing.

    Every finding that is not well comes with what to do. Exit code 1 when there is one.
    """
    findings = _examine(url)
    well = all(finding.ok for finding in findings)
    if as_json:
        json_line({"ok": well, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _print(finding)
    if not well:
        raise click.exceptions.Exit(Exit.FAILED)


def _examine(url: str | None) -> list[Finding]:
    try:
        with to_look(url) as store:
            return list(store.check())
    except DurastoreError as exc:
        return [Finding("open", ok=False, detail=str(exc), advice="mend the URL, or install what is missing")]


def _print(finding: Finding) -> None:
    mark = click.style("ok  ", fg="green") if finding.ok else click.style("FAIL", fg="red", bold=True)
    click.echo(f"{mark}  {visible(finding.name)}: {visible(finding.detail)}")
    if not finding.ok and finding.advice:
        click.echo(f"      -> {visible(finding.advice)}")
