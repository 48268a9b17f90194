"""`run_agent`: one durable step for each input, resumed where it stopped, never beyond an unfinished step."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

import durastore
from durastore import Summary, run_agent
from durastore.agent import REPLAY_BATCH
from tests.unit.virtual import Scripted, virtual

SIDES = pytest.mark.parametrize("concurrency", [1, 4])
KINDS = pytest.mark.parametrize("kind", [list, iter], ids=["sequence", "generator"])


class Stop(Exception):
    """A crash of the model."""


class Model:
    """Counts its calls, and crashes at chosen items."""

    def __init__(self, *crashes: Any) -> None:
        self.seen: list[Any] = []
        self.crashes = list(crashes)

    def __call__(self, item: Any) -> Any:
        self.seen.append(item)
        if item in self.crashes:
            self.crashes.remove(item)
            raise Stop(item)
        return item * 10


def live(backend: Scripted) -> list[str]:
    return [record.key for record in backend._space.records.values() if record.state == "claimed"]


@KINDS
@SIDES
def test_run_and_resume(kind: Any, concurrency: int) -> None:
    """A run, a second one that finds all done by its progress, and a third that finds it by its keys."""
    store, backend, _ = virtual()
    ckpt, model = store.checkpoint("run"), Model()
    items = list(range(20))
    assert run_agent(kind(items), ckpt, model, concurrency=concurrency) == Summary(20, 20, 0, 0, 0)
    assert ckpt.load() == (20, {"processed": 20})
    assert run_agent(kind(items), ckpt, model, concurrency=concurrency) == Summary(20, 0, 0, 0, 0)
    ckpt.reset()
    assert run_agent(kind(items), ckpt, model, concurrency=concurrency) == Summary(20, 0, 20, 0, 0)
    assert sorted(model.seen) == items
    assert live(backend) == []
    assert [store.record(f"run:step:{step}").result for step in (0, 19)] == [0, 190]


@KINDS
@SIDES
def test_no_inputs(kind: Any, concurrency: int) -> None:
    """Nothing to do is done at once."""
    store, _, _ = virtual()
    assert run_agent(kind([]), store.checkpoint("run"), Model(), concurrency=concurrency) == Summary(0, 0, 0, 0, 0)


@KINDS
@SIDES
def test_step_that_fails(kind: Any, concurrency: int) -> None:
    """The first error ends the run; no key stays claimed, and a resume does what is left, and only that."""
    store, backend, _ = virtual()
    ckpt, model = store.checkpoint("run"), Model(7)
    with pytest.raises(Stop):
        run_agent(kind(range(12)), ckpt, model, concurrency=concurrency)
    assert live(backend) == []
    assert ckpt.load().step <= 7
    done = set(model.seen)
    model.seen.clear()
    assert run_agent(kind(range(12)), ckpt, model, concurrency=concurrency).processed == 12
    assert sorted(model.seen) == sorted(set(range(12)) - done | {7})


def test_progress_is_the_finished_prefix() -> None:
    """With steps side by side, progress never goes beyond one that is not finished."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    first, rest = threading.Event(), threading.Semaphore(0)
    seen: list[int] = []

    def model(item: int) -> int:
        if item == 0:
            first.wait(30)
        rest.release()
        return item

    def note(step: int, _outcome: Any) -> None:
        seen.append(ckpt.load().step)
        if step == 6:
            first.set()

    assert run_agent(range(7), ckpt, model, concurrency=3, on_step=note).processed == 7
    assert set(seen[:6]) == {0}
    assert ckpt.load().step == 7


def test_fused_steps() -> None:
    """Over a sequence, a step is one write: commit, progress and the next claim."""
    store, backend, _ = virtual()
    run_agent(range(10), store.checkpoint("run"), Model())
    assert backend.calls == ["load", "claim", *["commit"] * 10]


