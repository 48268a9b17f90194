"""The options of `once` and `map` that say how keys are claimed, kept, and given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click

from durastore.checkpoint import Checkpoint
from durastore.cli.command import OnFailure, probe
from durastore.cli.options import duration
from durastore.store import Store
from durastore.terms import InDoubtPolicy

__all__ = ["Terms", "on_terms"]

F = TypeVar("F", bound=Callable[..., Any])
LEASE_SECONDS = 30.0

_OPTIONS = [
    click.option(
        "--lease",
        type=duration,
        metavar="DURATION",
        default=LEASE_SECONDS,
        show_default="30s",
        help="How long a claim outlives a holder that vanished. A live one renews it.",
    ),
    click.option(
        "--wait",
        type=duration,
        metavar="DURATION",
        show_default="lease + 30s",
        help="How long to wait for another holder: long enough, by default, to outlast one that vanished.",
    ),
    click.option(
        "--in-doubt",
        type=click.Choice(["rerun", "halt"]),
        help="When an earlier attempt vanished in mid-command: run it again (default), or stop with exit code 3.",
    ),
    click.option(
        "--probe",
        "probe_line",
        metavar="CMD",
        help="Ask this shell line instead: exit code 0, it happened, stdout is the result; 1, it did not; else unknown.",
    ),
    click.option(
        "--on-failure",
        type=click.Choice(["retry", "store", "halt"]),
        help="A command that fails: give the key back (retry), keep the failure as its result (store), or leave it in doubt "
        "(halt). Default: retry; halt with --in-doubt halt or --probe.",
    ),
    click.option(
        "--retain", type=duration, metavar="DURATION", show_default="for ever", help="How long results are kept."
    ),
    click.option(
        "--max-attempts", type=click.IntRange(1), metavar="N", help="Give up on a key after this many attempts."
    ),
    click.option(
        "--supersede",
        is_flag=True,
        help="Nobody else works on this run: take over its claims at once, without waiting for leases.",
    ),
]


def on_terms(command: F) -> F:
    """``--lease``, ``--wait`` and the others; the command gets them as keywords for `Terms.of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Terms:
    """The options, checked."""

    lease: float
    wait: float
    in_doubt: InDoubtPolicy
    on_failure: OnFailure
    retain: float | None
    max_attempts: int | None
    supersede: bool

    @staticmethod
    def of(
        *,
        lease: float,
        wait: float | None,
        in_doubt: str | None,
        probe_line: str | None,
        on_failure: str | None,
        retain: float | None,
        max_attempts: int | None,
        supersede: bool,
    ) -> Terms:
        """The options as the command line gave them. Raises `click.UsageError` for those that contradict each other."""
        if probe_line is not None and in_doubt is not None:
            raise click.UsageError("--probe says what to do in doubt; leave --in-doubt out")
        if on_failure == "halt" and in_doubt == "rerun":
            raise click.UsageError("--on-failure halt leaves a key in doubt, and --in-doubt rerun would run it again")
        cautious = probe_line is not None or in_doubt == "halt"
        chosen = on_failure or ("halt" if cautious else "retry")
        doubt = probe(probe_line) if probe_line is not None else in_doubt or ("halt" if chosen == "halt" else "rerun")
        patience = lease + LEASE_SECONDS if wait is None else wait
        policy = cast("InDoubtPolicy", doubt)
        return Terms(lease, patience, policy, cast("OnFailure", chosen), retain, max_attempts, supersede)

    def checkpoint(self, store: Store, run_id: str) -> Checkpoint:
        """The run on these terms."""
        return store.checkpoint(
            run_id,
            lease=self.lease,
            wait=self.wait,
            in_doubt=self.in_doubt,
            retain=self.retain,
            max_attempts=self.max_attempts,
            supersede=self.supersede,
        )
