"""`resolve`, `forget`, `sweep`, `init` and `doctor`."""

from __future__ import annotations

import json
import os

import pytest

from durastore.cli.exits import Exit

from .conftest import Shell

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def doubtful(shell: Shell) -> Shell:
    """A key in doubt, `k` of run `r`."""
    shell("once", "k", "--run", "r", "--in-doubt", "halt", "--", "false", code=1)
    return shell


def test_resolve_with_a_result(doubtful: Shell):
    """It did happen: whoever asks gets the result that was given."""
    shown = doubtful.json("resolve", "k", "--result", '{"exit_code": 4, "stdout": "by hand\\n"}')
    assert (shown["state"], shown["result"]["exit_code"]) == ("committed", 4)
    assert doubtful("once", "k", "--", "true", code=4).stdout == "by hand\n"


def test_resolve_reads_stdin(doubtful: Shell):
    """A result may come from stdin."""
    doubtful("resolve", "k", "--result", "-", stdin=b"[1, 2]")
    assert doubtful.json("record", "k")["result"] == [1, 2]


def test_resolve_for_a_retry(doubtful: Shell):
    """It did not happen: the next caller runs it."""
    assert "free for another attempt" in doubtful("resolve", "k", "--retry").stderr
    assert doubtful("once", "k", "--in-doubt", "halt", "--", "echo", "ran").stdout == "ran\n"


@pytest.mark.parametrize("value", ["", "{", "{'a': 1}", "done", '"\\ud800', "[" * 100_000])
def test_a_result_that_is_not_json(doubtful: Shell, value: str):
    """Bad JSON is a usage error, and settles nothing."""
    assert "not JSON" in doubtful("resolve", "k", "--result", value, code=2).stderr
    assert doubtful.json("record", "k")["state"] == "in_doubt"


@pytest.mark.parametrize("options", [[], ["--retry", "--result", "1"]])
def test_resolve_needs_one_of_two(doubtful: Shell, options: list[str]):
    """Both answers at once, or none, are a usage error."""
    doubtful("resolve", "k", *options, code=2)


def test_resolve_refuses_what_is_not_in_doubt(shell: Shell):
    """A committed or live key is refused, unless forced; an unknown one is a usage error."""
    shell("once", "k", "--", "true")
    assert "not in doubt" in shell("resolve", "k", "--retry", code=3).stderr
    shell("resolve", "k", "--retry", "--force")
    assert shell.json("record", "k")["state"] == "abandoned"
    assert "no key 'x'" in shell("resolve", "x", "--retry", code=2).stderr


def test_forget_a_key(doubtful: Shell):
    """A forgotten key counts as never seen; one that is not there is exit code 1."""
    assert doubtful.json("forget", "k") == {"forgotten": 1}
    doubtful("record", "k", code=1)
    assert "there is no key 'k'" in doubtful("forget", "k", code=1).stderr


def test_forget_a_live_key(shell: Shell):
    """A live claim is refused unless forced."""
    with shell.store() as store, store.checkpoint("r").claim("k") as claim:
        assert claim.live
        assert "who is alive" in shell("forget", "k", code=3).stderr
        assert "who is alive" in shell("forget", "--run", "r", code=3).stderr
        shell("forget", "k", "--force")
    shell("record", "k", code=1)


def test_forget_a_run(shell: Shell):
    """A run goes with all its keys, and nothing else."""
    shell("map", shell.file("in", "1\n2\n"), "--run", "r", "--", "true")
    shell("once", "other", "--", "true")
    assert shell.json("forget", "--run", "r") == {"forgotten": 2}
    assert shell.rows("runs") == []
    assert [row["key"] for row in shell.rows("claims", "--state", "all")] == ["other"]


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0), (b"\x04", 130)])
def test_forget_a_run_asks_on_a_terminal(shell: Shell, answer: bytes, code: int):
    """On a terminal it asks first, and takes no for an answer."""
    import pty

    with shell.store() as store:
        store.checkpoint("r").save_progress(1, {})
    ours, theirs = pty.openpty()
    process = shell.start("forget", "--run", "r", stdin=theirs)
    os.close(theirs)
    os.write(ours, answer)
    assert process.wait(20) == code
    os.close(ours)
    assert len(shell.rows("runs")) == (0 if code == 0 else 1)


@pytest.mark.parametrize("args", [[], ["k", "--run", "r"]])
def test_forget_needs_one_of_two(shell: Shell, args: list[str]):
    """A key or a run, not both and not none."""
    shell("forget", *args, code=2)


def test_sweep(shell: Shell):
    """What is past its retention goes, what is kept stays."""
    shell("once", "old", "--retain", "0", "--", "true")
    shell("once", "kept", "--", "true")
    assert shell.json("sweep") == {"records": 1, "chunks": 0}
    assert "removed 0 records" in shell("sweep").stderr


def test_init(shell: Shell):
    """A store is set up, as often as one likes, by many at once."""
    started = [shell.start("init", "--json") for _ in range(4)]
    answers = [json.loads(process.communicate(timeout=30)[0]) for process in started]
    assert [answer["ready"] for answer in answers] == [True] * 4
    assert "is ready" in shell("init").stderr
    shell("runs")


@pytest.mark.parametrize("command", [["resolve", "k", "--retry"], ["forget", "k"], ["forget", "--run", "r"], ["sweep"]])
def test_repairing_creates_nothing(shell: Shell, command: list[str]):
    """A store that is not there cannot be repaired, and does not come to be by trying."""
    assert "no such file" in shell(*command, code=6).stderr
    assert list(shell.folder.iterdir()) == []


def test_doctor_finds_all_well(shell: Shell):
    """A sound store: every finding is well, exit code 0."""
    shell("init")
    shown = shell.json("doctor")
    assert shown["ok"] is True
    assert {"reach", "clock", "schema"} <= {finding["name"] for finding in shown["findings"]}
    assert "FAIL" not in shell("doctor").stdout


def test_doctor_says_what_to_do(shell: Shell):
    """What is not well comes with advice, exit code 1."""
    failed = shell("doctor", code=1)
    assert "FAIL" in failed.stdout
    assert "->" in failed.stdout
    shell.file("jobs.db", b"this is no database" * 1000)
    shown = shell.json("doctor", code=1)
    assert shown["ok"] is False
    assert any(not finding["ok"] and finding["advice"] for finding in shown["findings"])


@pytest.mark.parametrize("url", ["nonsense", "foo://x", "sqlite:///x.db?colour=red", "sqlite:///x.db?namespace=a%20b"])
def test_doctor_on_a_bad_url(shell: Shell, url: str):
    """A URL that cannot be opened is a finding too."""
    shown = shell.json("doctor", "--url", url, code=1)
    assert [finding["name"] for finding in shown["findings"]] == ["open"]


@pytest.mark.parametrize("command", [["init"], ["once", "k", "--", "true"]])
def test_no_right_to_write(shell: Shell, command: list[str]):
    """A folder that takes no file is one clear line, even for root."""
    failed = shell(command[0], "--url", "sqlite:////proc/durastore.db", *command[1:], code=None)
    assert failed.exit_code in (Exit.USAGE, Exit.UNAVAILABLE, Exit.SCHEMA)
    assert failed.stderr.startswith("durastore: error: /proc/durastore.db")
    assert len(failed.stderr.splitlines()) == 1
