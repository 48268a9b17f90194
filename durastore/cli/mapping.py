"""``durastore map``: a durable step for each line of a file."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from durastore import keys
from durastore.agent import SaveEvery, run_agent
from durastore.checkpoint import Checkpoint
from durastore.cli.command import Command, CommandFailed
from durastore.cli.exits import Exit, Interrupted, code_of, complain, tell
from durastore.cli.guarding import Guard
from durastore.cli.lines import FileLines, Lines, opened
from durastore.cli.notices import show_notices
from durastore.cli.options import as_json, chosen, example, file_name, on_store, to_work
from durastore.cli.output import check_writable, write_results
from durastore.cli.printing import json_line
from durastore.cli.reporting import Report, report
from durastore.cli.results import Result
from durastore.cli.stopping import Stopper
from durastore.cli.terms import Terms, on_terms
from durastore.errors import ConfigError, DurastoreError, SchemaError, StoreUnavailable
from durastore.terms import Outcome

__all__ = ["map_lines"]


def _save_every(_ctx: click.Context, _param: click.Parameter, value: str) -> SaveEvery:
    if value == "auto":
        return "auto"
    if value.isdecimal() and int(value) >= 1:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a number of lines, 1 or more, nor auto")


@click.command(
    "map",
    epilog=example(
        "durastore map inputs.txt --run r1 -- ./slow.sh {}",
        "durastore map mails.jsonl --concurrency 8 --keep-going --output results.jsonl -- ./send.py",
        legend=True,
    ),
)
@click.argument("input_path", type=file_name, metavar="INPUT")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
@click.option(
    "--run", "run_id", metavar="RUN", help="The run's name. Default: from INPUT's path and CMD; told on stderr."
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Commands at once."
)
@click.option(
    "--output",
    type=file_name,
    metavar="FILE",
    help="Write all results of the run, as JSON lines in input order, at its end.",
)
@click.option(
    "--key",
    "key_by",
    type=click.Choice(["step", "content"]),
    default="step",
    show_default=True,
    help="What names a step: its place (a line that changed is an error), or its content (lines may come, go and move; "
    "equal ones run once).",
)
@click.option("--keep-going", is_flag=True, help="Go on after a line that failed; it is tried again next time.")
@click.option(
    "--save-every",
    callback=_save_every,
    default="1",
    show_default=True,
    metavar="N|auto",
    help="Save progress after so many steps, or as often as pays. Results are stored at once all the same.",
)
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@on_terms
@on_store
@as_json
def map_lines(
    url: str | None,
    input_path: str,
    command: tuple[str, ...],
    run_id: str | None,
    output: str | None,
    key_by: str,
    concurrency: int,
    save_every: SaveEvery,
    *,
    keep_going: bool,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run a command once for each line of INPUT (text or JSON lines, '-' for stdin), and resume where it stopped.

    The line is the command's stdin, and stands for every {} in its arguments. Empty lines are passed over. Started again after a
    crash, the same command finishes only what was left; a line whose command was under way waits for the lease of the
    process that vanished (--lease), or not, with --supersede. What commands write appears when they are done; --output has the
    results of all lines, those of earlier invocations too.

    Commands find DURASTORE_KEY, DURASTORE_TOKEN, DURASTORE_ATTEMPT and DURASTORE_RUN in their environment. Ctrl-C lets commands
    under way finish, a second one stops them (as SIGTERM does at once), a third one kills them. When durastore itself is killed,
    its commands are stopped too.
    """
    terms = Terms.of(**given)
    if output == "-" and as_json:
        raise click.UsageError("--output - and --json would both write to stdout")
    if output is not None:
        if key_by == "content" and input_path == "-":
            raise click.UsageError("--output with --key content needs a file, not a stream")
        check_writable(output)
    began = time.monotonic()
    url = chosen(url)
    with Stopper(patient=True) as stop, opened(input_path) as lines, to_work(url) as store, Guard(url) as guard:
        show_notices()
        ckpt = terms.checkpoint(store, run_id or _default_run(input_path, lines, command))
        job = Job(ckpt, stop, guard, terms, lines, command, key_by=key_by, keep_going=keep_going)
        job.prepare()
        with report(job.total, quiet=quiet) as job.report:
            job.shows_output = output is None and not as_json
            code = job.run(concurrency, save_every)
        if code == Exit.OK or job.through:
            _write_output(output, job)
        _summarize(job, code, time.monotonic() - began, as_json=as_json)
    raise click.exceptions.Exit(code)


def _default_run(path: str, lines: Lines, command: tuple[str, ...]) -> str:
    """A run id that is the same for the same file and command, in whatever folder."""
    if not isinstance(lines, FileLines):
        raise click.UsageError("a stream has no name to resume by: say which run this is with --run")
    real = os.path.realpath(path)
    digest = keys.digest(os.fsencode(real), [os.fsencode(part) for part in command])[:12]
    name = os.fsencode(os.path.basename(real)).decode("utf-8", "replace")  # noqa: PTH119
    run_id = f"map:{name[:40]}:{digest}"
    tell(f"run {run_id}")
    return run_id


