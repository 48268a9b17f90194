"""``durastore once``: a command that runs once for a key."""

from __future__ import annotations

from typing import Any

import click

from durastore.cli.command import Command, CommandFailed
from durastore.cli.exits import complain
from durastore.cli.guarding import Guard
from durastore.cli.notices import show_notices
from durastore.cli.options import as_json, chosen, example, on_store, to_work
from durastore.cli.passing import own_streams
from durastore.cli.printing import json_line
from durastore.cli.results import Result
from durastore.cli.stopping import Stopper
from durastore.cli.terms import Terms, on_terms
from durastore.terms import Outcome

__all__ = ["once"]

DEFAULT_RUN = "once"


@click.command(
    epilog=example(
        "durastore once deploy-42 -- ./deploy.sh production",
        'durastore once "mail:$ID" --in-doubt halt --retain 7d -- ./send.sh "$ID"',
        legend=True,
    )
)
@click.argument("key")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
@click.option("--run", "run_id", metavar="RUN", help=f"The run that the key belongs to. Default: {DEFAULT_RUN!r}.")
@click.option("--fingerprint", metavar="TEXT", help="What the key stands for; another one later is an error.")
@on_terms
@on_store
@as_json
def once(
    url: str | None,
    key: str,
    command: tuple[str, ...],
    run_id: str | None,
    fingerprint: str | None,
    *,
    as_json: bool,
    **given: Any,
) -> None:
    """Run a command once for a key, whoever asks, on whichever machine.

    The first caller runs it; its output passes through, and is stored with its exit code. Whoever comes later gets the stored
    output and exit code, and whoever comes meanwhile waits for it. The exit code is the command's; for durastore's own
    errors see below, and stderr says "durastore: error: ...". A command that fails may run again, unless --on-failure says
    otherwise.

    The command finds DURASTORE_KEY, DURASTORE_TOKEN, DURASTORE_ATTEMPT and DURASTORE_RUN in its environment. With --json, the
    result is one JSON document on stdout; output that is not UTF-8 stands in it as stdout_base64.
    """
    terms = Terms.of(**given)
    if terms.supersede and run_id is None:
        raise click.UsageError("--supersede takes over the claims of one run: say which with --run")
    url = chosen(url)
    with Stopper() as stop, to_work(url) as store, Guard(url) as guard:
        show_notices()
        ckpt = terms.checkpoint(store, run_id or DEFAULT_RUN)
        out, err = own_streams()
        effect = Command(ckpt, stop, guard, terms.on_failure, (None if as_json else out, err))

        try:
            outcome = ckpt.run_once(key, lambda: effect(command), fingerprint=fingerprint)
        except CommandFailed as exc:
            complain(f"{exc} ({_fate(terms)})")
            raise click.exceptions.Exit(exc.exit_code) from None
        stop.settled()
    _show(key, outcome, as_json=as_json)


def _fate(terms: Terms) -> str:
    if terms.on_failure == "halt":
        return "the key is in doubt: find out what happened, then `durastore resolve` it"
    return "the key is free for another attempt"


def _show(key: str, outcome: Outcome[Any], *, as_json: bool) -> None:
    result = Result.of(outcome.value)
    if as_json:
        json_line({"key": key, "status": outcome.status, **result.to_json()})
    elif outcome.status != "executed":
        out, err = own_streams()
        err(result.stderr)
        out(result.stdout)
    raise click.exceptions.Exit(result.exit_code)