def test_generator_is_not_read_ahead() -> None:
    """A generator is asked for an item only when the one before is durable: it may wait for the world."""
    store, backend, _ = virtual()

    def feed() -> Iterator[int]:
        for number in range(3):
            assert backend.calls.count("commit") == number
            yield number

    assert run_agent(feed(), store.checkpoint("run"), Model()).executed == 3


@pytest.mark.parametrize("where", ["on_step", "key", "next item"])
def test_leaving_the_loop(where: str) -> None:
    """Left between two steps, the claim of the next one is given back, and not in doubt: its effect never began."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run", in_doubt="halt")

    class Items(list):
        def __getitem__(self, index: Any) -> Any:
            if where == "next item" and index.start == 3 and backend.calls.count("commit") == 3:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    def note(step: int, _outcome: Any) -> None:
        if where == "on_step" and step == 2:
            raise KeyboardInterrupt

    def key(item: int) -> str:
        if where == "key" and item == 4:
            raise KeyboardInterrupt
        return f"item:{item}"

    with pytest.raises(KeyboardInterrupt):
        run_agent(Items(range(6)), ckpt, Model(), on_step=note, key=key)
    assert live(backend) == []
    assert list(store.records(state="in_doubt")) == []
    assert clock.slept == []


def test_bad_next_key() -> None:
    """A key that cannot be made is its own step's error: the step before is done first."""
    store, backend, _ = virtual()
    model = Model()
    with pytest.raises(ZeroDivisionError):
        run_agent([3, 2, 1, 0], store.checkpoint("run"), model, key=lambda item: f"key:{6 // item}")
    assert model.seen == [3, 2, 1]
    assert live(backend) == []


def test_next_key_that_is_not_free() -> None:
    """When the next key is somebody else's, the commit lands all the same, and the step waits its turn."""
    store, backend, clock = virtual()
    other, _, _ = virtual(clock, backend._space)
    other.checkpoint("other").run_once("run:step:1", lambda: "theirs")
    assert run_agent(range(3), store.checkpoint("run"), Model()) == Summary(3, 2, 1, 0, 0)


def test_save_every() -> None:
    """Progress is saved every so often, and at the end; the results do not wait for it."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    saved: list[int] = []
    run_agent(range(10), ckpt, Model(), save_every=4, on_step=lambda _step, _outcome: saved.append(ckpt.load().step))
    assert saved == [0, 0, 0, 4, 4, 4, 4, 8, 8, 10]
    assert ckpt.load() == (10, {"processed": 10})


@pytest.mark.parametrize("kind", [list, iter], ids=["sequence", "generator"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_saves_are_as_rare_as_the_store_needs(kind: Any, concurrency: int) -> None:
    """Where a store sustains one save of a run a second, a fast run saves no oftener, and at the end all the same."""
    store, backend, clock = virtual()
    backend.progress_interval = 1.0
    ckpt = store.checkpoint("run")
    saved: list[int] = []

    def note(_step: int, _outcome: Any) -> None:
        clock.elapsed += 0.1
        saved.append(ckpt.load().step)

    assert run_agent(kind(range(100)), ckpt, Model(), on_step=note, concurrency=concurrency).processed == 100
    assert len(set(saved)) <= 13
    assert ckpt.load() == (100, {"processed": 100})


def test_replay_in_batches() -> None:
    """Resuming far behind the cargo costs one read for hundreds of keys, not one each."""
    store, backend, _ = virtual()
    ckpt, count = store.checkpoint("run"), 4 * REPLAY_BATCH
    run_agent(range(count), ckpt, Model())
    ckpt.reset()
    backend.calls.clear()
    assert run_agent(range(count), ckpt, Model()).skipped == count
    assert backend.calls.count("read") <= 5
    assert backend.calls.count("claim") <= 5


@pytest.mark.parametrize("lag", [0, 100, 2000])
@SIDES
def test_changed_inputs(lag: int, concurrency: int) -> None:
    """Inputs that changed between two resumes are an error, not another item's answer; also when the keys are read in batches."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    items = list(range(lag + 5))
    run_agent(items, ckpt, Model())
    ckpt.reset()
    changed = [*items[:-1], "else"]
    with pytest.raises(durastore.FingerprintMismatch, match=f"run:step:{lag + 4}"):
        run_agent(changed, ckpt, Model(), concurrency=concurrency)