@dataclass(slots=True)
class Job:
    """One invocation on one run."""

    ckpt: Checkpoint
    stop: Stopper
    guard: Guard
    terms: Terms
    lines: Lines
    argv: tuple[str, ...]
    key_by: str
    keep_going: bool
    report: Report = field(init=False)
    shows_output: bool = True
    start: int = 0
    """Steps that were done when this invocation began."""
    seen: int = 0
    """Steps that this invocation has come to, and those before."""
    finished: int = 0
    """Steps that were told to be done, here and before."""
    failed: int = 0
    through: bool = False
    """Whether the end of the input was reached, with or without failures."""
    _command: Command = field(init=False)
    _told: Exception | None = None

    @property
    def total(self) -> int | None:
        """How many steps there are; None when a stream will tell."""
        return len(self.lines) if isinstance(self.lines, FileLines) else None

    def prepare(self) -> None:
        """Find out where to go on. Raises `ConfigError` for an input that cannot be this run's."""
        if self.key_by == "content":
            self.ckpt.reset()  # lines may have moved: each is looked up again
        self.start = self.seen = self.finished = self.ckpt.load().step
        if self.total is not None and self.start > self.total:
            raise ConfigError(
                f"run {self.ckpt.run_id!r} has done {self.start} steps, and the input has only {self.total} lines: it is not "
                f"the same input. Use another --run, or `durastore forget --run`"
            )
        self._command = Command(self.ckpt, self.stop, self.guard, self.terms.on_failure, ended=self._show)

    def run(self, concurrency: int, save_every: SaveEvery) -> int:
        """Run all steps; returns the exit code."""
        try:
            run_agent(
                self.lines,
                self.ckpt,
                self._effect,
                key=self.key_of if self.key_by == "content" else None,
                concurrency=concurrency,
                save_every=save_every,
                on_step=self._on_step,
                on_error=self._on_error,
            )
        except Interrupted as exc:
            tell("interrupted")
            return code_of(exc)
        except (CommandFailed, DurastoreError) as exc:
            if exc is not self._told:
                complain(str(exc))
            return code_of(exc)
        self.through = True
        return Exit.FAILED if self.failed else Exit.OK

    def key_of(self, line: bytes) -> str:
        """The key of a line by its content, within the run."""
        return keys.content_key(line, prefix=f"{self.ckpt.run_id}:line:")

    def key_of_step(self, step: int) -> str:
        """The key of a step of the run."""
        if self.key_by == "step":
            return keys.step_key(self.ckpt.run_id, step)
        if not isinstance(self.lines, FileLines):
            raise ConfigError("the lines of a stream are gone by now: --output with --key content needs a file")
        return self.key_of(self.lines[step])

    def _effect(self, line: bytes) -> dict[str, Any]:
        return self._command([os.fsencode(part).replace(b"{}", line) for part in self.argv], line + b"\n")

    def _show(self, result: Result) -> None:
        if self.shows_output:
            self.report.show(result.stdout, result.stderr)

    def _on_step(self, step: int, _outcome: Outcome[Any]) -> None:
        self.finished += 1
        self._came_to(step)
        self.report.moved(self.finished)
        self.stop.check()

    def _on_error(self, step: int, error: Exception) -> bool:
        self._came_to(step)
        self.failed += 1
        number = self.lines.numbers.of(step)
        if isinstance(error, (CommandFailed, DurastoreError)):
            complain(f"line {number}: {error}")
            self._told = error
        self.stop.check()
        return self.keep_going and _is_bearable(error)

    def _came_to(self, step: int) -> None:
        self.stop.settled()
        self.seen = max(self.seen, step + 1)


def _is_bearable(error: Exception) -> bool:
    """Whether it concerns one line, and not all of them."""
    if isinstance(error, (StoreUnavailable, SchemaError, ConfigError)):
        return False
    return isinstance(error, (CommandFailed, DurastoreError))


def _write_output(path: str | None, job: Job) -> None:
    if path is None:
        return
    missing = write_results(path, job.ckpt.store, job.seen, job.key_of_step, job.lines.numbers.of)
    if missing and not job.failed:
        complain(f"{missing} lines have no result any more: they are past --retain, or were forgotten")


def _summarize(job: Job, code: int, seconds: float, *, as_json: bool) -> None:
    stats = job.ckpt.stats
    counts = {name: getattr(stats, name) for name in ("executed", "skipped", "awaited", "recovered")}
    troubles = {name: getattr(stats, name) for name in ("taken_over", "lost", "in_doubt")}
    if as_json:
        json_line(
            {
                "run_id": job.ckpt.run_id,
                "total": job.total if job.total is not None else (job.seen if job.through else None),
                "resumed_at": job.start,
                "processed": _processed(job),
                **counts,
                "failed": job.failed,
                **troubles,
                "finished": code == Exit.OK,
                "seconds": round(seconds, 3),
                "store": {verb: asdict(calls) for verb, calls in sorted(job.ckpt.store.stats.calls.items())},
            }
        )
        return
    of = "" if job.total is None else f" of {job.total}"
    done = job.start + sum(counts.values())
    tell(f"{done}{of} lines done ({job.start} before), {_words(counts)}, {job.failed} failed, {seconds:.1f} s")
    if any(troubles.values()):
        tell(f"of their claims, {_words({name.replace('_', ' '): count for name, count in troubles.items()})}")
    if code != Exit.OK:
        tell("run the same command again to go on")


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _processed(job: Job) -> int | None:
    with suppress(DurastoreError):
        return job.ckpt.load().step
    return None
