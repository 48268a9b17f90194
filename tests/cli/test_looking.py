"""`runs`, `show`, `claims` and `record`: they show what is there, safely, and change nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from .conftest import Shell

pytestmark = pytest.mark.timeout(60)

HOSTILE = "k\x1b[31m\n\t\u202e\x07\u2028é [red] \\"
LOOKS = [["runs"], ["show", "r"], ["claims"], ["claims", "--state", "all"], ["record", "done"], ["doctor"]]


@pytest.fixture
def filled(shell: Shell) -> Shell:
    """A run with a key in each state."""
    with shell.store() as store:
        ckpt = store.checkpoint("r", in_doubt="halt")
        ckpt.run_once("done", lambda: {"n": 2**70, "x": 0.1, "s": "\0é\ud83d"})
        for policy, key in (("rerun", "back"), ("halt", "doubt")):
            with pytest.raises(ZeroDivisionError):
                ckpt.run_once(key, lambda: 1 / 0, in_doubt=policy)
        ckpt.save_progress(7, {"processed": 7})
        with ckpt.claim("live", lease=3600) as claim:
            assert claim.live
            claim.finished = True  # left as a killed process leaves it
    return shell


def test_runs(filled: Shell):
    """Each run, its step, and when it moved."""
    (row,) = filled.rows("runs")
    assert (row["run_id"], row["step"], row["incarnation"]) == ("r", 7, None)
    assert row["updated_at"].endswith("Z")
    assert filled("runs").stdout.splitlines()[1].split("\t")[:2] == ["r", "7"]


def test_claims(filled: Shell):
    """Live claims and those in doubt by default; any state on demand, filtered by run and prefix."""
    assert {row["key"]: row["state"] for row in filled.rows("claims")} == {"live": "claimed", "doubt": "in_doubt"}
    (row,) = filled.rows("claims", "--in-doubt")
    assert (row["key"], row["error"], row["attempt"]) == ("doubt", "ZeroDivisionError: division by zero", 1)
    assert len(filled.rows("claims", "--state", "all")) == 4
    assert {row["key"] for row in filled.rows("claims", "--state", "committed", "--state", "abandoned")} == {
        "done",
        "back",
    }
    assert filled.rows("claims", "--run", "other") == []
    assert [row["key"] for row in filled.rows("claims", "--prefix", "l")] == ["live"]
    assert 3500 < filled.rows("claims", "--prefix", "l")[0]["lease_left"] <= 3600
    filled("claims", "--in-doubt", "--state", "all", code=2)


def test_show(filled: Shell):
    """A run's progress and state, its keys by state, and those that are not done."""
    shown = filled.json("show", "r")
    assert (shown["step"], shown["state"]) == (7, {"processed": 7})
    assert shown["keys"] == {"claimed": 1, "in_doubt": 1, "abandoned": 1, "committed": 1}
    assert {row["key"] for row in shown["unfinished"]} == {"live", "doubt", "back"}
    assert "1 in doubt" in filled("show", "r").stdout
    assert "there is no run 'x'" in filled("show", "x", code=1).stderr


def test_record(filled: Shell):
    """One key; its result is exact in JSON."""
    assert filled.json("record", "done")["result"] == {"n": 2**70, "x": 0.1, "s": "\0é\ud83d"}
    assert "result" not in filled.json("record", "doubt")
    assert "in_doubt" in filled("record", "doubt").stdout
    assert "there is no key 'x'" in filled("record", "x", code=1).stderr


def test_hostile_names(shell: Shell):
    """Keys, runs and errors with terminal escapes and newlines are shown escaped, one line each, and exact in JSON."""
    with shell.store() as store:
        ckpt = store.checkpoint(HOSTILE, in_doubt="halt")
        with pytest.raises(RuntimeError):
            ckpt.run_once(HOSTILE, lambda: _raise(HOSTILE))
        ckpt.save_progress(1, {HOSTILE: HOSTILE})
    (row,) = shell.rows("claims")
    assert (row["key"], row["run_id"], row["error"]) == (HOSTILE, HOSTILE, f"RuntimeError: {HOSTILE}")
    assert shell.json("record", HOSTILE)["key"] == HOSTILE
    assert shell.json("show", HOSTILE)["state"] == {HOSTILE: HOSTILE}
    for command in (
        ["runs"],
        ["claims"],
        ["show", HOSTILE],
        ["record", HOSTILE],
        ["show", HOSTILE + "x"],
        ["once", HOSTILE, "--in-doubt", "halt", "--", "true"],
    ):
        done = shell(*command, code=None)
        shown = done.stdout + done.stderr
        assert shown
        assert all(character.isprintable() or character in "\n\t" for character in shown), command
        assert "\u202e" not in shown
    assert len(shell("runs").stdout.splitlines()) == 2
    assert len(shell("claims").stdout.splitlines()) == 2


