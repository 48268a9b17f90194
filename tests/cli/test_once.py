"""`durastore once`: what is stored, what is replayed, and what becomes of the key otherwise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from durastore.cli import guard

from .conftest import Shell, alive, eventually

pytestmark = pytest.mark.timeout(60)
COUNT = "echo ran >> runs.txt; "
"""Leaves a line for each time a command really ran."""


def test_replay_prints_what_was_stored(shell: Shell):
    """A replay gives the stored stdout, stderr and exit code, and runs nothing."""
    command = ["once", "k", "--", "sh", "-c", COUNT + "echo out; echo err >&2"]
    first, again = shell(*command), shell(*command)
    assert (first.stdout, first.stderr) == (again.stdout, again.stderr) == ("out\n", "err\n")
    assert shell.lines("runs.txt") == ["ran"]


def test_any_bytes_survive(shell: Shell):
    """Output comes back byte for byte, also what is no UTF-8, and NUL."""
    data = bytes(range(256))
    source = shell.file("data", data)
    for _ in range(2):
        assert shell("once", "k", "--", "cat", source).stdout_bytes == data
    assert "stdout_base64" in shell.json("once", "k", "--", "true")
    assert (
        shell("once", "text", "--", "printf", r"a\000é").stdout_bytes
        == shell("once", "text", "--", "true").stdout_bytes
    )


def test_output_passes_through_while_it_runs(shell: Shell):
    """Output is seen as it comes, not when the command has ended."""
    process = shell.start("once", "k", "--", "sh", "-c", "echo begun; until [ -e go ]; do sleep 0.02; done; echo ended")
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    shell.file("go", "")
    assert process.communicate()[0] == b"ended\n"
    assert process.returncode == 0


def test_stdin_is_the_callers(shell: Shell):
    """The command reads our stdin."""
    with shell.file("in", "hello").open("rb") as source:
        assert shell.run("once", "k", "--", "cat", stdin=source).stdout == b"hello"


def test_environment(shell: Shell):
    """The command is told key, run, token and attempt, to pass them downstream."""
    names = "$DURASTORE_KEY|$DURASTORE_RUN|$DURASTORE_ATTEMPT|$DURASTORE_TOKEN"
    shell("once", "k 1", "--run", "r", "--", "sh", "-c", "exit 3", code=3)
    shown = shell("once", "k 1", "--run", "r", "--", "sh", "-c", f'echo "{names}"').stdout.strip().split("|")
    assert shown[:3] == ["k 1", "r", "2"]
    assert int(shown[3]) == shell.json("record", "k 1")["token"]


def test_a_failure_runs_again_by_default(shell: Shell):
    """A command that fails gives the key back, and its exit code is returned."""
    failed = shell("once", "k", "--", "sh", "-c", COUNT + "echo no >&2; exit 3", code=3)
    assert "exit code 3: no" in failed.stderr
    assert "durastore: error:" in failed.stderr
    assert shell.json("record", "k")["state"] == "abandoned"
    shell("once", "k", "--", "sh", "-c", COUNT + "true")
    assert shell.lines("runs.txt") == ["ran", "ran"]


def test_on_failure_store(shell: Shell):
    """With --on-failure store, the failure is the result: it is replayed, code and all."""
    command = ["once", "k", "--on-failure", "store", "--", "sh", "-c", COUNT + "echo no >&2; exit 3"]
    shell(*command, code=3)
    assert shell(*command, code=3).stderr == "no\n"
    assert shell.lines("runs.txt") == ["ran"]


@pytest.mark.parametrize("options", [["--on-failure", "halt"], ["--in-doubt", "halt"]])
def test_on_failure_halt(shell: Shell, options: list[str]):
    """Halted, a failure is in doubt, nobody runs it again, and `resolve` decides."""
    command = ["once", "k", *options, "--", "sh", "-c", COUNT + "exit 3"]
    shell(*command, code=3)
    assert "in doubt" in shell(*command, code=3).stderr
    assert shell.lines("runs.txt") == ["ran"]
    shell("resolve", "k", "--retry")
    shell("once", "k", *options, "--", "sh", "-c", COUNT + "echo done")
    assert shell.lines("runs.txt") == ["ran", "ran"]


def test_halt_and_retry_can_be_told_apart(shell: Shell):
    """--in-doubt halt with --on-failure retry: an exit code is an answer, only a vanished command is in doubt."""
    shell("once", "k", "--in-doubt", "halt", "--on-failure", "retry", "--", "false", code=1)
    assert shell.json("record", "k")["state"] == "abandoned"


@pytest.mark.parametrize(("command", "code"), [("nosuch-command", 127), ("./not-executable", 126)])
def test_a_command_that_cannot_start(shell: Shell, command: str, code: int):
    """What never began is never in doubt, whatever the policy."""
    shell.file("not-executable", "x")
    failed = shell("once", "k", "--in-doubt", "halt", "--", command, code=code)
    assert command in failed.stderr
    assert shell.json("record", "k")["state"] == "abandoned"


def test_a_shell_line_is_hinted_at(shell: Shell):
    """Who writes a shell line as one word is told how to write it."""
    assert "sh -c 'echo hi | wc'" in shell("once", "k", "--", "echo hi | wc", code=127).stderr


@pytest.mark.parametrize(("options", "state"), [([], "abandoned"), (["--in-doubt", "halt"], "in_doubt")])
def test_a_command_that_is_killed(shell: Shell, options: list[str], state: str):
    """A command killed by a signal has no result, not even with --on-failure store: it vanished."""
    shell("once", "k", *options, "--on-failure", "store", "--", "sh", "-c", "kill -9 $$", code=137)
    assert shell.json("record", "k")["state"] == state


def test_probe_found(shell: Shell):
    """A probe that finds the effect: its stdout is the result, and nothing runs."""
    shell("once", "k", "--probe", "echo seen $DURASTORE_KEY", "--", "false", code=1)
    shown = shell.json("once", "k", "--probe", "echo seen $DURASTORE_KEY", "--", "sh", "-c", COUNT)
    assert (shown["status"], shown["stdout"], shell.lines("runs.txt")) == ("recovered", "seen k\n", [])


def test_probe_not_found_and_unknown(shell: Shell):
    """A probe that says no lets it run; one that cannot tell leaves it in doubt."""
    shell("once", "k", "--probe", "exit 1", "--", "false", code=1)
    shell("once", "k", "--probe", "exit 7", "--", "sh", "-c", COUNT, code=3)
    assert shell.lines("runs.txt") == []
    shell("once", "k", "--probe", "exit 1", "--", "sh", "-c", COUNT)
    assert shell.lines("runs.txt") == ["ran"]


@pytest.mark.parametrize(
    "options",
    [
        ["--probe", "true", "--in-doubt", "halt"],
        ["--on-failure", "halt", "--in-doubt", "rerun"],
        ["--supersede"],
        ["--lease", "soon"],
        ["--max-attempts", "0"],
    ],
)
def test_options_that_make_no_sense(shell: Shell, options: list[str]):
    """Options that contradict each other are a usage error, before anything runs."""
    shell("once", "k", *options, "--", "sh", "-c", COUNT, code=2)
    assert shell.lines("runs.txt") == []


def test_a_command_is_needed(shell: Shell):
    """Nothing after the key is a usage error."""
    assert "CMD" in shell("once", "k", code=2).stderr


@pytest.mark.parametrize("key", ["", "a" * 1025])
def test_keys_that_no_store_takes(shell: Shell, key: str):
    """A bad key is a usage error that says what a key is."""
    assert "1 to 1024 bytes" in shell("once", key, "--", "true", code=2).stderr


def test_fingerprint(shell: Shell):
    """A key used again for something else is an error, not a wrong answer."""
    shell("once", "k", "--fingerprint", "a", "--", "true")
    shell("once", "k", "--fingerprint", "a", "--", "true")
    shell("once", "k", "--fingerprint", "b", "--", "true", code=8)


def test_max_attempts(shell: Shell):
    """A command that keeps failing stops being tried."""
    shell("once", "k", "--max-attempts", "1", "--", "false", code=1)
    shell("once", "k", "--max-attempts", "1", "--", "sh", "-c", COUNT, code=10)
    assert shell.lines("runs.txt") == []


def test_retain(shell: Shell):
    """A result past its retention is absent."""
    for _ in range(2):
        shell("once", "k", "--retain", "0", "--", "sh", "-c", COUNT)
    assert shell.lines("runs.txt") == ["ran", "ran"]


def test_a_result_that_no_command_left(shell: Shell):
    """A key that a program committed, or a person resolved, replays as JSON."""
    with shell.store() as store:
        store.checkpoint("r").run_once("k", lambda: {"charged": 4200})
    assert json.loads(shell("once", "k", "--", "false").stdout) == {"charged": 4200}


def test_too_much_output(shell: Shell):
    """Output beyond the limit: the command was done and is not repeated, and both calls say that its result is lost."""
    command = ["once", "k", "--json", "--", "sh", "-c", COUNT + "head -c 68000000 /dev/zero | tr '\\0' a"]
    assert "will not be repeated" in shell(*command, code=9).stderr
    assert "lost" in shell(*command, code=9).stderr
    assert shell.lines("runs.txt") == ["ran"]
    assert "lost" in shell.json("record", "k")["result_error"]


def test_output_held_open_by_a_daemon(shell: Shell):
    """A background process that keeps the pipe does not keep us."""
    shell.run("once", "k", "--", "sh", "-c", "sleep 15 & echo $! > pid; echo hi")
    os.kill(int(shell.lines("pid")[0]), signal.SIGKILL)
    assert shell("once", "k", "--", "false").stdout == "hi\n"


def test_a_reader_that_goes_away(shell: Shell):
    """Who stops reading our output stops nothing: the command ends, and its result is whole."""
    process = shell.start(
        "once", "k", "--", "sh", "-c", "echo first; until [ -e go ]; do sleep 0.02; done; seq 1 20000"
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    shell.file("go", "")
    assert process.wait() == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert shell("once", "k", "--", "false").stdout.endswith("\n20000\n")


def test_held_by_another(shell: Shell):
    """While one runs it, another waits no longer than it wants, and says who holds it."""
    first = shell.start(
        "once", "k", "--", "sh", "-c", "echo begun > begun; until [ -e go ]; do sleep 0.02; done; echo one"
    )
    shell.await_line("begun", "begun")
    held = shell.run("once", "k", "--wait", "0", "--", "false", code=4)
    assert b"held by" in held.stderr
    second = shell.start("once", "k", "--json", "--", "false")
    assert second.stderr is not None
    assert b"waiting for key 'k'" in second.stderr.readline()
    shell.file("go", "")
    assert first.communicate()[0] == b"one\n"
    shown = json.loads(second.communicate()[0])
    assert (shown["status"], shown["stdout"]) == ("awaited", "one\n")


def test_many_at_once(shell: Shell):
    """Many callers of one key: one runs it, all get its output."""
    started = [shell.start("once", "k", "--", "sh", "-c", COUNT + "sleep 0.3; echo $DURASTORE_TOKEN") for _ in range(6)]
    outputs = {process.communicate()[0] for process in started}
    assert shell.lines("runs.txt") == ["ran"]
    assert len(outputs) == 1


def test_a_lost_claim_stops_the_command(shell: Shell):
    """Once somebody else has the key, the command is stopped, and nothing of it is stored."""
    process = shell.start(
        "once",
        "k",
        "--lease",
        "0.6",
        "--",
        "sh",
        "-c",
        "echo $$ > pid; trap 'echo stopped >> log; exit 1' TERM; sleep 60 & wait",
    )
    eventually(lambda: shell.lines("pid"), "the command runs")
    shell("forget", "k", "--force")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 7, err
    assert b"was lost while its command ran" in err
    assert shell.lines("log") == ["stopped"]
    assert not alive(int(shell.lines("pid")[0]))
    shell("record", "k", code=1)


def test_a_command_that_ignores_being_stopped_by_ctrl_c_dies_of_the_second(shell: Shell):
    """A second signal kills what ignored the first one."""
    process = shell.start("once", "k", "--", "sh", "-c", "trap '' INT; echo $$ > pid; sleep 60")
    eventually(lambda: shell.lines("pid"), "the command runs")
    process.send_signal(signal.SIGINT)
    eventually(lambda: shell.json("record", "k")["state"] == "claimed", "it is still held")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert not alive(int(shell.lines("pid")[0]))


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize(("options", "state"), [([], "abandoned"), (["--in-doubt", "halt"], "in_doubt")])
def test_signals_reach_the_command(shell: Shell, signum: int, code: int, options: list[str], state: str):
    """A signal is passed on, and a command that it ends is given back, or in doubt, never done."""
    name = signal.Signals(signum).name.removeprefix("SIG")
    process = shell.start(
        "once",
        "k",
        *options,
        "--",
        "sh",
        "-c",
        f"trap 'echo got {name} >> log; exit 1' {name}; echo begun >> log; sleep 60 & wait",
    )
    shell.await_line("log", "begun")
    process.send_signal(signum)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code, err
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert shell.lines("log") == ["begun", f"got {name}"]
    assert shell.json("record", "k")["state"] == state


def test_nohup_is_respected(shell: Shell):
    """A signal that we were started to ignore (nohup) ends nothing."""
    process = shell.start(
        *["once", "k", "--", "sh", "-c", "echo begun > log; until [ -e go ]; do sleep 0.02; done; echo done"],
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    shell.await_line("log", "begun")
    process.send_signal(signal.SIGHUP)
    shell.file("go", "")
    assert process.communicate(timeout=20)[0] == b"done\n"
    assert process.returncode == 0


def test_a_command_that_finishes_all_the_same(shell: Shell):
    """A command that ignores the signal and succeeds is done: its result is stored."""
    process = shell.start(
        "once", "k", "--", "sh", "-c", "trap : TERM; echo begun > log; sleep 0.5 & wait; wait; echo done"
    )
    shell.await_line("log", "begun")
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == b"done\n"
    assert process.returncode == 0
    assert shell("once", "k", "--", "false").stdout == "done\n"


def test_ctrl_c_while_waiting(shell: Shell):
    """A signal ends the waiting for another holder at once, and leaves his claim alone."""
    first = shell.start("once", "k", "--", "sh", "-c", "echo begun > log; until [ -e go ]; do sleep 0.02; done")
    shell.await_line("log", "begun")
    second = shell.start("once", "k", "--", "false")
    assert second.stderr is not None
    second.stderr.readline()
    second.send_signal(signal.SIGINT)
    assert second.wait(20) == 130
    shell.file("go", "")
    assert first.wait(20) == 0


@pytest.mark.parametrize("options", [[], ["--in-doubt", "halt"]])
def test_killed_itself_it_takes_its_command_with_it(shell: Shell, options: list[str]):
    """SIGKILL on durastore: its command is stopped, and the key is in doubt at once instead of when the lease lapses."""
    process = shell.start("once", "k", "--lease", "1h", *options, "--", "sh", "-c", "echo $$ > pid; sleep 60")
    pid = int(eventually(lambda: shell.lines("pid"), "the command runs")[0])
    process.send_signal(signal.SIGKILL)
    eventually(lambda: not alive(pid), "the command is gone")
    eventually(lambda: shell.json("record", "k")["state"] == "in_doubt", "the claim is let go")
    if options:
        shell("once", "k", *options, "--", "true", code=3)
    else:
        assert shell("once", "k", "--", "echo", "again").stdout == "again\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a command cannot be found by what it was told")
def test_a_command_that_was_not_announced_yet_is_found(shell: Shell):
    """Killed between starting a command and telling the guard which it is: the command is found, and stopped all the same."""
    claim = {
        "url": shell.url,
        "key": "k é",
        "run_id": "r",
        "owner": "o",
        "nonce": "n",
        "token": 12345,
        "attempt": 1,
        "lease": 10**6,
    }
    env = {**shell.env, "DURASTORE_KEY": "k é", "DURASTORE_TOKEN": "12345"}
    commands = [
        subprocess.Popen(["sleep", "60"], start_new_session=True, env={**env, **other})
        for other in ({}, {"DURASTORE_TOKEN": "12346"})
    ]
    told = f"{json.dumps(['cat'])}\nhold 1 {json.dumps(claim)}\n"
    done = subprocess.run([sys.executable, guard.__file__], input=told.encode(), stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == claim
    assert commands[0].wait(20) == -signal.SIGTERM
    assert commands[1].poll() is None
    commands[1].kill()
    commands[1].wait()


def test_on_a_terminal_the_command_reads_it(shell: Shell):
    """Where stdin is a terminal the command may read it, and Ctrl-C on it reaches the command once."""
    import pty

    ours, theirs = pty.openpty()
    body = "trap 'echo int >> log; exit 1' INT; read line; echo got $line > log; sleep 60 & wait"
    process = shell.start("once", "k", "--", "sh", "-c", body, stdin=theirs, preexec_fn=lambda: _own_terminal(theirs))
    os.close(theirs)
    os.write(ours, b"hello\n")
    shell.await_line("log", "got hello")
    os.write(ours, b"\x03")
    assert process.wait(20) == 130
    assert shell.lines("log") == ["got hello", "int"]
    os.close(ours)


def _own_terminal(fd: int) -> None:
    """Make it the controlling terminal of a new session, as a terminal emulator does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


