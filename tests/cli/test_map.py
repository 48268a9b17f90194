"""`durastore map`: one durable step for each line, resumed, in input order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import Shell, eventually

pytestmark = pytest.mark.timeout(60)
NOTE = 'echo "$1" >> log; cat > /dev/null; echo "did $1"'


@pytest.fixture
def step(shell: Shell) -> Path:
    """A script that notes its line, and echoes it."""
    return shell.script("step.sh", NOTE)


def documents(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_line_once(shell: Shell, step: Path):
    """Each line is a step, told by {} and stdin; a second call finds all of it done."""
    source = shell.file("in.txt", "a\nb b\nc\n")
    first = shell("map", source, "--run", "r", "--", "sh", "-c", 'echo "$1 and $(cat)" | tee -a log', "sh", "<{}>")
    assert first.stdout.splitlines() == ["<a> and a", "<b b> and b b", "<c> and c"]
    assert "3 of 3 lines done (0 before), 3 executed" in first.stderr
    again = shell("map", source, "--run", "r", "--", step, "{}")
    assert "3 of 3 lines done (3 before), 0 executed" in again.stderr
    assert shell.lines("log") == first.stdout.splitlines()


@pytest.mark.parametrize("concurrency", [1, 3])
def test_resumes_after_sigkill(shell: Shell, concurrency: int):
    """Killed with SIGKILL half way and started again, it finishes only what was left, and the output holds everything."""
    slow = shell.script("slow.sh", 'echo "begin $1" >> log; sleep 0.2; echo "end $1" >> log; echo "did $1"')
    source = shell.file("inputs.txt", "".join(f"{number}\n" for number in range(12)))
    command = [
        "map",
        source,
        "--lease",
        "5",
        "--run",
        "r1",
        "--concurrency",
        str(concurrency),
        "--output",
        "out.jsonl",
        "--",
        slow,
        "{}",
    ]
    process = shell.start(*command)
    eventually(lambda: sum(line.startswith("end") for line in shell.lines("log")) >= 4, "four lines are done")
    process.send_signal(signal.SIGKILL)
    process.wait()
    with shell.store() as store:
        committed = {record.key for record in store.records(run_id="r1", state="committed")}
    assert 3 <= len(committed) < 12
    assert not (shell.folder / "out.jsonl").exists()
    begun = len(shell.lines("log"))
    shell.run(*command)
    rerun = {line.split()[1] for line in shell.lines("log")[begun:] if line.startswith("begin")}
    assert rerun.isdisjoint(key.rsplit(":", 1)[1] for key in committed)
    assert {line for line in shell.lines("log") if line.startswith("end")} == {f"end {number}" for number in range(12)}
    found = documents(shell.folder / "out.jsonl")
    assert [(row["line"], row["stdout"]) for row in found] == [(number + 1, f"did {number}\n") for number in range(12)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n\r\n\n", []),
        (b"a", [(1, b"a")]),
        (b"a\r\n\r\n\nb\nc", [(1, b"a"), (4, b"b"), (5, b"c")]),
        (b" \n\ta\t\n", [(1, b" "), (2, b"\ta\t")]),
        (b"\xff\xfe\n\0\n", [(1, b"\xff\xfe"), (2, b"\0")]),
        (b"a\rb\n\n\nlast\r", [(1, b"a\rb"), (4, b"last")]),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_lines(shell: Shell, data: bytes, lines: list[tuple[int, bytes]], stream: bool):
    """Line ends of both kinds, empty lines, no end at all, NUL and invalid UTF-8: the same from a file and from a stream."""
    source = shell.file("in", data)
    name, stdin = ("-", source.open("rb")) if stream else (source, subprocess.DEVNULL)
    done = shell.run(
        "map", name, "--run", "r", "--output", "-", "--", "sh", "-c", "tr -d '\\n' | od -An -v -tx1", stdin=stdin
    )
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["line"], bytes.fromhex(row["stdout"])) for row in shown] == lines


def test_a_nul_in_an_argument(shell: Shell):
    """A line that no argument can hold fails by itself, with a reason."""
    source = shell.file("in", b"a\0b\nc\n")
    failed = shell("map", source, "--run", "r", "--keep-going", "--", "echo", "{}", code=1)
    assert "line 1: its arguments hold a NUL byte" in failed.stderr
    assert failed.stdout == "c\n"


def test_long_lines(shell: Shell):
    """A line longer than any pipe's buffer arrives whole on stdin, and a command that does not read it is no error."""
    line = "x" * 3_000_000
    source = shell.file("in", f"{line}\nshort\n")
    assert shell.json("map", source, "--run", "a", "--output", "o", "--", "wc", "-c")["executed"] == 2
    assert [row["stdout"].strip() for row in documents(shell.folder / "o")] == ["3000001", "6"]
    assert shell.json("map", source, "--run", "b", "--", "true")["executed"] == 2
    assert "line 1: cannot start 'echo'" in shell("map", source, "--run", "c", "--", "echo", "{}", code=1).stderr


