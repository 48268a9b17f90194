"""A long soak: random programs, processes, kills, freezes and network faults at once, round after round.

Each round has keys of its own. At its end every key's history is checked for linearizability, and what the effects did is
counted outside: under ``halt`` at most once, under a probe exactly once (the receiver fences by token), under ``rerun`` at most
once for each grant, by `transact` exactly one row that stands. The programs, the faults and their times follow from the seed;
how the machine mixes them does not, so that a replay is a good try, not a certainty.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from durastore.conformance.harness import UrlHarness
from durastore.conformance.history import Event, by_object
from durastore.conformance.nursery import Nursery
from durastore.conformance.patient import patient
from durastore.conformance.proxy import Fault, Proxy
from durastore.conformance.racing import last_look
from durastore.conformance.receiver import Receiver
from durastore.conformance.shrinking import unexplained_briefly
from durastore.conformance.soaker import LEASE, Soaker, Wrap, effect_keys, policy
from durastore.conformance.surface import Surface, chosen, surfaced
from durastore.errors import ConfigError, InDoubt
from durastore.store import Store

__all__ = ["Soak", "soak"]

PROCESSES, CALLS = 4, 40
FAULTS: tuple[Fault, ...] = ("drop", "lose", "reset", "refuse", "throttle", "delay")
RATE = 0.03
"""Of requests that are disturbed."""
ROUND_SECONDS_MAX = 60.0
_TICK = 0.01


@dataclass
class Soak:
    """What a soak did and found."""

    url: str
    seed: int
    seconds: float = 0.0
    rounds: int = 0
    operations: int = 0
    """Calls of bare verbs, and effects that were asked for."""
    effects: int = 0
    """Deliveries that were counted outside."""
    faults: Counter[str] = field(default_factory=Counter)
    """What was done to the network and to processes, by kind."""
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    surface: Surface = field(default_factory=chosen)

    @property
    def exit_code(self) -> int:
        """0 when nothing was violated, else 1."""
        return 1 if self.violations else 0

    def to_json(self) -> str:
        """For programs."""
        return json.dumps(vars(self), indent=2) + "\n"

    def to_text(self) -> str:
        """For people."""
        from durastore.conformance.rendering import plain

        verdict = "no violation" if not self.violations else f"{len(self.violations)} VIOLATIONS"
        head = f"durastore soak of {plain(self.url)}: {verdict} in {self.rounds} rounds, {self.seconds:.0f} s, seed {self.seed}"
        lines = [head, f"  surface: {self.surface}"]
        lines += [f"  operations: {self.operations}, effects counted outside: {self.effects}"]
        lines += [f"  faults: {_counts(self.faults)}", f"  outcomes: {_counts(self.outcomes)}"]
        lines += ["  " + plain(line) for violation in self.violations for line in violation.splitlines()]
        return "\n".join(lines) + "\n"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counter.items())) or "none"


def soak(
    url: str,
    *,
    seconds: float,
    seed: int = 1,
    setup: bool = True,
    wrap: Wrap | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Soak:
    """Soak the store that a URL names for some time, at least one round; ends at the first round with a violation.

    Round n has the seed ``seed + n``. `wrap` puts something between programs and their backend: for tests of the soak itself.
    Raises `ConfigError` for a store that no other process can open, and what `UrlHarness` raises.
    """
    from durastore import urls

    result, began = Soak(str(urls.parse(url)), seed), time.monotonic()
    with Nursery() as nursery:
        while not result.violations and (result.rounds == 0 or time.monotonic() - began < seconds):
            with UrlHarness(url, setup=setup) as harness, TemporaryDirectory(prefix="durastore-") as folder:
                _Round(harness, nursery, Path(folder), seed + result.rounds, result).run(wrap)
            result.rounds += 1
            result.seconds = time.monotonic() - began
            if result.rounds % 10 == 0:
                progress(f"{result.seconds:.0f} s, {result.rounds} rounds, {result.operations} operations")
    if result.violations:
        result.violations.append(
            f"replay: durastore conformance {result.url!r} --surface {result.surface} --soak 0 --seed {seed + result.rounds - 1}"
        )
    return result


class _Round:
    def __init__(self, harness: UrlHarness, nursery: Nursery, folder: Path, seed: int, result: Soak) -> None:
        if harness.url is None:
            raise ConfigError("a soak needs a store that other processes can open, not memory://")
        self._harness, self._nursery, self._folder = harness, nursery, folder
        self._seed, self._result, self._url = seed, result, harness.url
        self._random = random.Random(f"{seed} chaos")  # noqa: S311  a program, not a secret
        self._backend = harness.open()
        self._receiver = Receiver(folder / "outside")

    def run(self, wrap: Wrap | None) -> None:
        """Programs and faults, then the judgement."""
        data = self._harness.user_data
        if data is not None:
            data.prepare(patient(self._backend))
        with ExitStack() as stack:
            proxy = self._proxy(stack)
            url = self._url if proxy is None else proxy.through(self._url)
            soakers = [
                Soaker(url, self._seed, number, CALLS, self._folder, data, *self._end(number), wrap)
                for number in range(PROCESSES)
            ]
            self._let_run(soakers, proxy)
            if proxy is not None:
                self._result.faults.update(proxy.injected)
        self._judge(soakers)

    def _end(self, number: int) -> tuple[int, int]:
        """One process dies at a point of its own, one stands still at one; the others are hit from outside alone."""
        point = self._random.randrange(1, 2 * CALLS)
        return {0: (point, signal.SIGKILL), 1: (point, signal.SIGSTOP)}.get(number, (0, 0))

    def _proxy(self, stack: ExitStack) -> Proxy | None:
        with suppress(ValueError):
            proxy = stack.enter_context(Proxy.before(self._url))
            drawn = random.Random(f"{self._seed} network")  # noqa: S311  a program, not a secret
            proxy.draw = lambda: drawn.choice(FAULTS) if drawn.random() < RATE else None
            return proxy
        return None

    def _let_run(self, soakers: Sequence[Soaker], proxy: Proxy | None) -> None:
        children = {number: self._nursery.start(soaker) for number, soaker in enumerate(soakers)}
        plan, began, thaw = self._chaos(proxy), time.monotonic(), dict[int, float]()
        while children:
            now = time.monotonic() - began
            assert now < ROUND_SECONDS_MAX, "a round ends"
            while plan and plan[0][0] <= now:
                _, act = plan.pop(0)
                act(children, thaw, now)
            self._thaw(children, thaw, now)
            self._see_frozen(children, thaw, now)
            for number, child in list(children.items()):
                code = self._nursery.is_over(child)
                if code is not None:
                    del children[number]
                    self._note_end(number, code)
            time.sleep(_TICK)

    def _see_frozen(self, children: dict[int, int], thaw: dict[int, float], now: float) -> None:
        """Who stopped by itself goes on as well, sooner or later than its lease."""
        for number, child in children.items():
            if child in self._nursery.still and number not in thaw:
                thaw[number] = now + self._random.uniform(0.1, 2.5 * LEASE)
                self._result.faults["freeze"] += 1

    def _note_end(self, number: int, code: int) -> None:
        if code == -signal.SIGKILL:
            self._result.faults["kill"] += 1
        elif code != 0:
            self._result.violations.append(f"process {number} failed with exit code {code}")

    def _thaw(self, children: dict[int, int], thaw: dict[int, float], now: float) -> None:
        for number in [number for number, at in thaw.items() if at <= now]:
            del thaw[number]
            if number in children:
                self._nursery.go_on(children[number])

    def _chaos(
        self, proxy: Proxy | None
    ) -> list[tuple[float, Callable[[dict[int, int], dict[int, float], float], None]]]:
        """What happens when, in seconds."""
        found = [(self._random.uniform(0.05, 1.0), self._kill(self._random.randrange(PROCESSES)))]
        for _ in range(2):
            stands = self._random.uniform(0.1, 2.5 * LEASE)
            found.append((self._random.uniform(0.05, 1.0), self._freeze(self._random.randrange(PROCESSES), stands)))
        if proxy is not None and self._random.random() < 0.5:
            found.append((self._random.uniform(0.05, 1.0), self._sever(proxy)))
        return sorted(found, key=lambda entry: entry[0])

    def _kill(self, number: int) -> Callable[..., None]:
        def act(children: dict[int, int], *_: Any) -> None:
            if number in children:
                os.kill(children[number], signal.SIGKILL)

        return act

    def _freeze(self, number: int, seconds: float) -> Callable[..., None]:
        def act(children: dict[int, int], thaw: dict[int, float], now: float) -> None:
            if number in children:
                os.kill(children[number], signal.SIGSTOP)
                thaw[number] = now + seconds
                self._result.faults["freeze"] += 1

        return act

    def _sever(self, proxy: Proxy) -> Callable[..., None]:
        def act(*_: Any) -> None:
            proxy.sever()
            self._result.faults["sever"] += 1

        return act

    def _judge(self, soakers: Sequence[Soaker]) -> None:
        lines = [line for soaker in soakers for line in soaker.journal.read()]
        events = [event for soaker in soakers for event in soaker.journal.events()]
        self._result.operations += sum(line[0] in ("started", "asked") for line in lines)
        self._result.outcomes.update(line[-1] for line in lines if line[0] in ("outcome", "error"))
        self._result.violations += [line[1] for line in lines if line[0] == "failed"]
        self._result.violations += self._histories(events)
        for mode, key in effect_keys(self._seed):
            self._result.violations += self._effects(mode, key, lines)

    def _histories(self, events: Sequence[Event]) -> Iterator[str]:
        margin = int(getattr(self._backend, "clock_margin", 0))
        everything = [*events, *last_look(self._backend, events)]
        for history in by_object(everything).values():
            problem = unexplained_briefly(history, margin)
            if problem is not None:
                yield problem

    def _effects(self, mode: str, key: str, lines: Sequence[tuple[Any, ...]]) -> Iterator[str]:
        """Bring a key to its end, and count."""
        rows = [line[2] for line in lines if line[0] == "row" and line[1] == key]
        store = surfaced(Store(patient(self._backend)))
        asked = ("asked", key) in lines
        adopt = getattr(self._harness.user_data, "adopt", None)
        if rows and adopt is not None:
            adopt(rows)
        if mode == "transact":
            yield from self._standing(store, key, rows)
            return
        before = self._receiver.box(key)
        self._result.effects += len(before.tokens)
        done = _finished(store, mode, key, self._receiver) if asked else None
        after = self._receiver.box(key)
        yield from _counted(mode, key, before.tokens, after.tokens, done)
        wrong = {line[2] for line in lines if line[0] == "outcome" and line[1] == key} - {key}
        if wrong:
            yield f"{key}: answered {wrong}"

    def _standing(self, store: Store, key: str, rows: Sequence[str]) -> Iterator[str]:
        data, record = self._harness.user_data, store.record(key)
        if data is None:
            return
        standing = [row for row in rows if data.read(self._backend, row) is not None]
        self._result.effects += len(standing)
        if len(standing) != (record is not None and record.state == "committed"):
            yield f"{key}: {record and record.state}, and {len(standing)} rows stand"


def _finished(store: Store, mode: str, key: str, receiver: Receiver) -> bool:
    """Let a last caller have the key, as soon as its lease has lapsed. Whether it is done."""
    ckpt = store.checkpoint(key, lease=LEASE, wait=30.0, in_doubt=policy(mode, receiver))

    def effect() -> str:
        from durastore.claims import current

        claim = current()
        assert claim is not None
        receiver.deliver(key, claim.token, fence=mode == "probe")
        return key

    try:
        return ckpt.run_once(key, effect).value == key
    except InDoubt:
        return False


def _counted(mode: str, key: str, before: Sequence[int], after: Sequence[int], done: bool | None) -> Iterator[str]:
    if len(set(after)) != len(after):
        yield f"{key}: one grant had its effect twice: tokens {after}"
    if done and not after:
        yield f"{key}: done without its effect"
    if done is False and mode != "halt":
        yield f"{key}: never done, under {mode}"
    if mode in ("halt", "probe") and len(after) > 1:
        yield f"{key}: {len(after)} effects under {mode}, tokens {after}"
    if done is None and before:
        yield f"{key}: an effect that nobody asked for"
