"""`run_agent`: one durable step for each input, resumed where the last incarnation stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from durastore import keys, rules
from durastore.checkpoint import Checkpoint
from durastore.claims import Claim
from durastore.contract import ClaimRequest, StoredProgress, StoredRecord
from durastore.errors import ConfigError, InvalidKey
from durastore.protocol import (
    Outcome,
    Status,
    Steps,
    acquire,
    admit,
    drive,
    give_back,
    perform,
    request,
    run_once,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Summary", "run_agent"]

I = TypeVar("I")  # noqa: E741  an input item
REPLAY_BATCH = 256
"""Keys that are read at once when a resumed run finds steps that are done already."""
SKIPS_PER_SAVE = 1000
"""Replayed steps after which the progress is saved, so that the next resume need not replay them again."""
AHEAD_MAX = 1000
"""Steps that may be done ahead of an unfinished one, with concurrency: bounds the memory, not the threads."""
_END: Any = object()
OnStep: TypeAlias = Callable[[int, Outcome[Any]], Any]


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
    save_every: int = 1,
    on_step: OnStep | None = None,
) -> Summary:
    """Run ``call_model(item)`` once for every item, in order, each under its own key, and resume after a crash.

    The key is ``RUN:step:N``, or ``key(item)``. The item's content hash is the step's fingerprint, so that inputs which changed
    between resumes raise `FingerprintMismatch` (an item that cannot be hashed stably carries none). Result, progress and, for a
    sequence, the claim of the next step land in one write. Progress is the number of finished steps from the start, saved at
    least every `save_every` steps and at the end; ``{"processed": N}`` is its state. Steps found done are read in batches.

    `inputs` may be a generator, which must yield the same items again on resume; it is consumed one item at a time. With
    `concurrency` > 1, that many threads run steps; `on_step(step, outcome)` is then called in the order in which they finish.
    The first error stops the run once the steps under way have ended.

    Raises: what a step raises (see `Checkpoint.run_once`); `ConfigError` for bad options.
    """
    if concurrency < 1 or save_every < 1:
        raise ConfigError("concurrency and save_every are 1 or more")
    plan = _Plan(ckpt, call_model, key, save_every, on_step)
    if concurrency == 1:
        return drive(_one_by_one(plan, inputs))
    return _side_by_side(plan, inputs, concurrency)


@dataclass(slots=True)
class _Plan(Generic[I]):
    """What a run does with each item, and how far it is."""

    ckpt: Checkpoint
    call_model: Callable[[I], Any]
    key: Callable[[I], str] | None
    save_every: int
    on_step: OnStep | None
    counts: dict[Status, int] = field(
        default_factory=lambda: {"executed": 0, "skipped": 0, "awaited": 0, "recovered": 0}
    )
    saved: int = 0
    """The step of the progress that is stored."""

    def request(self, step: int, item: I) -> ClaimRequest:
        name = keys.step_key(self.ckpt.run_id, step) if self.key is None else keys.checked(self.key(item))
        return request(self.ckpt.run, name, self.ckpt.terms, _fingerprint(item))

    def progress(self, step: int) -> StoredProgress:
        return self.ckpt.run.progress(step, {"processed": step})

    def note(self, step: int, outcome: Outcome[Any]) -> None:
        self.counts[outcome.status] += 1
        if self.on_step is not None:
            self.on_step(step, outcome)

    def summary(self, processed: int) -> Summary:
        return Summary(processed, **self.counts)

    def save(self, step: int) -> None:
        """Save progress that no commit carried."""
        if step > self.saved:
            store = self.ckpt.store
            store.call("save", store.backend.save, self.progress(step))
            self.saved = step


def _fingerprint(item: Any) -> str | None:
    try:
        return keys.digest(item)
    except InvalidKey:
        return None


class _Source(Generic[I]):
    """The inputs from a step on. Only a sequence can be looked ahead into without waiting for it."""

    def __init__(self, inputs: Iterable[I], start: int) -> None:
        self._sequence: Sequence[I] | None = inputs if isinstance(inputs, Sequence) else None
        self._next = start
        self._iterator: Iterator[I] = islice(iter(inputs), start, None) if self._sequence is None else iter(())

    def take(self) -> I:
        """The next item, `_END` after the last."""
        if self._sequence is None:
            return next(self._iterator, _END)
        item = self._sequence[self._next] if self._next < len(self._sequence) else _END
        self._next += 1
        return item

    def ahead(self, count: int) -> Sequence[I]:
        """Up to `count` items that come next."""
        return [] if self._sequence is None else self._sequence[self._next : self._next + count]


def _one_by_one(plan: _Plan[I], inputs: Iterable[I]) -> Steps[Summary]:
    run, terms = plan.ckpt.run, plan.ckpt.terms
    plan.saved = step = (yield plan.ckpt.load).step
    source = _Source(inputs, step)
    replay: dict[str, StoredRecord] = {}
    held: Claim | None = None
    try:
        while (item := (yield source.take)) is not _END:
            claim, held = held, None
            got = yield from (_enter(plan, replay, step, item) if claim is None else admit(run, claim, terms))
            if isinstance(got, Claim):
                got, held = yield from _fused(plan, source, got, item, step)
            elif got.status == "skipped" and not replay:
                replay = yield from _look_ahead(plan, source, step + 1)
            step += 1
            plan.note(step - 1, got)
            if step - plan.saved >= max(SKIPS_PER_SAVE, plan.save_every):
                yield partial(plan.save, step)
    except BaseException:
        if held is not None:
            yield from give_back(run, held, "left before its effect began", in_doubt=held.took_over is not None)
        raise
    yield partial(plan.save, step)
    return plan.summary(step)


def _enter(plan: _Plan[I], replay: dict[str, StoredRecord], step: int, item: I) -> Steps[Claim | Outcome[Any]]:
    """The step's claim or result: from what was read ahead, else from the store."""
    asked = plan.request(step, item)
    record = replay.pop(asked.key, None)
    if record is None:
        return (yield from acquire(plan.ckpt.run, asked, plan.ckpt.terms))
    if rules.mismatch(record.fingerprint, asked.fingerprint):
        raise rules.mismatch_error(record)
    value = yield partial(plan.ckpt.store.unpack, rules.committed(record).result)
    plan.ckpt.run.count("skipped")
    return Outcome(value, "skipped")


