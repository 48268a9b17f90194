"""``durastore emulators``: servers to test against that stay until they are told to go."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from durastore import emulators as servers
from durastore._emulators.catalogue import ENTRIES, variable
from durastore._emulators.registry import Record, Registry
from durastore.cli.exits import Exit, tell

__all__ = ["emulators"]

_NAME = click.Choice(list(ENTRIES))
_DEFAULT = ("postgresql", "mysql", "firestore", "dynamodb")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(short_help="Start and stop stores to test against.")
def emulators() -> None:
    """Servers to test against, on this machine.

    Each comes from Docker where there is one, else from a program that is installed. They listen on 127.0.0.1 only.
    """


@emulators.command()
@click.argument("names", nargs=-1, type=_NAME)
@_as_json
def up(names: tuple[str, ...], *, as_json: bool) -> None:
    """Start servers and leave them running; print their URLs as `export` lines.

    Without NAMES: postgresql, mysql, firestore and dynamodb. Those that run already are kept. Exit code 1 when one can't be run
    here.
    """
    registry, started, failed = _registry(), [], False
    for name in names or _DEFAULT:
        try:
            started.append(registry.up(name))
        except servers.EmulatorError as exc:
            failed = True
            tell(str(exc))
    _print(started, as_json=as_json)
    if failed:
        sys.exit(Exit.FAILED)


@emulators.command()
@_as_json
def urls(*, as_json: bool) -> None:
    """Print the URLs of the servers that `up` started and that still run."""
    _print(_registry().running(), as_json=as_json)


@emulators.command()
@click.argument("names", nargs=-1, type=_NAME)
def down(names: tuple[str, ...]) -> None:
    """Stop what `up` started, and nothing else, and remove its data. Without NAMES: all of it."""
    for record in _registry().down(names):
        tell(f"stopped {record.name}: {record.version}")


def _registry() -> Registry:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser())
    return Registry(state / "durastore" / "emulators")


def _print(records: Sequence[Record], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(record) for record in records]))
        return
    for record in records:
        click.echo(f"export {variable(record.name)}={shlex.quote(record.url)}  # {record.version}")
