"""`run_agent`: one durable step for each input, resumed where the last incarnation stopped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Generic, Literal, TypeAlias, TypeVar, Union

from durastore import keys, rules
from durastore.acquiring import acquire, admit, request
from durastore.checkpoint import Checkpoint
from durastore.claims import Claim
from durastore.contract import ClaimRequest, StoredProgress, StoredRecord
from durastore.crew import Crew
from durastore.errors import ConfigError, InvalidKey
from durastore.granularity import Granularity
from durastore.holding import UNBEGUN, give_back, read_result
from durastore.protocol import perform, run_once
from durastore.steps import Inline, Steps, drive
from durastore.terms import Outcome, Status, Terms

__all__ = ["END", "Plan", "Source", "Summary", "Window", "one", "one_by_one", "run_agent"]

I = TypeVar("I")  # noqa: E741  an input item
REPLAY_BATCH = 256
"""Keys that are read at once when a resumed run finds steps that are done already."""
SKIPS_PER_SAVE = 1000
"""Replayed steps after which the progress is saved, so that the next resume need not replay them again."""
SAVE_SHARE = 10
"""With concurrency: how many times as long as a save takes, the next one waits."""
AHEAD_MAX = 1000
"""Steps that may be done ahead of an unfinished one, with concurrency: bounds the memory, not the threads."""
END: Any = object()
"""What `Source.take` gives after the last item."""
SaveEvery: TypeAlias = Union[int, Literal["auto"], Granularity]  # noqa: UP007  evaluated on 3.10
OnStep: TypeAlias = Callable[[int, Outcome[Any]], Any]
OnError: TypeAlias = Callable[[int, Exception], bool]


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended. `processed` counts the steps done since the run began, the other four those of this call."""

    processed: int
    executed: int
    skipped: int
    awaited: int
    recovered: int


def run_agent(
    inputs: Iterable[I],
    ckpt: Checkpoint,
    call_model: Callable[[I], Any],
    *,
    key: Callable[[I], str] | None = None,
    concurrency: int = 1,
    save_every: SaveEvery = 1,
    on_step: OnStep | None = None,
    on_error: OnError | None = None,
    returns: Any = None,
) -> Summary:
    """Run ``call_model(item)`` once for every item, in order, each under its own key, and resume after a crash.

    The key is ``RUN:step:N``, or ``key(item)``. The item's content hash is the step's fingerprint, so that inputs which changed
    between resumes raise `FingerprintMismatch` (an item that cannot be hashed stably carries none). Result, progress and, for a
    sequence, the claim of the next step land in one write. Progress is the number of finished steps from the start, saved every
    `save_every` steps (no oftener than the store sustains writes of one run) and at the end; ``{"processed": N}`` is its
    state. ``"auto"`` chooses by what a save costs, what a step takes and how often workers fail (assumed: once an hour, else
    pass a `Granularity`), and goes on choosing. Steps found done are read in batches.

    `inputs` may be a generator, which must yield the same items again on resume; it is consumed one item at a time. With
    `concurrency` > 1, that many threads run steps; `on_step(step, outcome)` is then called in the order in which they finish.
    The first error stops the run once the steps under way have ended, unless ``on_error(step, error)`` is true: then the run
    goes on, progress stays before the first step that was left undone, and the next call tries it again.

    `returns`: a type that each step's result is decoded into, as in `Checkpoint.run_once`; `on_step` sees it.

    Raises: what a step raises (see `Checkpoint.run_once`); `ConfigError` for bad options.
    """
    plan = Plan(ckpt, call_model, key, every(save_every), on_step, on_error, returns=returns)
    plan.check(concurrency)
    with ckpt.run.span():
        if concurrency == 1:
            return drive(one_by_one(plan, Source(inputs)))
        return _side_by_side(plan, Source(inputs), concurrency)


def every(chosen: SaveEvery) -> int | Granularity:
    """What `save_every` stands for. Raises `ConfigError` for what it can't be."""
    if chosen == "auto":
        return Granularity()
    if isinstance(chosen, Granularity) or (isinstance(chosen, int) and chosen >= 1):
        return chosen
    raise ConfigError(f"save_every is a number of steps, 1 or more, or 'auto', not {chosen!r}")