def _fused(
    plan: _Plan[I], source: _Source[I], claim: Claim, item: I, step: int
) -> Steps[tuple[Outcome[Any], Claim | None]]:
    """Run one step, and claim the next one in the same write where the inputs can be looked into."""
    run, terms = plan.ckpt.run, plan.ckpt.terms
    ahead = source.ahead(1)
    then = plan.request(step + 1, ahead[0]) if ahead else None
    progress = plan.progress(step + 1) if step + 1 - plan.saved >= plan.save_every else None
    effect = partial(plan.call_model, item)
    outcome, held = yield from perform(run, claim, effect, terms, progress=progress, then=then)
    if progress is not None:
        plan.saved = step + 1
    return outcome, held


def _look_ahead(plan: _Plan[I], source: _Source[I], step: int) -> Steps[dict[str, StoredRecord]]:
    """The records of the next keys that are committed, by key, in one read."""
    store = plan.ckpt.store
    names = [plan.request(step + offset, item).key for offset, item in enumerate(source.ahead(REPLAY_BATCH))]
    records = (yield partial(store.call, "read", store.backend.read, names)) if names else []
    return {record.key: record for record in records if record is not None and record.state == "committed"}


def _side_by_side(plan: _Plan[I], inputs: Iterable[I], concurrency: int) -> Summary:
    """Steps in threads. Progress never goes beyond an unfinished step."""
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    plan.saved = prefix = plan.ckpt.load().step
    source = _Source(inputs, prefix)
    step = prefix
    under_way: dict[Future[Outcome[Any]], int] = {}
    finished: set[int] = set()
    with ThreadPoolExecutor(concurrency, thread_name_prefix="durastore-step") as pool:
        try:
            while True:
                while len(under_way) < concurrency and step - prefix < AHEAD_MAX + concurrency:
                    if (item := source.take()) is _END:
                        break
                    under_way[pool.submit(copy_context().run, _step, plan, step, item)] = step
                    step += 1
                if not under_way:
                    break
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    done = under_way.pop(future)
                    outcome = future.result()
                    finished.add(done)
                    plan.note(done, outcome)
                while prefix in finished:
                    finished.remove(prefix)
                    prefix += 1
                if prefix - plan.saved >= plan.save_every:
                    plan.save(prefix)
        except BaseException:
            wait(under_way)
            raise
    plan.save(prefix)
    return plan.summary(prefix)


def _step(plan: _Plan[I], step: int, item: I) -> Outcome[Any]:
    asked = plan.request(step, item)
    return drive(
        run_once(
            plan.ckpt.run, asked.key, partial(plan.call_model, item), plan.ckpt.terms, fingerprint=asked.fingerprint
        )
    )
