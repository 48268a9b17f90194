"""The peers of one store, durastore and the raw driver, in turns of 25 samples each, in one process and one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version

from durastore.bench import measuring
from durastore.bench.measuring import BLOCK, FLOOR, disposable

from . import absurd_steps, dbos_steps, idemkit_calls, langgraph_savers, once_calls, powertools
from .peer import ONCE, REPLAY, SKIPPED, STEP, Line, Peer, Place
from .timing import REPLAYED

PEERS: tuple[Peer, ...] = (
    *dbos_steps.PEERS,
    *langgraph_savers.PEERS,
    *absurd_steps.PEERS,
    *powertools.PEERS,
    *idemkit_calls.PEERS,
    *once_calls.PEERS,
)
WARM_UP_BLOCKS = {"sqlite": 60, "postgresql": 40, "dynamodb": 2}
"""Of all that writes, before anything counts: past the first checkpoint of SQLite's write-ahead log, after which each write costs
more."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one thing costs. `median` and `p95` in microseconds, `floors` in medians of the raw driver's write.

    `times`: the median in medians of `like`, which is the row of durastore's that does the same; None for durastore itself.
    """

    by: str
    versions: dict[str, str]
    what: str
    median: float
    p95: float
    samples: int
    floors: float
    like: str | None = None
    times: float | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One store: who was measured on it, who is not installed, and who failed, with the reason."""

    store: str
    server: str
    steps: int
    replayed: int
    warm_up: int
    """Samples of all that writes that were thrown away first."""
    rows: list[Row]
    not_installed: list[str]
    failed: dict[str, str]


def _silent(_part: str, _text: str = "") -> None:
    """Its progress is not ours."""


_OWN = (FLOOR, "one read by primary key, by the raw driver", STEP, ONCE, SKIPPED, REPLAY)
"""What durastore and the raw driver do in the same run, as `durastore bench` does it."""


class _Turns:
    """Everybody who takes part, and their samples."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.lines: list[tuple[Peer | None, Line]] = []
        self.samples: dict[tuple[str, str], list[float]] = {}
        self.failed: dict[str, str] = {}

    def join(self, peer: Peer | None, lines: list[Line]) -> None:
        self.lines += [(peer, line) for line in lines]

    def fail(self, peer: Peer, exc: Exception) -> None:
        """Leave a peer out from here on, with all its lines."""
        self.failed[peer.name] = f"{type(exc).__name__}: {exc}"
        self.lines = [(who, line) for who, line in self.lines if who is not peer]

    def warm_up(self, blocks: int) -> None:
        for done in range(blocks):
            self._tell(f"warming up, {done} of {blocks} blocks")
            self._turn(lambda line: line.like in (STEP, ONCE) or line.what == FLOOR)
        self._turn(lambda _line: True)

    def measure(self, steps: int) -> None:
        self.samples = {_id(peer, line): [] for peer, line in self.lines}
        for done in range(0, steps, BLOCK):
            self._tell(f"{done} of {steps} samples of each")
            self._turn(lambda _line: True)

    def _turn(self, takes_part: Callable[[Line], bool]) -> None:
        for peer, line in list(self.lines):
            if not takes_part(line) or (peer is not None and peer.name in self.failed):
                continue
            try:
                block = next(line.kind)
            except Exception as exc:
                if peer is None:
                    raise
                self.fail(peer, exc)
            else:
                self.samples.setdefault(_id(peer, line), []).extend(block)


def _id(peer: Peer | None, line: Line) -> tuple[str, str]:
    return ("" if peer is None else peer.name, line.what)


def compare(place: Place, store: str, steps: int, tell: Callable[[str], None]) -> Comparison:
    """Measure everybody who is installed. Raises what the floor's driver and durastore raise; a peer's errors are in `failed`."""
    here = [peer for peer in PEERS if peer.store == store]
    absent = [name for peer in here for name, found in peer.versions().items() if found is None]
    turns = _Turns(tell)
    with ExitStack() as stack, disposable(place.url, _silent) as (own, raw, _url):
        turns.join(
            None,
            [Line(name, name, kind) for name, kind in measuring.kinds_of(own, raw, REPLAYED).items() if name in _OWN],
        )
        for peer in here:
            if None in peer.versions().values():
                continue
            try:
                turns.join(peer, stack.enter_context(peer.open(place)))
            except Exception as exc:
                turns.fail(peer, exc)
        turns.warm_up(WARM_UP_BLOCKS[store])
        turns.measure(steps)
    return Comparison(
        store,
        place.server,
        steps,
        REPLAYED,
        WARM_UP_BLOCKS[store] * BLOCK,
        _rows(turns),
        sorted(set(absent)),
        turns.failed,
    )


def _rows(turns: _Turns) -> list[Row]:
    own = {line.what: statistics.median(turns.samples["", line.what]) for peer, line in turns.lines if peer is None}
    return [_row(peer, line, turns.samples[_id(peer, line)], own) for peer, line in turns.lines]


def _row(peer: Peer | None, line: Line, samples: list[float], own: dict[str, float]) -> Row:
    median = statistics.median(samples)
    p95 = statistics.quantiles(samples, n=20, method="inclusive")[-1] if len(samples) > 1 else median
    measured = (line.what, round(median * 1e6, 1), round(p95 * 1e6, 1), len(samples), round(median / own[FLOOR], 2))
    if peer is None:
        return Row("durastore", {"durastore": version("durastore")}, *measured)
    versions = {name: found for name, found in peer.versions().items() if found is not None}
    return Row(peer.name, versions, *measured, line.like, round(median / own[line.like], 2), peer.remark)
