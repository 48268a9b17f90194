"""Text as an attacker would choose it, in keys, run ids and namespaces, through every command.

Whatever it is: one line and an exit code, never a traceback; nothing on the terminal that a terminal would obey; JSON that
parses, in ASCII, with the very text; no other tenant's data; no file outside.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import durastore
from durastore.cli import COMMANDS

from .conftest import Shell

pytestmark = pytest.mark.timeout(120)

HOSTILE = {
    "escapes": "\x1b[2J\x1b]0;owned\x07\x1b]8;;http://x\x1b\\k\x9b31m",
    "html": "<script>alert(1)</script><img src=x onerror='a()'>&amp;",
    "sql": "k'; DROP TABLE durastore_records; -- \" %_",
    "path": "../../../../etc/passwd",
    "newlines": "k\r\nfake: line\nerror: none\u2028\u2029\x85",
    "bidi": "k\u202egnp.exe\u2066\u200b\ufeff",
    "nul": "k\0end",
    "surrogate": "k\udcff\ud800",
    "option": "--help",
    "format": "%s {0} {} $HOME `id` $(id) \\x1b [red]",
    "long": "k" * 100_000,
    "empty": "",
}
Make = Callable[[str, Path], list[str]]
"""A command line with the text in it."""


def _url(text: str, folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db?namespace={quote(text, safe='', errors='surrogatepass')}"


def _map(text: str, folder: Path, *more: str) -> list[str]:
    source = folder / "in.txt"
    source.write_bytes(text.encode("utf-8", "surrogatepass") + b"\n")
    return ["map", str(source), *more, "--", "true"]


PLACES: dict[str, Make] = {
    "once KEY": lambda text, _: ["once", "--run", "r", "--", text, "true"],
    "once --run": lambda text, _: ["once", "--run", text, "key", "--", "true"],
    "once --fingerprint": lambda text, _: ["once", "--fingerprint", text, "key", "--", "true"],
    "once --lease": lambda text, _: ["once", "--lease", text, "key", "--", "true"],
    "once --in-doubt": lambda text, _: ["once", "--in-doubt", text, "key", "--", "true"],
    "once command": lambda text, _: ["once", "key", "--", text],
    "once fails with": lambda text, _: ["once", "key", "--", "sh", "-c", 'printf %s "$1" >&2; exit 3', "sh", text],
    "map --run": lambda text, folder: _map("line", folder, "--run", text),
    "map INPUT": lambda text, _: ["map", "--run", "r", "--", text, "true"],
    "map line": lambda text, folder: _map(text, folder, "--run", "r", "--key", "content"),
    "map --output": lambda text, folder: _map("line", folder, "--run", "r", "--output", f"{folder}/no/{text}"),
    "runs --url": lambda text, folder: ["runs", "--url", _url(text, folder)],
    "runs scheme": lambda text, _: ["runs", "--url", f"{text}://x"],
    "runs option": lambda text, folder: ["runs", "--url", f"sqlite:///{folder}/jobs.db?{text}=1"],
    "show": lambda text, _: ["show", "--", text],
    "claims --run": lambda text, _: ["claims", "--state", "all", "--run", text],
    "claims --prefix": lambda text, _: ["claims", "--state", "all", "--prefix", text],
    "claims --state": lambda text, _: ["claims", "--state", text],
    "record": lambda text, _: ["record", "--", text],
    "resolve": lambda text, _: ["resolve", "--retry", "--", text],
    "resolve --result": lambda text, _: ["resolve", "--force", "--result", text, "key"],
    "forget": lambda text, _: ["forget", "--", text],
    "forget --run": lambda text, _: ["forget", "--yes", "--run", text],
    "sweep --url": lambda text, folder: ["sweep", "--url", _url(text, folder)],
    "init --url": lambda text, folder: ["init", "--url", _url(text, folder)],
    "copy": lambda text, folder: ["copy", "--verify", _url(text, folder), f"sqlite:///{folder}/copy.db"],
    "copy SRC": lambda text, folder: ["copy", "--", text, f"sqlite:///{folder}/copy.db"],
    "copy --wait": lambda text, folder: ["copy", "--wait", text, _url("", folder), f"sqlite:///{folder}/copy.db"],
    "export": lambda text, folder: ["export", "--url", _url(text, folder)],
    "export -o": lambda text, folder: ["export", "-o", f"{folder}/no/{text}"],
    "import": lambda text, _: ["import", "--", text],
    "import line": lambda text, folder: ["import", str(_written(folder, text))],
    "doctor": lambda text, folder: ["doctor", "--url", _url(text, folder)],
    "doctor path": lambda text, folder: ["doctor", "--url", f"sqlite:///{folder}/{quote(text, errors='replace')}.none"],
    "runs path": lambda text, folder: ["runs", "--url", f"sqlite:///{folder}/no/{quote(text, errors='replace')}"],
    "demo": lambda text, folder: ["demo", "--limit", text, "--url", _url("demo", folder)],
    "bench --steps": lambda text, _: ["bench", "--steps", text],
    "bench granularity": lambda text, _: ["bench", "granularity", "--step", text],
    "conformance": lambda text, _: ["conformance", "--", f"{text}://x"],
    "conformance --report": lambda text, _: ["conformance", "--soak", "0", "--report", text, "memory://"],
    "emulators": lambda text, _: ["emulators", "up", "--", text],
    "no such command": lambda text, _: [f"{text}."],
    "no such option": lambda text, _: ["runs", f"--{text}."],
}
PASSES = "once fails with"
"""What its command wrote passes as it is: a terminal that would obey it was given to that command."""
FINDS = ("doctor", "doctor path")
"""What it has to say is its result."""
WITHOUT_JSON = ("conformance", "emulators", "no such", "demo", "bench")


def _written(folder: Path, text: str) -> Path:
    path = folder / "in.ndjson"
    path.write_bytes(text.encode("utf-8", "surrogatepass") + b"\n" + json.dumps({text: text}).encode())
    return path


def _put(shell: Shell, text: str) -> None:
    """A run, a key, a result and an error of that text, as far as a store takes it."""

    def fail() -> None:
        raise RuntimeError(text)

    with shell.store() as store, suppress(durastore.InvalidKey):
        ckpt = store.checkpoint(text, in_doubt="halt")
        ckpt.save_progress(1, {text: text})
        ckpt.run_once(text, lambda: text)
        with suppress(RuntimeError, durastore.InDoubt):
            ckpt.run_once(f"{text}-failed", fail)


def test_every_command_is_here() -> None:
    """A command that is added later is added here."""
    assert {place.split()[0] for place in PLACES} - {"no"} == set(COMMANDS)


def obeyed(shown: str) -> set[str]:
    """What a terminal would act on, or a reader be deceived by."""
    return {
        mark for mark in shown if mark not in "\n\t" and unicodedata.category(mark) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }


def contents(store: durastore.Store) -> list[Any]:
    return [(record.key, record.state, record.result) for record in store.records()]


@pytest.mark.parametrize("place", PLACES)
def test_through_every_command(shell: Shell, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown, never obeyed; told by an exit code; and another tenant's data are as they were."""
    monkeypatch.setenv("COLUMNS", "500")
    examined(shell, place)