def test_a_failure_stops_the_run(shell: Shell):
    """The first failure stops the run; mended, the same command goes on at that line."""
    source = shell.file("in", "1\n2\n3\n")
    command = [
        "map",
        source,
        "--run",
        "r",
        "--",
        "sh",
        "-c",
        'echo "$1" >> log; test "$1" != 2 || test -e mended',
        "sh",
        "{}",
    ]
    failed = shell(*command, code=1)
    assert "line 2: exit code 1" in failed.stderr
    assert "1 of 3 lines done" in failed.stderr
    shell.file("mended", "")
    shell(*command)
    assert shell.lines("log") == ["1", "2", "2", "3"]


@pytest.mark.parametrize("concurrency", ["1", "4"])
def test_keep_going(shell: Shell, concurrency: str):
    """Failures are noted and the run goes on; progress stays before the first, and the next call runs the failed ones alone."""
    source = shell.file("in", "".join(f"{number}\n" for number in range(10)))
    body = 'echo "$1" >> log; case $1 in 3|7) echo "no $1" >&2; test -e mended;; esac'
    options = ["--run", "r", "--keep-going", "--concurrency", concurrency, "--output", "o", "--json"]
    command = ["map", source, *options, "--", "sh", "-c", body, "sh", "{}"]
    failed = shell(*command, code=1)
    assert "line 4: exit code 1: no 3" in failed.stderr
    assert "line 8: exit code 1: no 7" in failed.stderr
    summary = json.loads(failed.stdout)
    assert (summary["executed"], summary["failed"], summary["processed"], summary["finished"]) == (8, 2, 3, False)
    states = [row.get("state", "done") for row in documents(shell.folder / "o")]
    assert states == ["done"] * 3 + ["abandoned"] + ["done"] * 3 + ["abandoned"] + ["done"] * 2
    shell.file("mended", "")
    summary = json.loads(shell(*command).stdout)
    assert (summary["executed"], summary["skipped"], summary["failed"], summary["processed"]) == (2, 5, 0, 10)
    assert sorted(shell.lines("log")) == sorted([*map(str, range(10)), "3", "7"])


def test_on_failure_store(shell: Shell):
    """Kept as results, failures count as done."""
    source = shell.file("in", "0\n7\n")
    summary = shell.json(
        "map", source, "--run", "r", "--on-failure", "store", "--output", "o", "--", "sh", "-c", 'exit "$1"', "sh", "{}"
    )
    assert (summary["executed"], summary["finished"]) == (2, True)
    assert [row["exit_code"] for row in documents(shell.folder / "o")] == [0, 7]


def test_halt(shell: Shell):
    """With --in-doubt halt a failed line is in doubt: the run stops there until somebody resolves it."""
    source = shell.file("in", "1\n2\n")
    command = ["map", source, "--run", "r", "--in-doubt", "halt", "--", "sh", "-c", 'test "$1" != 1', "sh", "{}"]
    shell(*command, code=1)
    assert "line 1" in shell(*command, code=3).stderr
    shell("resolve", "r:step:0", "--result", '{"exit_code": 0, "stdout": "by hand\\n"}')
    assert (
        shell("map", source, "--run", "r", "--in-doubt", "halt", "--output", "-", "--", "echo").stdout.count("by hand")
        == 1
    )


def test_a_changed_line_is_an_error(shell: Shell, step: Path):
    """A line that is not what it was when it was done is an error, not a wrong answer."""
    source = shell.file("in", "1\n2\n3\n")
    body = ["sh", "-c", 'test "$1" != 1', "sh", "{}"]
    shell("map", source, "--run", "r", "--keep-going", "--", *body, code=1)
    shell.file("in", "1\nchanged\n3\n")
    failed = shell("map", source, "--run", "r", "--", step, "{}", code=8)
    assert "line 2" in failed.stderr
    assert "other inputs" in failed.stderr


def test_fewer_lines_than_done(shell: Shell, step: Path):
    """An input shorter than the run's progress is another input."""
    shell("map", shell.file("in", "1\n2\n3\n"), "--run", "r", "--", step, "{}")
    failed = shell("map", shell.file("in", "1\n"), "--run", "r", "--", step, "{}", code=2)
    assert "not the same input" in failed.stderr