@dataclass(slots=True)
class Plan(Generic[I]):
    """What a run does with each item, and how far it is."""

    ckpt: Checkpoint
    call_model: Callable[[I], Any]
    key: Callable[[I], str] | None
    granularity: int | Granularity
    on_step: OnStep | None
    on_error: Callable[[int, Exception], Any] | None = None
    _: KW_ONLY
    returns: InitVar[Any] = None
    terms: Terms = field(init=False)
    """How each step's key is run."""
    counts: dict[Status, int] = field(
        default_factory=lambda: {"executed": 0, "skipped": 0, "awaited": 0, "recovered": 0}
    )
    saved: int = 0
    """The step of the progress that is stored."""
    saved_at: float = field(default=-math.inf)
    """When it was stored, by the monotonic clock."""
    save_took: float = 0.0
    """Seconds that the last save which no commit carried took."""
    gap: bool = False
    """Whether a step was left undone, so that progress may not go on (one step after the other)."""

    def __post_init__(self, returns: Any) -> None:
        self.terms = self.ckpt.terms_with(returns=returns)

    def check(self, concurrency: int) -> None:
        """Raise `ConfigError` for options that make no sense."""
        if concurrency < 1:
            raise ConfigError(f"concurrency is 1 or more, not {concurrency!r}")

    @property
    def save_every(self) -> int:
        """Steps between two saves, by now."""
        return self.granularity if isinstance(self.granularity, int) else self.granularity.every

    def key_of(self, step: int, item: I) -> str:
        return keys.step_key(self.ckpt.run_id, step) if self.key is None else keys.checked(self.key(item))

    def request(self, step: int, item: I) -> ClaimRequest:
        return request(self.ckpt.run, self.key_of(step, item), self.terms, _fingerprint(item))

    def progress(self, step: int) -> StoredProgress:
        return self.ckpt.run.progress(step, {"processed": step})

    def note(self, step: int, outcome: Outcome[Any]) -> Any:
        self.counts[outcome.status] += 1
        return None if self.on_step is None else self.on_step(step, outcome)

    def summary(self, processed: int) -> Summary:
        return Summary(processed, **self.counts)

    def due(self, step: int) -> bool:
        """Whether progress up to this step is to be saved: often enough, but no oftener than the store sustains.

        Some stores take one run's progress about once a second (`progress_interval`). The results carry the truth: what a save
        leaves out is replayed on resume, at one read for hundreds of keys.
        """
        if self.gap or step - self.saved < self.save_every:
            return False
        interval: float = getattr(self.ckpt.store.backend, "progress_interval", 0.0)
        return interval <= 0 or self.ckpt.store.clock.monotonic() - self.saved_at >= interval

    def note_saved(self, step: int) -> None:
        """Progress up to this step is stored."""
        self.saved, self.saved_at = step, self.ckpt.store.clock.monotonic()

    def leave(self, step: int, error: Exception) -> Any:
        """What says whether the run goes on although this step was not done."""
        return self.on_error is not None and self.on_error(step, error)

    def save(self, step: int) -> None:
        """Save progress that no commit carried."""
        if step > self.saved and not self.gap:
            store, clock = self.ckpt.store, self.ckpt.store.clock
            began, steps, since = clock.monotonic(), step - self.saved, self.saved_at
            store.call("save", store.backend.save, self.progress(step))
            self.note_saved(step)
            self.save_took = self.saved_at - began
            if isinstance(self.granularity, Granularity) and since > -math.inf:
                self.granularity.note_save(self.save_took, (began - since) / steps)


def _fingerprint(item: Any) -> str | None:
    try:
        return keys.digest(item)
    except InvalidKey:
        return None


class Source(Generic[I]):
    """The inputs from a step on. Only a sequence can be looked ahead into without waiting for it."""

    def __init__(self, inputs: Iterable[I]) -> None:
        self._inputs = inputs
        self._next = 0
        self._iterator: Iterator[I] | None = None

    def skip(self, steps: int) -> None:
        """Leave out the items of steps that are done."""
        self._next = steps
        if not isinstance(self._inputs, Sequence):
            self._iterator = islice(iter(self._inputs), steps, None)

    def take(self) -> Any:
        """The next item, `END` after the last."""
        if self._iterator is not None:
            return next(self._iterator, END)
        item = self.ahead(1)
        self._next += 1
        return item[0] if item else END

    def advance(self, steps: int) -> None:
        """Leave out items of a sequence that were seen by `ahead`."""
        self._next += steps

    def is_at_end(self) -> bool:
        """Whether the last item was taken, as far as that can be told without waiting for another one."""
        return isinstance(self._inputs, Sequence) and self._next >= len(self._inputs)

    @property
    def looks_ahead(self) -> bool:
        """Whether items may be taken before their turn."""
        return isinstance(self._inputs, Sequence)

    def ahead(self, count: int) -> Sequence[I]:
        """Up to `count` items that come next."""
        return self._inputs[self._next : self._next + count] if isinstance(self._inputs, Sequence) else []


