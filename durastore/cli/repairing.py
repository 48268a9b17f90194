"""``resolve``, ``forget``, ``sweep`` and ``init``: what changes a store by hand."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from durastore.cli.exits import Exit, complain, tell
from durastore.cli.looking import record_fields
from durastore.cli.options import as_json, example, on_store, to_look
from durastore.cli.printing import json_line
from durastore.errors import ConfigError

__all__ = ["forget", "init", "resolve", "sweep"]

force_live = click.option("--force", is_flag=True, help="Even when its holder is alive.")


@click.command(
    epilog=example(
        "durastore resolve charge:order-17 --result '{\"charged\": 4200}'", "durastore resolve charge:order-17 --retry"
    )
)
@click.argument("key")
@click.option("--result", metavar="JSON", help="It did happen, and this came of it. '-' reads stdin.")
@click.option("--retry", is_flag=True, help="It did not happen: the next caller runs it.")
@click.option("--force", is_flag=True, help="Even when its holder is alive, or it is done.")
@on_store
@as_json
def resolve(url: str | None, key: str, result: str | None, *, retry: bool, force: bool, as_json: bool) -> None:
    """Settle a key that is in doubt. Its former holder has lost its claim, should it wake.

    For a key of `once` or `map`, give the result as {"exit_code": 0, "stdout": "…", "stderr": "…"}.
    """
    if (result is None) is not retry:
        raise click.UsageError("give either --result JSON (it did happen) or --retry (it did not)")
    settled = {} if result is None else {"result": _parsed(result)}
    with to_look(url) as store:
        found = store.resolve(key, retry=retry, force=force, **settled)
        shown = record_fields(found)
    if as_json:
        json_line(shown)
    else:
        tell(f"key {key!r} is {'free for another attempt' if retry else 'committed with that result'}")


def _parsed(text: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if text == "-" else text)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"--result is not JSON: {exc}; a text needs its quotes, as in --result '\"done\"'") from None


@click.command(epilog=example("durastore forget charge:order-17", "durastore forget --run r1"))
@click.argument("key", required=False)
@click.option("--run", "run_id", metavar="RUN", help="A run instead: its progress and all its keys.")
@force_live
@click.option("--yes", is_flag=True, help="Do not ask before a run is forgotten.")
@on_store
@as_json
def forget(url: str | None, key: str | None, run_id: str | None, *, force: bool, yes: bool, as_json: bool) -> None:
    """Remove a key or a run, so that it counts as never seen. Its effects would run again.

    Asks before it forgets a run, on a terminal. Exit code 1 when there was no such key.
    """
    if (key is None) is (run_id is None):
        raise click.UsageError("give either a KEY or --run RUN")
    with to_look(url) as store:
        if run_id is not None:
            _confirm(run_id, yes=yes)
            count = store.forget_run(run_id, force=force)
        else:
            count = int(store.forget(str(key), force=force))
    if as_json:
        json_line({"forgotten": count})
    elif run_id is not None:
        tell(f"forgot run {run_id!r} and its {count} keys")
    elif count:
        tell(f"forgot key {key!r}")
    if key is not None and not count:
        complain(f"there is no key {key!r} in this store and namespace")
        raise click.exceptions.Exit(Exit.FAILED)


def _confirm(run_id: str, *, yes: bool) -> None:
    if yes or not sys.stdin.isatty():
        return
    if not click.confirm(f"Forget run {run_id!r} with all its keys and results?", err=True):
        raise click.exceptions.Exit(Exit.FAILED)


@click.command(epilog=example("durastore sweep --url sqlite:///jobs.db"))
@on_store
@as_json
def sweep(url: str | None, *, as_json: bool) -> None:
    """Remove records past their retention, and chunks that nothing points to. Safe at any time, also under load."""
    with to_look(url) as store:
        swept = store.sweep()
    if as_json:
        json_line({"records": swept.records, "chunks": swept.chunks})
    else:
        tell(f"removed {swept.records} records past retention and {swept.chunks} orphaned payloads")


@click.command(epilog=example("durastore init --url postgresql://user@host/db"))
@on_store
@as_json
def init(url: str | None, *, as_json: bool) -> None:
    """Create what a store needs, or migrate what is old. Safe to repeat, by any number of processes at once."""
    with to_look(url) as store:
        store.setup()
        name = store.url
    if as_json:
        json_line({"url": name, "ready": True})
    else:
        tell(f"{name} is ready")