def test_lines_may_be_added(shell: Shell, step: Path):
    """A grown input goes on with what is new."""
    shell("map", shell.file("in", "1\n2"), "--run", "r", "--", step, "{}")
    shell("map", shell.file("in", "1\n2\n3\n"), "--run", "r", "--", step, "{}")
    assert shell.lines("log") == ["1", "2", "3"]


def test_key_by_content(shell: Shell, step: Path):
    """Named by content, lines may come, go and move, and equal ones run once."""
    options = ["--run", "r", "--key", "content", "--output", "o", "--", step, "{}"]
    shell("map", shell.file("in", "b\na\nb\n"), *options)
    assert [row["stdout"] for row in documents(shell.folder / "o")] == ["did b\n", "did a\n", "did b\n"]
    shell("map", shell.file("in", "new\na\nb\nlast\n"), *options)
    assert shell.lines("log") == ["b", "a", "new", "last"]
    assert [row["stdout"] for row in documents(shell.folder / "o")] == ["did new\n", "did a\n", "did b\n", "did last\n"]


def test_a_stream(shell: Shell, step: Path):
    """Lines come from stdin too; the same stream again is skipped as far as it was done."""
    shell("map", "-", "--run", "r", "--", step, "{}", stdin=b"1\n2\n")
    summary = shell.json("map", "-", "--run", "r", "--output", "o", "--", step, "{}", stdin=b"1\n2\n\n3\n")
    assert (summary["resumed_at"], summary["executed"], summary["total"]) == (2, 1, 3)
    assert shell.lines("log") == ["1", "2", "3"]
    assert [row["line"] for row in documents(shell.folder / "o")] == [1, 2, 4]


def test_a_stream_is_taken_as_it_comes(shell: Shell):
    """A line of a stream is done before the next one has come."""
    process = shell.start("map", "-", "--run", "r", "--", "echo", "did", "{}", stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (b"one\n", b"two\n"):
        process.stdin.write(line)
        assert process.stdout.readline() == b"did " + line
    process.stdin.close()
    assert process.wait(20) == 0


def test_a_stream_needs_a_name(shell: Shell):
    """What has no path needs --run; keys by content need a file to read again for --output."""
    assert "--run" in shell("map", "-", "--", "true", code=2, stdin=b"1\n").stderr
    shell("map", "-", "--run", "r", "--key", "content", "--output", "o", "--", "true", code=2, stdin=b"1\n")
    assert not (shell.folder / "o").exists()


def test_the_default_run(shell: Shell, step: Path):
    """Without --run, file and command name the run, from wherever they are called."""
    source = shell.file("in.txt", "1\n")
    shell("map", source, "--", step, "{}")
    again = shell("map", "in.txt", "--", step, "{}")
    assert "(1 before)" in again.stderr
    assert "run map:in.txt:" in again.stderr
    assert "(0 before)" in shell("map", "in.txt", "--", step, "x{}").stderr


def test_the_environment_of_a_step(shell: Shell):
    """Each command is told its key."""
    source = shell.file("in", "1\n2\n")
    shown = shell(
        "map", source, "--run", "r", "--", "sh", "-c", 'echo "$DURASTORE_KEY $DURASTORE_RUN $DURASTORE_ATTEMPT"'
    )
    assert shown.stdout.splitlines() == ["r:step:0 r 1", "r:step:1 r 1"]


def test_commands_at_once(shell: Shell):
    """With --concurrency, that many commands run at once."""
    source = shell.file("in", "1\n2\n3\n")
    body = 'touch "here$1"; until [ -e here1 ] && [ -e here2 ] && [ -e here3 ]; do sleep 0.02; done'
    assert (
        shell.json("map", source, "--run", "r", "--concurrency", "3", "--", "sh", "-c", body, "sh", "{}")["executed"]
        == 3
    )


WAITING = 'echo "begin $1" >> log; until [ -e go ]; do sleep 0.02; done; echo "end $1" >> log'


@pytest.mark.parametrize("concurrency", [1, 2])
def test_ctrl_c_lets_commands_finish(shell: Shell, concurrency: int):
    """The first Ctrl-C starts nothing new and lets what runs finish; then the same command goes on from there."""
    source = shell.file("in", "".join(f"{number}\n" for number in range(6)))
    command = ["map", source, "--run", "r", "--concurrency", str(concurrency), "--", "sh", "-c", WAITING, "sh", "{}"]
    process = shell.start(*command)
    eventually(lambda: len(shell.lines("log")) == concurrency, "commands run")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    eventually(lambda: b"finish; Ctrl-C again" in process.stderr.readline(), "it says what it does")
    shell.file("go", "")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert b"run the same command again to go on" in err
    ended = [line for line in shell.lines("log") if line.startswith("end")]
    assert len(ended) == concurrency
    assert len(shell.rows("claims", "--state", "committed")) == concurrency
    assert shell.rows("claims") == []
    shell.run(*command)
    assert sorted(line for line in shell.lines("log") if line.startswith("end")) == [
        f"end {number}" for number in range(6)
    ]


@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM]])
def test_a_second_ctrl_c_and_sigterm_stop_commands(shell: Shell, signals: list[int]):
    """SIGTERM, and a second Ctrl-C, stop the commands and give their keys back."""
    source = shell.file("in", "1\n2\n3\n")
    process = shell.start("map", source, "--run", "r", "--concurrency", "2", "--", "sh", "-c", WAITING, "sh", "{}")
    eventually(lambda: len(shell.lines("log")) == 2, "commands run")
    for number, signum in enumerate(signals):
        process.send_signal(signum)
        assert process.stderr is not None
        words = b"finish" if number + 1 < len(signals) else b"stopping 2 commands"
        eventually(lambda words=words: words in process.stderr.readline(), "it says what it does")
    assert process.wait(20) == 128 + signals[0]
    assert {row["state"] for row in shell.rows("claims", "--state", "all")} == {"abandoned"}


