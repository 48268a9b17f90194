"""The command line. Light: a subcommand's module, and what it needs, is imported when that subcommand is used."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any, NamedTuple, NoReturn

import click
from click.exceptions import Exit as ClickExit

from durastore.cli.exits import LEGEND, Exit, Interrupted, code_of, complain, tell
from durastore.errors import ConfigError, DurastoreError

__all__ = ["cli", "main"]


class Lazy(NamedTuple):
    """Where a subcommand is, and what the list of commands says about it."""

    module: str
    name: str
    brief: str
    extra: str = ""


COMMANDS = {
    "once": Lazy("once", "once", "Run a command once for a key, whoever asks, wherever."),
    "map": Lazy("mapping", "map_lines", "Run a command once for each line of a file, and resume after a crash."),
    "runs": Lazy("looking", "runs", "List the runs and how far they are."),
    "show": Lazy("looking", "show", "Show one run: progress, state, and its keys by state."),
    "claims": Lazy("looking", "claims", "List keys that are claimed or in doubt."),
    "record": Lazy("looking", "record", "Show one key and its result."),
    "resolve": Lazy("repairing", "resolve", "Settle a key in doubt: it did happen, or try again."),
    "forget": Lazy("repairing", "forget", "Remove a key or a run."),
    "sweep": Lazy("repairing", "sweep", "Remove what is past its retention."),
    "init": Lazy("repairing", "init", "Create or migrate what a store needs."),
    "copy": Lazy(
        "moving", "copy_store", "Copy runs, keys and results from one store to another, and resume after a crash."
    ),
    "export": Lazy("moving", "export_store", "Write a store's contents as JSON lines."),
    "import": Lazy("moving", "import_store", "Put what was exported into a store."),
    "doctor": Lazy("doctor", "doctor", "Check a store, and say what to do about each finding."),
    "demo": Lazy("demo", "demo", "The proof: workers killed in mid-step, nothing lost, nothing repeated."),
    "bench": Lazy("bench", "bench", "Measure what a step costs, in writes of the raw driver."),
    "conformance": Lazy("conformance", "conformance", "Hold a store to the contract, clause by clause.", "test"),
    "emulators": Lazy("emulators", "emulators", "Start and stop stores to test against.", "dev"),
}


class LazyGroup(click.Group):
    """Subcommands that are imported when used, and errors that end as one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        lazy = COMMANDS.get(cmd_name)
        return None if lazy is None else _load(cmd_name, lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.brief) for name, lazy in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except (ClickExit, click.ClickException):
            raise
        except click.Abort:  # Ctrl-C, or the end of the input, at a question
            _fail(KeyboardInterrupt())
        except BrokenPipeError:
            _hush_stdout()
            raise ClickExit(Exit.PIPE) from None
        except BaseException as exc:
            if ctx.meta.get("durastore.debug") or not isinstance(exc, (Exception, KeyboardInterrupt, Interrupted)):
                raise
            _fail(exc)


def _load(name: str, lazy: Lazy) -> click.Command:
    from importlib import import_module

    try:
        command: click.Command = getattr(import_module(f"durastore.cli.{lazy.module}"), lazy.name)
    except ImportError as exc:
        remedy = f"; run: pip install 'durastore[{lazy.extra}]'" if lazy.extra else ""
        raise ConfigError(f"`durastore {name}` needs a module that is not installed ({exc}){remedy}") from exc
    return command


def _fail(error: BaseException) -> NoReturn:
    if isinstance(error, (KeyboardInterrupt, Interrupted)):
        tell("interrupted")
    elif isinstance(error, DurastoreError):
        complain(str(error))
    elif isinstance(error, OSError) and error.strerror:
        complain(f"{error.strerror}: {error.filename}" if error.filename else error.strerror)
    else:
        complain(f"unexpected {type(error).__name__}: {error} (--debug shows where)")
    raise ClickExit(code_of(error)) from None


def _hush_stdout() -> None:
    """Let the interpreter flush into nothing at its end, instead of complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        import durastore

        click.echo(f"durastore {durastore.__version__}")
        ctx.exit()


EPILOG = f"""\b
The store is a URL, by --url or $DURASTORE_URL:
  sqlite:///jobs.db   postgresql://user@host/db   mysql://user@host/db
  cloudsql+postgresql://USER@PROJECT:REGION:INSTANCE/DB
  firestore://PROJECT/DATABASE   dynamodb://TABLE?region=eu-central-1

\b
Example:
  durastore map inputs.txt --run r1 -- ./slow.sh {{}}

{LEGEND}"""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """Keeps long-running jobs alive: progress and results live in a store outside, and nothing that is done is repeated."""


def main() -> None:
    """The entry point of the ``durastore`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that can't show a character gets its escape
    cli(prog_name="durastore")
