"""`copy`, `export` and `import`, as people and programs use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import durastore
from durastore.cli.exits import Exit
from durastore.cli.moving import _name
from durastore.moving import Tally

from .conftest import Shell, eventually

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def moved(shell: Shell) -> Shell:
    """A store with two keys done, one in doubt, and a run."""
    shell("once", "k", "--run", "r", "--", "echo", "done")
    shell("once", "d", "--run", "r", "--in-doubt", "halt", "--", "false", code=1)
    with shell.store() as store:
        store.checkpoint("r").run_once("big", lambda: os.urandom(200_000).hex(), progress=(2, {"n": 2}))
    return shell


def test_copy(moved: Shell):
    """The counts say what arrived, and a run goes on there."""
    shown = json.loads(moved("copy", "--json", "--verify", moved.url, "sqlite:///there.db").stdout)
    assert (shown["keys"], shown["runs"], shown["placed"], shown["same"]) == (3, 1, 4, 0)
    assert shown["verified"] is True
    assert moved("once", "k", "--url", "sqlite:///there.db", "--", "false").stdout == "done\n"
    assert moved.json("show", "r", "--url", "sqlite:///there.db")["step"] == 2


def test_copy_for_people(moved: Shell):
    """Without --json the same as lines."""
    out = moved("copy", "--verify", moved.url, "sqlite:///there.db").stdout
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert (lines["keys"].strip(), lines["new"].strip(), lines["verified"].strip()) == ("3", "4", "true")


def test_copy_again(moved: Shell):
    """A second copy changes nothing, and says so."""
    first = moved("copy", "--json", moved.url, "sqlite:///there.db")
    again = json.loads(moved("copy", "--json", moved.url, "sqlite:///there.db").stdout)
    assert (again["placed"], again["same"], again["resumed"]) == (0, 4, False)
    assert again["digest"] == json.loads(first.stdout)["digest"]


def test_dry_run(moved: Shell):
    """A dry run counts, and makes no file."""
    shown = json.loads(moved("copy", "--dry-run", "--json", moved.url, "sqlite:///there.db").stdout)
    assert (shown["placed"], shown["dry_run"]) == (4, True)
    assert "would be new" in moved("copy", "--dry-run", moved.url, "sqlite:///there.db").stdout
    assert not Path("there.db").exists()


def test_conflicts(moved: Shell):
    """What is there otherwise is named on a line each, all else arrives, and the exit code is 1."""
    moved("once", "k", "--run", "another", "--url", "sqlite:///there.db", "--", "echo", "mine")
    result = moved("copy", "--verify", moved.url, "sqlite:///there.db", code=Exit.FAILED)
    assert result.stderr.count("key 'k'") == 1
    assert "forget the key there first" in result.stderr
    assert moved("once", "k", "--url", "sqlite:///there.db", "--", "false").stdout == "mine\n"
    assert moved.json("record", "d", "--url", "sqlite:///there.db")["state"] == "in_doubt"


def test_many_conflicts(shell: Shell):
    """Twenty are named, the others counted."""
    for url in (shell.url, "sqlite:///there.db"):
        with durastore.open(url) as store:
            for number in range(30):
                store.checkpoint("r").run_once(f"key-{number}", lambda: 1)
    result = shell("copy", "--json", shell.url, "sqlite:///there.db", code=Exit.FAILED)
    assert json.loads(result.stdout)["conflicts"] == 30
    assert len(result.stderr.splitlines()) == 21


def test_live_claims(moved: Shell):
    """A claim that is alive is a refusal with the code for one that is held; --wait waits for it."""
    with moved.store() as store, store.checkpoint("r").claim("alive") as claim:
        result = moved("copy", moved.url, "sqlite:///there.db", code=Exit.HELD)
        assert "'alive'" in result.stderr
        waiting = moved.start("copy", "--wait", "30s", "--json", moved.url, "sqlite:///there.db")
        eventually(lambda: Path("there.db").exists(), "the copy began")
        claim.commit("in time")
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, json.loads(out)["placed"]) == (0, 5), err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["sqlite:///jobs.db", "sqlite:///jobs.db"], "the same store"),
        (["sqlite:///jobs.db", "nosuch://x"], "unknown store scheme"),
        (["jobs.db", "sqlite:///there.db"], "not a store URL"),
        (["sqlite:///jobs.db"], "Missing argument"),
        (["--wait", "soon", "sqlite:///jobs.db", "sqlite:///there.db"], "no duration"),
    ],
)
def test_wrong_usage(moved: Shell, args: list[str], says: str):
    """Wrong arguments are a usage error with one clear line."""
    assert says in moved("copy", *args, code=Exit.USAGE).stderr


def test_a_source_that_is_not_there(shell: Shell):
    """A source that is missing is not made, and neither is the destination's journal left behind."""
    result = shell("copy", "sqlite:///nothing.db", "sqlite:///there.db", code=Exit.SCHEMA)
    assert "nothing.db" in result.stderr
    assert not Path("nothing.db").exists()


def test_a_destination_out_of_reach(moved: Shell, monkeypatch: pytest.MonkeyPatch):
    """A destination that cannot be reached has the code for that, and its password is not shown."""
    monkeypatch.setattr("durastore.store.DEADLINE", 0.1)
    result = moved("copy", moved.url, "postgresql://u:secret@127.0.0.1:1/db", code=None)
    assert result.exit_code == Exit.UNAVAILABLE
    assert "secret" not in result.stderr


