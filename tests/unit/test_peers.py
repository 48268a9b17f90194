"""The comparison with peers: who takes part, what a figure stands for, and that the README shows what was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from durastore.emulators import EmulatorNotRun, NotRun
from tests.bench.peers import __main__ as command
from tests.bench.peers import comparing, page
from tests.bench.peers.peer import ONCE, SKIPPED, Line, Peer, Place
from tests.bench.peers.timing import BLOCK, Effect, between, each

ROOT = Path(__file__).parents[2]


def opening(call: Callable[[Effect], object], *, executed: bool = True) -> Callable[[Place], Any]:
    @contextmanager
    def lines(_place: Place) -> Iterator[list[Line]]:
        effect = Effect()
        like = ONCE if executed else SKIPPED
        yield [Line("call", like, each(lambda: call(effect), effect, executed=executed))]

    return lines


def broken(_place: Place) -> Any:
    raise TypeError("its interface has changed")


PEERS = (
    Peer("runs", "sqlite", ("pytest",), opening(lambda effect: effect()), "a remark"),
    Peer("replays", "sqlite", ("pytest",), opening(lambda _effect: None, executed=False)),
    Peer("absent", "sqlite", ("pytest", "durastore-has-no-such-peer"), broken),
    Peer("closed", "sqlite", ("pytest",), broken),
    Peer("idle", "sqlite", ("pytest",), opening(lambda _effect: None)),
    Peer("repeats", "sqlite", ("pytest",), opening(lambda effect: effect(), executed=False)),
    Peer("elsewhere", "postgresql", ("pytest",), broken),
)


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "PEERS", PEERS)
    monkeypatch.setitem(comparing.WARM_UP_BLOCKS, "sqlite", 1)
    monkeypatch.setattr(comparing, "REPLAYED", 10)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["peers", "--stores", "sqlite", "--steps", "50", *arguments])
    return command.main()


@pytest.mark.usefixtures("peers")
def test_who_takes_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who is not installed is named; who does not do what it is timed for is left out, with the reason, and fails the run."""
    report = tmp_path / "peers.json"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(monkeypatch, "--report", str(report)) == 1
    (store,) = json.loads(report.read_text())["stores"]
    assert store["not_installed"] == ["durastore-has-no-such-peer"]
    assert store["failed"] == {
        "closed": "TypeError: its interface has changed",
        "idle": f"RuntimeError: the effect ran 0 times in a block that runs it {BLOCK} times",
        "repeats": f"RuntimeError: the effect ran {BLOCK} times in a block that runs it 0 times",
    }
    assert {row["by"] for row in store["rows"]} == {"durastore", "runs", "replays"}
    assert list(tmp_path.iterdir()) == [report], "everything else is gone"


@pytest.mark.usefixtures("peers")
def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure is the median of that many samples, in medians of the floor and of what durastore does of the same kind."""
    monkeypatch.setattr(comparing, "PEERS", PEERS[:2])
    assert run(monkeypatch, "--json") == 0
    (store,) = json.loads(capsys.readouterr().out)["stores"]
    floor, *rows = store["rows"]
    own = {row["what"]: row for row in rows if row["by"] == "durastore"}
    assert floor["floors"] == 1
    for row in rows:
        assert row["samples"] == (2 if row["what"] == "run_agent, replayed" else 50)
        assert row["floors"] == pytest.approx(row["median"] / floor["median"], abs=0.01)
        if row["by"] != "durastore":
            assert row["times"] == pytest.approx(row["median"] / own[row["like"]]["median"], abs=0.01)
            assert row["versions"] == {"pytest": pytest.__version__}


@pytest.mark.usefixtures("peers")
def test_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names everybody, with what a reader must know of them."""
    assert run(monkeypatch) == 1
    text = capsys.readouterr().out
    assert "runs: a remark" in text
    assert "not installed: durastore-has-no-such-peer" in text
    assert "FAILED: closed: TypeError" in text


def test_a_store_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, and the exit code says so."""

    def place(_store: str) -> Any:
        raise EmulatorNotRun("sqlite", NotRun("there is none", "install one"))

    monkeypatch.setattr(command, "place", place)
    assert run(monkeypatch) == 1
    assert "sqlite: not run" in capsys.readouterr().err


def test_between() -> None:
    """The time between the steps of a run: as many as a block has, without what its start and end cost."""
    effect = Effect()

    def steps(number: int, tell: Callable[[], None]) -> None:
        for _ in range(number):
            effect()
            tell()

    assert len(next(between(steps, effect))) == BLOCK
    assert statistics.median(next(between(steps, effect))) > 0
    with pytest.raises(RuntimeError, match="ran 0 times"):
        next(between(lambda _number, tell: tell(), effect))


def test_peers_are_pinned() -> None:
    """Each peer is among what `make peers` installs, in one version."""
    lines = (ROOT / "tests/bench/peers/requirements.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].partition("[")[0] for line in lines if "==" in line}
    assert {peer.needs[0] for peer in comparing.PEERS} <= pinned


def test_readme() -> None:
    """The README's tables are those that the committed report gives."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = page.section(json.loads((ROOT / "docs/peers.json").read_text(encoding="utf-8")))
    assert page.insert(readme, text) == readme
    assert page.insert(readme, "other\n") != readme
    with pytest.raises(ValueError, match="peers:begin"):
        page.insert("no markers", text)