def one_by_one(plan: Plan[I], source: Source[I]) -> Steps[Summary]:
    """The run, one step after the other."""
    run, terms = plan.ckpt.run, plan.terms
    plan.saved = step = (yield plan.ckpt.load).step
    source.skip(step)
    replay: dict[str, StoredRecord] = {}
    held: Claim | None = None
    try:
        while (item := (yield Inline(source.take))) is not END:
            claim, held = held, None
            try:
                got = yield from (_enter(plan, replay, step, item) if claim is None else admit(run, claim, terms))
                if isinstance(got, Claim):
                    got, held = yield from _fused(plan, source, got, item, step)
            except Exception as exc:
                if not (yield Inline(partial(plan.leave, step, exc))):
                    raise
                yield partial(plan.save, step)
                plan.gap = True
                step += 1
                continue
            step += 1
            yield Inline(partial(plan.note, step - 1, got))
            if got.status == "skipped":
                step, replay = yield from _skip_on(plan, source, step, replay)
    except BaseException:
        if held is not None:
            yield from give_back(run, held, UNBEGUN, in_doubt=held.took_over is not None)
        raise
    yield partial(plan.save, step)
    return plan.summary(plan.saved if plan.gap else step)


def _enter(plan: Plan[I], replay: dict[str, StoredRecord], step: int, item: I) -> Steps[Claim | Outcome[Any]]:
    """The step's claim or result: from what was read ahead, else from the store."""
    record = replay.pop(plan.key_of(step, item), None) if replay else None
    if record is None:
        return (yield from acquire(plan.ckpt.run, plan.request(step, item), plan.terms))
    if rules.mismatch(record.fingerprint, _fingerprint(item)):
        raise rules.mismatch_error(record)
    value = yield partial(read_result, plan.ckpt.run, record.key, rules.committed(record).result, plan.terms)
    plan.ckpt.run.count("skipped")
    return Outcome(value, "skipped")


def _fused(
    plan: Plan[I], source: Source[I], claim: Claim, item: I, step: int
) -> Steps[tuple[Outcome[Any], Claim | None]]:
    """Run one step, and claim the next one in the same write where the inputs can be looked into."""
    run, terms = plan.ckpt.run, plan.terms
    try:
        then = _next_request(plan, source, step + 1)
        last = source.is_at_end()
        progress = plan.progress(step + 1) if plan.due(step + 1) or (last and not plan.gap) else None
    except BaseException:
        yield from give_back(run, claim, UNBEGUN, in_doubt=claim.took_over is not None)
        raise
    effect, began = partial(plan.call_model, item), run.store.clock.monotonic()
    outcome, held, took = yield from perform(run, claim, effect, terms, progress=progress, then=lambda: then)
    if progress is not None:
        plan.note_saved(step + 1)
    if isinstance(plan.granularity, Granularity):
        whole = run.store.clock.monotonic() - began
        plan.granularity.note_commit(saved=progress is not None, commit=took, step=whole)
    return outcome, held


def _next_request(plan: Plan[I], source: Source[I], step: int) -> ClaimRequest | None:
    """The request for the next step, None where there is none to see. An error in making it is that step's, at its turn."""
    try:
        ahead = source.ahead(1)
        return plan.request(step, ahead[0]) if ahead else None
    except Exception:  # noqa: BLE001  raised again when the step is taken
        return None


def _skip_on(
    plan: Plan[I], source: Source[I], step: int, replay: dict[str, StoredRecord]
) -> Steps[tuple[int, dict[str, StoredRecord]]]:
    """After a step that was done already: the next step that may not be, and what was read ahead from there."""
    while True:
        if step - plan.saved >= max(SKIPS_PER_SAVE, plan.save_every):
            yield partial(plan.save, step)
        if not replay:
            replay = yield from _look_ahead(plan, source, step)
        skipped = (yield Inline(partial(_count_off, plan, source, step, replay))) if plan.on_step is None else 0
        step += skipped
        if replay or not skipped:
            return step, replay


