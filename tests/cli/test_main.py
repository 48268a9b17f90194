"""The command as a whole: it starts light, explains itself, and fails in one line."""

from __future__ import annotations

import signal
import subprocess
import sys

import click
import pytest

from durastore.cli import COMMANDS, cli
from durastore.cli.exits import Exit

from .conftest import Shell, eventually

pytestmark = pytest.mark.timeout(60)

HEAVY = ("rich", "sqlalchemy", "boto3", "botocore", "google", "grpc", "sqlite3", "pytest", "asyncio")


def _imported(*args: str) -> set[str]:
    code = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    code += "from durastore.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["once", "--help"], ["map", "--help"]])
def test_it_starts_light(args: list[str]):
    """Help imports no cloud SDK, no Rich, no database driver."""
    assert _imported(*args).isdisjoint(HEAVY)


def test_help_lists_every_command(shell: Shell):
    """The overview names each command, the exit codes and the kinds of store."""
    shown = shell("--help").stdout
    for name in COMMANDS:
        assert f"  {name} " in shown
    assert "Exit codes" in shown
    assert "firestore://" in shown


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("demo", "conformance", "emulators")])
def test_every_command_explains_itself(shell: Shell, name: str):
    """Each command's help says what it does, has --url and --json, and an example that is its own."""
    shown = shell(name, "--help").stdout
    assert ("SRC DST" if name == "copy" else "--url") in shown
    assert "--json" in shown
    assert f"Example:\n    durastore {name} " in shown


def test_examples_parse(shell: Shell):
    """The examples in the help are accepted by the commands' own parsers."""
    import shlex

    for name in ("once", "map", "runs", "show", "claims", "record", "resolve", "forget", "sweep", "init", "doctor"):
        shown = shell(name, "--help").stdout.split("Example:\n", 1)[1].split("\n\n")[0]
        for line in shown.splitlines():
            words = shlex.split(line)
            assert words[:2] == ["durastore", name]
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            assert command.make_context(name, words[2:])


def test_version(shell: Shell):
    """The version is the package's."""
    import durastore

    assert shell("--version").stdout == f"durastore {durastore.__version__}\n"


@pytest.mark.parametrize("args", [["nonsense"], ["runs", "--nonsense"], ["record"], ["runs", "extra"]])
def test_wrong_usage(shell: Shell, args: list[str]):
    """What the command line does not know is exit code 2 with a hint."""
    assert "help" in shell(*args, code=2).stderr


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("nonsense", 2, "it looks like 'sqlite:///agent.db'"),
        ("foo://x", 2, "known: "),
        ("sqlite:///x.db?colour=red", 2, "known: "),
        ("sqlite:///x.db?namespace=", 2, "namespace"),
        ("sqlite:///no/such/folder/x.db", None, "no/such/folder"),
    ],
)
@pytest.mark.parametrize("command", [["runs"], ["once", "k", "--", "true"], ["init"]])
def test_bad_urls(shell: Shell, url: str, code: int | None, words: str, command: list[str]):
    """A bad URL is one line that says what would be right, no traceback."""
    failed = shell(command[0], "--url", url, *command[1:], code=code)
    assert failed.exit_code in (2, 5, 6)
    assert failed.stderr.startswith("durastore: error: ")
    assert len(failed.stderr.splitlines()) == 1
    assert words in failed.stderr


def test_a_store_that_is_down(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    """A store out of reach is exit code 5, and no password is shown."""
    pytest.importorskip("psycopg", reason="the extra postgresql is not installed")
    monkeypatch.setattr("durastore.store.DEADLINE", 0.2)
    failed = shell("runs", "--url", "postgresql://me:secret@127.0.0.1:1/db", code=None)
    assert failed.exit_code == Exit.UNAVAILABLE, failed.stderr
    assert len(failed.stderr.splitlines()) == 1
    assert "secret" not in failed.stdout + failed.stderr


def test_a_file_that_is_no_database(shell: Shell):
    """A damaged file is one line, and is left as it is."""
    shell.file("jobs.db", b"this is no database" * 1000)
    failed = shell("runs", code=None)
    assert failed.exit_code not in (0, None)
    assert failed.stderr.startswith("durastore: error: ")
    assert (shell.folder / "jobs.db").read_bytes() == b"this is no database" * 1000


def test_a_missing_extra(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    """A store or command whose package is missing says what to install."""
    monkeypatch.setitem(sys.modules, "durastore_firestore", None)
    assert "pip install 'durastore[firestore]'" in shell("runs", "--url", "firestore://project", code=2).stderr
    monkeypatch.setitem(sys.modules, "durastore.cli.conformance", None)
    assert "pip install 'durastore[test]'" in shell("conformance", "--help", code=2).stderr


def test_debug(shell: Shell):
    """--debug shows the traceback that is hidden otherwise."""
    assert b"Traceback" in shell.run("runs", "--debug", code=1).stderr
    assert b"Traceback" not in shell.run("runs", code=6).stderr


def test_an_unexpected_error_is_one_line(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    """Even a fault of ours is one line, with the way to its traceback."""
    from durastore.store import Store

    monkeypatch.setattr(Store, "runs", lambda _self: 1 / 0)
    shell("init")
    failed = shell("runs", code=1)
    assert failed.stderr == "durastore: error: unexpected ZeroDivisionError: division by zero (--debug shows where)\n"


def test_ctrl_c(shell: Shell):
    """Ctrl-C anywhere is exit code 130 without a traceback."""
    shell("once", "k", "--in-doubt", "halt", "--", "false", code=1)
    process = shell.start("resolve", "k", "--result", "-", stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    process.stdin.write(b"[" + b"1," * 200_000)  # more than the pipe holds: once it is written, somebody is reading
    eventually(lambda: _interrupted(process), "it ends")
    assert process.returncode == 130
    assert process.stderr is not None
    assert process.stderr.read() == b"durastore: interrupted\n"
    process.stdin.close()


def _interrupted(process: subprocess.Popen[bytes]) -> bool:
    """Press Ctrl-C, as a person does, until it is heard: between two reads, Python hears it only at the next one."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        return False
    return True


def test_exit_codes_are_documented(shell: Shell):
    """Every code that durastore itself returns stands in the help."""
    shown = shell("--help").stdout
    for code in Exit:
        if code < Exit.NOT_EXECUTABLE:
            assert f" {code.value} " in shown
