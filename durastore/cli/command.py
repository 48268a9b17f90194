"""A command as a side effect: what it is told, and what becomes of its key when it fails or is interrupted."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from durastore.checkpoint import Checkpoint
from durastore.claims import Claim, current
from durastore.cli.escaping import visible
from durastore.cli.exits import Exit, Interrupted
from durastore.cli.guarding import Guard
from durastore.cli.process import Ended, Sink, run
from durastore.cli.results import Result
from durastore.cli.stopping import Stopper
from durastore.holding import give_back
from durastore.steps import drive
from durastore.terms import Found, NotFound, Unknown

__all__ = ["Command", "CommandFailed", "OnFailure", "probe"]

OnFailure: TypeAlias = Literal["retry", "store", "halt"]
_REASON_MAX = 300
"""Characters of the last line on stderr that are kept as the reason of a failure."""


class CommandFailed(Exception):
    """A command failed, and its failure is not its result."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Command:
    """The side effect of `once` and `map`: call it under a claim."""

    ckpt: Checkpoint
    stop: Stopper
    guard: Guard
    on_failure: OnFailure
    sinks: tuple[Sink | None, Sink | None] = (None, None)
    """Get output and errors as they come."""
    ended: Callable[[Result], None] | None = None
    """Gets what came of a command, before it is stored or told to have failed."""

    def __call__(self, argv: Sequence[str | bytes], stdin: bytes | None = None) -> dict[str, Any]:
        """Run the command and return what is to be stored.

        Raises `CommandFailed` when it failed or could not be started, `Interrupted` when a signal ended it, `ClaimLost`. The key
        is given back, or left in doubt, as `on_failure` and the run's `in_doubt` say.
        """
        with self.stop.effect():
            return self._run(_live_claim(), argv, stdin)

    def _run(self, claim: Claim, argv: Sequence[str | bytes], stdin: bytes | None) -> dict[str, Any]:
        if self.stop.asked:
            self._give_back(claim, "interrupted before the command began")
            self.stop.check()
        self.guard.hold(claim)
        try:
            ended = run(
                argv,
                claim=claim,
                env=environment(claim),
                stop=self.stop,
                guard=self.guard,
                stdin=stdin,
                sinks=self.sinks,
            )
        except (OSError, ValueError) as exc:
            failed = _not_started(argv, exc)
            self._give_back(claim, str(failed))
            raise failed from exc
        if self.ended is not None:
            self.ended(ended.result)
        return self._judge(claim, ended)

    def _judge(self, claim: Claim, ended: Ended) -> dict[str, Any]:
        code = ended.result.exit_code
        if code == 0:
            return ended.result.to_json()
        if ended.asked is not None and self.stop.signum is not None:
            raise Interrupted(self.stop.signum)
        if self.on_failure == "store" and ended.signum is None:
            return ended.result.to_json()
        failed = CommandFailed(_reason(ended), code)
        if self.on_failure == "retry" and ended.signum is None:
            self._give_back(claim, str(failed))
        raise failed

    def _give_back(self, claim: Claim, error: str) -> None:
        """Nothing happened, or the command says that it failed: the key is free for another attempt, whatever `in_doubt` says."""
        drive(give_back(self.ckpt.run, claim, error, in_doubt=False))


def _live_claim() -> Claim:
    claim = current()
    assert claim is not None, "a command runs under a claim"
    return claim


def environment(claim: Claim) -> dict[str, str]:
    """What a command and a probe are told about the claim that they run under."""
    return {
        **os.environ,
        "DURASTORE_KEY": claim.key,
        "DURASTORE_RUN": claim.run_id,
        "DURASTORE_TOKEN": str(claim.token),
        "DURASTORE_ATTEMPT": str(claim.attempt),
    }


def _reason(ended: Ended) -> str:
    what = f"exit code {ended.result.exit_code}" if ended.signum is None else f"killed by signal {ended.signum}"
    lines = ended.result.stderr[-4 * _REASON_MAX :].decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{what}: {visible(last[:_REASON_MAX])}" if last else what


def _not_started(argv: Sequence[str | bytes], error: Exception) -> CommandFailed:
    name = visible(os.fsdecode(argv[0]))
    if isinstance(error, FileNotFoundError):
        hint = f"; for a shell line, write: -- sh -c {shlex.quote(name)}" if len(argv) == 1 and " " in name else ""
        return CommandFailed(f"there is no command {name!r}{hint}", Exit.NOT_FOUND)
    if isinstance(error, ValueError):  # what Python says of an argument with a NUL in it
        return CommandFailed(
            "its arguments hold a NUL byte, which no command line can; read stdin instead", Exit.NOT_EXECUTABLE
        )
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CommandFailed(f"cannot start {name!r}: {why}", Exit.NOT_EXECUTABLE)


def probe(line: str) -> Callable[[Claim], Any]:
    """A probe that runs a shell line: exit code 0 found (its stdout is the result), 1 not found, any other unknown."""

    def look(claim: Claim) -> Any:
        done = subprocess.run(  # noqa: S603  the user's own line
            ["/bin/sh", "-c", line],
            env=environment(claim),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None,
            check=False,
        )
        if done.returncode == 0:
            return Found(Result(0, done.stdout, b"").to_json())
        return NotFound() if done.returncode == 1 else Unknown()

    return look