def _count_off(plan: Plan[I], source: Source[I], step: int, replay: dict[str, StoredRecord]) -> int:
    """Skip the steps in `replay`, up to the first that takes more than a look at its record: how many.

    One that is wrong, or whose payload is in chunks, is left to the step's own turn, which tells what there is to tell.
    """
    skipped = 0
    with suppress(Exception):
        for item in source.ahead(len(replay)):
            key = plan.key_of(step + skipped, item)
            record = replay[key]
            result = rules.committed(record).result
            if result.blob is not None or rules.mismatch(record.fingerprint, _fingerprint(item)):
                break
            read_result(plan.ckpt.run, key, result, plan.terms)
            del replay[key]
            skipped += 1
    source.advance(skipped)
    plan.counts["skipped"] += skipped
    plan.ckpt.run.count("skipped", skipped)
    return skipped


def _look_ahead(plan: Plan[I], source: Source[I], step: int) -> Steps[dict[str, StoredRecord]]:
    """The records of the next keys that are committed, by key, in one read."""
    store = plan.ckpt.store
    names = [plan.key_of(step + offset, item) for offset, item in enumerate(source.ahead(REPLAY_BATCH))]
    records = (yield partial(store.call, "read", store.backend.read, names)) if names else []
    return {record.key: record for record in records if record is not None and record.state == "committed"}


class Window(Generic[I]):
    """The steps of a run whose steps finish in any order: which to start, and how long the finished prefix is."""

    def __init__(self, plan: Plan[I], start: int) -> None:
        self._plan = plan
        self._finished: set[int] = set()
        self._left: int | None = None
        self.prefix = self.step = start
        """Steps that are done without a gap, and the next step to start."""
        plan.saved = start

    def room(self, under_way: int, concurrency: int) -> bool:
        """Whether to start another step."""
        ahead = self.step if self._left is None else min(self.step, self._left)
        return under_way < concurrency and ahead - self.prefix < AHEAD_MAX + concurrency

    def start(self) -> int:
        """The number of the step that is started now."""
        self.step += 1
        return self.step - 1

    def finish(self, step: int) -> None:
        """A step is done. Beyond one that was left undone, progress can't go, and nothing is kept."""
        if self._left is not None and step > self._left:
            return
        self._finished.add(step)
        while self.prefix in self._finished:
            self._finished.remove(self.prefix)
            self.prefix += 1

    def leave(self, step: int) -> None:
        """A step was left undone: the finished prefix ends before it."""
        self._left = step if self._left is None else min(step, self._left)
        self._finished = {done for done in self._finished if done < self._left}

    def due(self) -> bool:
        """Whether to save the progress. It takes a write of its own here: at most a tenth of the time is spent on them."""
        plan = self._plan
        pause = plan.ckpt.store.clock.monotonic() - plan.saved_at
        return plan.due(self.prefix) and pause >= SAVE_SHARE * plan.save_took


def _side_by_side(plan: Plan[I], source: Source[I], concurrency: int) -> Summary:
    """Steps in threads. Progress never goes beyond an unfinished step."""
    window = Window(plan, plan.ckpt.load().step)
    source.skip(window.prefix)
    handed_out = concurrency * 2 if source.looks_ahead else concurrency
    crew = Crew(plan.ckpt.run, plan.terms, concurrency)
    try:
        while True:
            while window.room(crew.under_way, handed_out) and (item := source.take()) is not END:
                step = window.start()
                crew.hand_out(step, partial(plan.request, step, item), partial(plan.call_model, item))
            if not crew.under_way:
                break
            for step, outcome, error in crew.ended():
                if outcome is not None:
                    plan.note(step, outcome)
                    window.finish(step)
                elif isinstance(error, Exception) and plan.leave(step, error):
                    window.leave(step)
                elif error is not None:
                    raise error
            if window.due():
                plan.save(window.prefix)
    finally:
        crew.leave()
    plan.save(window.prefix)
    return plan.summary(window.prefix)


def one(plan: Plan[I], step: int, item: I) -> Steps[Outcome[Any]]:
    """One step by itself."""
    asked = plan.request(step, item)
    effect = partial(plan.call_model, item)
    return run_once(plan.ckpt.run, asked.key, effect, plan.terms, fingerprint=asked.fingerprint)