def examined(shell: Shell, place: str) -> None:
    """Every hostile text in one place."""
    tenant = f"sqlite:///{shell.folder}/jobs.db?namespace=tenant"
    with durastore.open(tenant) as store:
        store.checkpoint("run").run_once("theirs", lambda: "secret of theirs")
        before = contents(store)
    for name, text in HOSTILE.items():
        _put(shell, text)
        for extra in ([],) if place.startswith(WITHOUT_JSON) else ([], ["--json"]):
            args = PLACES[place](text, shell.folder)
            done = shell(args[0], *extra, *args[1:], code=None)
            said = done.stdout + done.stderr
            why = (place, name, extra, done.exit_code, said[-600:])
            assert done.exception is None or isinstance(done.exception, SystemExit), (*why, done.exception)
            assert "Traceback" not in said, why
            assert "unexpected " not in said, why
            assert "secret of theirs" not in said, why
            own = said.replace(text.replace("\r\n", "\n"), "", 1) if place == PASSES else said
            assert not obeyed(own), (*why, obeyed(own))
            if extra:
                for line in done.stdout.splitlines():
                    json.loads(line)
                assert done.stdout.isascii(), why
            told = done.stdout if place in FINDS else done.stderr
            assert done.exit_code == 0 or told.strip(), why
    with durastore.open(tenant) as store:
        assert contents(store) == before
    assert {path.name.partition(".db")[0] for path in shell.folder.iterdir()} <= {"jobs", "copy", "in.txt", "in.ndjson"}