def test_a_third_ctrl_c_kills_commands(shell: Shell):
    """Commands that ignore being stopped are killed by one more."""
    source = shell.file("in", "1\n")
    process = shell.start(
        "map", source, "--run", "r", "--", "sh", "-c", "trap '' TERM INT; echo begun >> log; sleep 60"
    )
    shell.await_line("log", "begun")
    assert process.stderr is not None
    for words in (b"finish", b"stopping"):
        process.send_signal(signal.SIGINT)
        eventually(lambda words=words: words in process.stderr.readline(), "it says what it does")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert [row["state"] for row in shell.rows("claims", "--state", "all")] == ["abandoned"]


def test_two_at_once_share_the_work(shell: Shell, step: Path):
    """Two processes on one run, as by a nervous orchestrator: each line is done once, and both end well."""
    source = shell.file("in", "".join(f"{number}\n" for number in range(20)))
    both = [shell.start("map", source, "--run", "r", "--json", "--", step, "{}") for _ in range(2)]
    summaries = [json.loads(process.communicate(timeout=30)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(shell.lines("log"), key=int) == [str(number) for number in range(20)]
    assert sum(summary["executed"] for summary in summaries) == 20


def test_output_replaces_the_old_file_at_the_end(shell: Shell):
    """The old output stays whole until the new one is; its rights and the link to it are kept; nothing else is left."""
    target = shell.file("kept", "old")
    target.chmod(0o600)
    (shell.folder / "o").symlink_to(target)
    source = shell.file("in", "1\n2\n")
    command = [
        "map",
        source,
        "--run",
        "r",
        "--output",
        "o",
        "--",
        "sh",
        "-c",
        'echo "$1"; test "$1" = 1 || test -e mended',
        "sh",
        "{}",
    ]
    shell(*command, code=1)
    assert target.read_text() == "old"
    shell.file("mended", "")
    shell(*command)
    assert [row["stdout"] for row in documents(target)] == ["1\n", "2\n"]
    assert ((shell.folder / "o").is_symlink(), target.stat().st_mode & 0o777) == (True, 0o600)
    assert sorted(path.name for path in shell.folder.iterdir() if path.name.startswith(".")) == []


def test_output_that_cannot_be_written(shell: Shell, step: Path):
    """A bad --output is found before any work is done."""
    source = shell.file("in", "1\n")
    for target in ("no/such/folder", str(shell.folder)):
        shell("map", source, "--run", "r", "--output", target, "--", step, "{}", code=2)
    shell("map", source, "--run", "r", "--output", "-", "--json", "--", step, "{}", code=2)
    assert shell.lines("log") == []


def test_output_of_results_that_are_gone(shell: Shell):
    """A result past its retention is said to be absent; the line stands there all the same."""
    source = shell.file("in", "1\n")
    shown = shell("map", source, "--run", "r", "--retain", "0", "--output", "o", "--", "true")
    assert "1 lines have no result any more" in shown.stderr
    assert [row["state"] for row in documents(shell.folder / "o")] == ["absent"]


def test_json_summary(shell: Shell, step: Path):
    """--json prints one document on stdout, and nothing else goes there."""
    done = shell.run("map", shell.file("in", "1\n2\n"), "--run", "r", "--json", "--", step, "{}")
    summary = json.loads(done.stdout)
    assert summary.pop("seconds") >= 0
    store = summary.pop("store")
    assert (store["commit"]["count"], store["commit"]["errors"]) == (2, 0)
    assert 0 < store["commit"]["longest"] <= store["commit"]["seconds"]
    assert summary == {
        "run_id": "r",
        "total": 2,
        "resumed_at": 0,
        "processed": 2,
        "executed": 2,
        "skipped": 0,
        "awaited": 0,
        "recovered": 0,
        "failed": 0,
        "taken_over": 0,
        "lost": 0,
        "in_doubt": 0,
        "finished": True,
    }


def test_probe(shell: Shell):
    """A probe looks at each line in doubt by its key, and what it finds is recovered."""
    source = shell.file("in", "1\n2\n")
    options = ["--run", "r", "--probe", 'echo "seen $DURASTORE_KEY"', "--output", "o"]
    shell("map", source, *options, "--", "false", code=1)
    summary = shell.json("map", source, *options, "--", "echo", "ran")
    assert (summary["recovered"], summary["executed"]) == (1, 1)
    assert [row["stdout"] for row in documents(shell.folder / "o")] == ["seen r:step:0\n", "ran\n"]


@pytest.mark.parametrize("name", ["missing", "."])
def test_an_input_that_cannot_be_read(shell: Shell, name: str):
    """An input that is not there, or a folder, is a usage error."""
    assert "cannot read" in shell("map", name, "--", "true", code=2).stderr


def test_a_fifo_is_a_stream(shell: Shell):
    """A named pipe, as in <(command), is read as it comes."""
    os.mkfifo(shell.folder / "fifo")
    process = shell.start("map", "fifo", "--run", "r", "--", "echo", "{}")
    (shell.folder / "fifo").write_text("a\nb\n")
    assert process.communicate(timeout=20)[0] == b"a\nb\n"


def test_progress_on_a_terminal_is_a_bar(shell: Shell, step: Path):
    """On a terminal, stderr shows a bar with what commands wrote above it; elsewhere, plain lines without any escape."""
    import pty

    source = shell.file("in", "1\n2\n")
    plain = shell.run("map", source, "--run", "plain", "--", step, "{}").stderr
    assert b"2 of 2 lines done" in plain
    assert b"\x1b" not in plain
    ours, theirs = pty.openpty()
    env = {**shell.env, "TERM": "xterm"}
    process = shell.start("map", source, "--run", "bar", "--", step, "{}", stderr=theirs, stdout=theirs, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    assert process.wait(20) == 0
    assert b"2/2" in shown
    assert b"did 2" in shown
    assert b"\x1b" in shown


def test_quiet(shell: Shell, step: Path):
    """--quiet leaves the summary alone on stderr."""
    done = shell.run("map", shell.file("in", "1\n"), "--run", "r", "--quiet", "--", step, "{}")
    assert done.stderr.count(b"\n") == 1


def test_a_million_lines_need_little_memory(shell: Shell):
    """A file of a million lines costs about eight bytes of memory for each, and is resumed at once."""
    import tracemalloc

    from durastore.cli.lines import FileLines

    source = shell.file("in", b"x\n" * 1_000_000)
    with source.open("rb") as file:
        tracemalloc.start()
        lines = FileLines(file)
        used, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (len(lines), lines[999_999], lines[5:7]) == (1_000_000, b"x", [b"x", b"x"])
        assert used < 10_000_000
        assert peak < 20_000_000
    with shell.store() as store:
        store.checkpoint("r").save_progress(999_998, {})
    began = time.monotonic()
    summary = shell.json("map", source, "--run", "r", "--", "true")
    assert (summary["executed"], summary["processed"]) == (2, 1_000_000)
    assert time.monotonic() - began < 60


def test_save_every(shell: Shell):
    """Progress saved rarely loses no result: what was done is skipped."""
    source = shell.file("in", "1\n2\n3\n")
    command = [
        "map",
        source,
        "--run",
        "r",
        "--save-every",
        "100",
        "--",
        "sh",
        "-c",
        'echo "$1" >> log; test "$1" != 3 || test -e mended',
        "sh",
        "{}",
    ]
    shell(*command, code=1)
    shell.file("mended", "")
    summary = json.loads(shell(command[0], "--json", *command[1:]).stdout)
    assert (summary["resumed_at"], summary["skipped"], summary["executed"]) == (0, 2, 1)
    assert shell.lines("log") == ["1", "2", "3", "3"]