def test_items_without_a_content() -> None:
    """An item that cannot be hashed stably carries no fingerprint, and runs."""
    store, _, _ = virtual()
    assert run_agent([object(), {1}, None], store.checkpoint("run"), lambda _item: 1).executed == 3
    assert [record.fingerprint is None for record in store.records()] == [True, True, False]


def test_keys_of_ones_own() -> None:
    """A key by content: the same item twice in the inputs runs once."""
    store, _, _ = virtual()
    model = Model()
    summary = run_agent([1, 2, 1, 1, 2], store.checkpoint("run"), model, key=lambda item: f"item:{item}")
    assert (summary, model.seen) == (Summary(5, 2, 3, 0, 0), [1, 2])


def test_on_step() -> None:
    """Called with the step and its outcome, once it is durable; a replay gives the same values."""
    store, _, _ = virtual()
    ckpt = store.checkpoint("run")
    calls: list[Any] = []

    def note(step: int, outcome: Any) -> None:
        assert store.record(f"run:step:{step}").state == "committed"
        calls.append((step, *outcome))

    run_agent(range(3), ckpt, Model(), on_step=note)
    assert calls == [(0, 0, "executed"), (1, 10, "executed"), (2, 20, "executed")]
    ckpt.reset()
    calls.clear()
    run_agent(range(3), ckpt, Model(), on_step=note)
    assert calls == [(0, 0, "skipped"), (1, 10, "skipped"), (2, 20, "skipped")]


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"save_every": 0}])
def test_bad_options(options: dict[str, int]) -> None:
    """Options that make no sense are refused before anything runs."""
    store, backend, _ = virtual()
    with pytest.raises(durastore.ConfigError):
        run_agent([1], store.checkpoint("run"), Model(), **options)
    assert backend.calls == []


def test_two_workers_on_one_run() -> None:
    """Two workers on one run share the steps: each effect once, and both end well."""
    model = Model()
    sums: list[Summary] = []
    with durastore.open("memory://") as store:

        def work() -> None:
            sums.append(run_agent(iter(range(50)), store.checkpoint("run"), model))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [summary.processed for summary in sums] == [50, 50]
    assert sorted(model.seen) == list(range(50))


@SIDES
def test_errors_that_are_borne(concurrency: int) -> None:
    """With `on_error`, the run goes on past a failed step; progress stays before the first, and the next call tries again."""
    store, _, _ = virtual()
    ckpt, model = store.checkpoint("run"), Model(3, 5)
    failed: list[int] = []
    bear = lambda step, error: failed.append(step) or isinstance(error, Stop)  # noqa: E731
    first = run_agent(list(range(8)), ckpt, model, concurrency=concurrency, on_error=bear)
    assert (first.processed, first.executed, sorted(failed)) == (3, 6, [3, 5])
    assert ckpt.load().step == 3
    again = run_agent(list(range(8)), ckpt, model, concurrency=concurrency, on_error=bear)
    assert (again.processed, again.executed, again.skipped) == (8, 2, 3)


def test_memory_does_not_grow() -> None:
    """Six thousand steps over a generator hold no more memory at the end than after the first tenth."""
    store, backend, _ = virtual()
    ckpt = store.checkpoint("run")
    marks: list[int] = []

    def note(step: int, _outcome: Any) -> None:
        backend._space.records.clear()  # a store on disk does not count
        backend.calls.clear()
        if step in (1_000, 5_999):
            marks.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        run_agent((number for number in range(6_000)), ckpt, lambda item: item, on_step=note)
    finally:
        tracemalloc.stop()
    assert marks[1] - marks[0] < 50_000