def test_supersede(shell: Shell):
    """With --supersede, a new process takes its run's claim at once, and the old one finds out."""
    old = shell.start(
        "once", "k", "--run", "r", "--supersede", "--lease", "0.6", "--", "sh", "-c", "echo begun > log; sleep 60"
    )
    shell.await_line("log", "begun")
    assert shell("once", "k", "--run", "r", "--supersede", "--", "echo", "new").stdout == "new\n"
    assert old.wait(20) == 7


def test_unset_store(shell: Shell):
    """Without any URL, a file in this folder is used, and stderr says so."""
    env = {name: value for name, value in os.environ.items() if name != "DURASTORE_URL"}
    done = shell.run("once", "k", "--", "echo", "hi", env=env)
    assert (done.stdout, (shell.folder / "durastore.db").exists()) == (b"hi\n", True)
    assert b"sqlite:///durastore.db" in done.stderr


def test_json(shell: Shell):
    """With --json, stdout holds one document, and the command's exit code is returned all the same."""
    done = shell.run(
        "once", "k", "--json", "--on-failure", "store", "--", "sh", "-c", "echo out; echo err >&2; exit 5", code=5
    )
    shown = json.loads(done.stdout)
    assert shown == {"key": "k", "status": "executed", "exit_code": 5, "stdout": "out\n", "stderr": "err\n"}
    assert done.stderr == b"err\n"


def test_two_stores_by_url(shell: Shell):
    """--url goes before the environment."""
    shell("once", "k", "--", "true")
    assert shell("once", "k", "--url", f"sqlite:///{shell.folder}/other.db", "--", "echo", "other").stdout == "other\n"


def test_processes_leave_nothing_behind(shell: Shell):
    """No process of ours outlives a call."""
    shell.run("once", "k", "--", "true")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(shell.folder) not in listed