def test_killed_and_resumed(shell: Shell):
    """A copy that is killed with SIGKILL goes on where it was, at once, and compares everything at its end."""
    with shell.store() as store:
        for number in range(1100):
            store.checkpoint("r").run_once(f"key-{number:04}", lambda: "x" * 200)
    slow = shell.file(
        "slow.py",
        "import signal, os\n"
        "from durastore.moving import arriving\n"
        "take = arriving.Arrivals.take\n"
        "def dying(self, things):\n"
        "    done = take(self, things)\n"
        "    if things[0].thing.name == \"key 'key-0500'\": os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return done\n"
        "arriving.Arrivals.take = dying\n"
        "from durastore.cli import main\n"
        "main()\n",
    )
    args = ["copy", "--json", shell.url, "sqlite:///there.db"]
    killed = subprocess.run(
        [sys.executable, slow, *args], cwd=shell.folder, env=shell.env, capture_output=True, timeout=30, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert shell("claims", "--state", "all", "--url", "sqlite:///there.db").stdout.count("key-") == 1000
    shown = json.loads(shell.run(*args).stdout)
    assert (shown["resumed"], shown["verified"], shown["keys"]) == (True, True, 1100)
    assert (shown["placed"], shown["same"]) == (600, 500), "the page that was under way was placed, and is the same now"


def test_restart(moved: Shell):
    """A copy that goes on although the destination was emptied finds out what is missing; --restart begins anew."""
    moved.run("copy", moved.url, "sqlite:///there.db")
    moved("forget", "k", "--url", "sqlite:///there.db")
    with durastore.open("sqlite:///there.db?namespace=durastore-moving") as journal:
        state = {"id": "earlier", "next": ["runs", None], "tally": Tally().as_json()}
        journal.checkpoint(_name(moved.url, "sqlite:///there.db")).save_progress(1, state)
    result = moved("copy", moved.url, "sqlite:///there.db", code=Exit.FAILED)
    assert "key 'k': the destination does not have it" in result.stderr
    assert "--restart" in result.stderr
    shown = json.loads(moved("copy", "--restart", "--json", moved.url, "sqlite:///there.db").stdout)
    assert (shown["placed"], shown["same"], shown["resumed"]) == (1, 3, False)


def test_interrupted(moved: Shell):
    """Ctrl-C while it waits for a claim ends with one line and 130, and leaves no claim of its own behind."""
    with moved.store() as store, store.checkpoint("r").claim("alive") as claim:
        waiting = moved.start("copy", "--wait", "1h", moved.url, "sqlite:///there.db")
        eventually(lambda: Path("there.db").exists(), "the copy began")
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=30)
        claim.commit(1)
    assert (waiting.returncode, err) == (Exit.INTERRUPTED, b"durastore: interrupted\n")


def test_export_and_import(moved: Shell):
    """An export to a file and an import from it carry everything; the lines are by the schema that is printed."""
    moved("export", "-o", "jobs.ndjson")
    schema = json.loads(moved("export", "--schema").stdout)
    lines = [json.loads(line) for line in Path("jobs.ndjson").read_text().splitlines()]
    for line in lines:
        jsonschema.validate(line, schema)
    shown = moved.json("import", "--url", "sqlite:///there.db", "jobs.ndjson")
    assert (shown["placed"], shown["digest"]) == (4, lines[-1]["digest"])
    assert moved("once", "k", "--url", "sqlite:///there.db", "--", "false").stdout == "done\n"


def test_through_a_pipe(moved: Shell):
    """Exports go to stdout, and imports come from stdin."""
    exported = moved("export", "--json")
    assert json.loads(exported.stderr)["placed"] == 4
    shown = moved.json("import", "--url", "sqlite:///there.db", "-", stdin=exported.stdout.encode())
    assert shown["placed"] == 4
    dry = moved.json("import", "--dry-run", "--url", "sqlite:///there.db", "-", stdin=exported.stdout.encode())
    assert (dry["placed"], dry["same"]) == (0, 4)


def test_an_export_that_is_cut_short(moved: Shell):
    """A file is checked as a whole first: nothing is placed from one that is not, and the line is named."""
    whole = moved("export").stdout.splitlines(keepends=True)
    moved.file("cut.ndjson", "".join(whole[:-1]))
    result = moved("import", "--url", "sqlite:///there.db", "cut.ndjson", code=Exit.USAGE)
    assert f"line {len(whole)} of the export" in result.stderr
    assert moved("claims", "--state", "all", "--url", "sqlite:///there.db").stdout == ""
    moved("import", "--url", "sqlite:///there.db", "nothing.ndjson", code=Exit.FAILED)


def test_an_export_that_fails(moved: Shell):
    """A file appears whole or not at all; one that was there stays."""
    moved.file("jobs.ndjson", "as before")
    with moved.store() as store, store.checkpoint("r").claim("alive") as claim:
        moved("export", "-o", "jobs.ndjson", code=Exit.HELD)
        claim.commit(1)
    assert moved.lines("jobs.ndjson") == ["as before"]
    moved("export", "-o", "no/such/folder/jobs.ndjson", code=Exit.USAGE)