def _raise(text: str) -> None:
    raise RuntimeError(text)


def test_a_table_on_a_terminal(filled: Shell):
    """On a terminal a listing is a table, and names that look like markup are not."""
    import pty

    with filled.store() as store:
        store.checkpoint("[red]odd\x1b[31m").save_progress(1, {})
    ours, theirs = pty.openpty()
    process = filled.start("runs", stdout=theirs, env={**filled.env, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    assert process.wait(20) == 0
    assert b"[red]odd\\x1b[31m" in shown
    assert "│".encode() in shown


@pytest.mark.parametrize("command", LOOKS)
def test_looking_creates_nothing(shell: Shell, command: list[str]):
    """Looking at a file that is not there is an error, and leaves no file, whatever the URL says."""
    for url in (shell.url, f"{shell.url}?create=true"):
        failed = shell(*command, "--url", url, code=None)
        assert failed.exit_code in (1, 6)
        assert "no such file" in failed.stdout + failed.stderr
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize("command", LOOKS)
def test_looking_changes_nothing(filled: Shell, command: list[str]):
    """No listing takes over, recovers or migrates: every record and run is the same afterwards, to the last column."""
    before = _contents(filled)
    for form in ([], ["--json"]):
        filled(*command, *form)
    assert _contents(filled) == before


def _contents(shell: Shell) -> str:
    import sqlite3

    with sqlite3.connect(shell.folder / "jobs.db") as connection:
        dump = "\n".join(connection.iterdump())
    connection.close()
    return hashlib.sha256(dump.encode("utf-8", "surrogatepass")).hexdigest()


def test_a_listing_into_head(shell: Shell):
    """A listing whose reader has seen enough ends without a word."""
    with shell.store() as store:
        for number in range(3000):
            store.checkpoint(f"run-{number:05}-{'x' * 80}").save_progress(1, {})
    for options in ([], ["--json"]):
        process = shell.start("runs", *options)
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(20) == 141


def test_an_encoding_that_cannot_say_it(filled: Shell):
    """A terminal that cannot show a character gets an escape, not a traceback."""
    with filled.store() as store:
        store.checkpoint("日ü").save_progress(1, {})
    done = filled.run("runs", env={**filled.env, "PYTHONIOENCODING": "latin-1"})
    assert b"\\u65e5\xfc\t1" in done.stdout


def test_a_result_that_is_damaged(filled: Shell):
    """A result that cannot be read is said to be so; the rest of the record is shown."""
    import sqlite3

    with sqlite3.connect(filled.folder / "jobs.db") as connection:
        (table,) = next(
            iter(
                connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%nonce%' LIMIT 1")
            )
        )
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = next(name for name in columns if name in ("result", "data"))
        connection.execute(f"UPDATE {table} SET {column} = x'00ff' WHERE {column} IS NOT NULL")
    connection.close()
    assert "damaged" in filled.json("record", "done")["result_error"]
    assert "damaged" in filled("record", "done").stdout
    assert "damaged" in filled("once", "done", "--", "true", code=9).stderr


def test_listings_use_constant_memory(shell: Shell):
    """A listing of many keys is written as it is read."""
    body = "import sys, resource; from durastore.cli import main; sys.argv[1:] = sys.argv[1:]\n"
    body += "import atexit; atexit.register(lambda: sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)))\n"
    body += "main()"
    peaks = []
    with shell.store() as store:
        for count in (100, 4000):
            ckpt = store.checkpoint(f"r{count}")
            for number in range(count):
                ckpt.run_once(f"{count}:{number}", lambda: "x" * 2000)
            done = subprocess.run(
                [sys.executable, "-c", body, "claims", "--state", "all", "--run", f"r{count}", "--json"],
                capture_output=True,
                env=shell.env,
                check=True,
            )
            assert len(done.stdout.splitlines()) == count
            peaks.append(int(done.stderr))
    assert peaks[1] - peaks[0] < 6000, peaks
