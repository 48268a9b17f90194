"""durastore.aio: the same promises under an event loop, cancelled at every await."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import aio
from durastore.contract import ClaimRequest
from durastore.memory import MemoryBackend, _Space
from tests.unit.virtual import VirtualClock, open_files


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(main(), 60))


class Hooked(MemoryBackend):
    """Calls `hook` before and after each verb of the protocol, in the thread that runs it."""

    hook: Callable[[], None] = staticmethod(lambda: None)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("claim", "commit", "abandon", "save", "load", "transact"):
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            self.hook()
            answer = found(*args, **kwargs)
            self.hook()
            return answer

        return verb


def hooked() -> tuple[Hooked, aio.Store]:
    backend = Hooked(_Space())
    return backend, aio.Store(durastore.Store(backend))


def test_effects_of_both_kinds() -> None:
    """Coroutine functions run in the task, plain ones in a thread, both under their claim; a replay equals the run."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            main_thread = threading.get_ident()

            async def in_task() -> list[Any]:
                await asyncio.sleep(0)
                return [durastore.current().key, threading.get_ident() == main_thread]

            def in_thread() -> list[Any]:
                return [durastore.current().key, threading.get_ident() == main_thread]

            assert await ckpt.run_once("a", in_task) == (["a", True], "executed")
            assert await ckpt.run_once("a", in_task) == (["a", True], "skipped")
            assert await ckpt.run_once("b", in_thread) == (["b", False], "executed")
            assert await ckpt.run_once("c", lambda: in_task()) == (["c", True], "executed")  # noqa: PLW0108
            assert durastore.current() is None

    run(main)


def test_current_is_per_task() -> None:
    """Two tasks in their effects at the same time each see their own claim."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            both = asyncio.Barrier(2) if hasattr(asyncio, "Barrier") else None

            async def effect() -> str:
                if both is not None:
                    await both.wait()
                await asyncio.sleep(0)
                return durastore.current().key

            outcomes = await asyncio.gather(*(ckpt.run_once(key, effect) for key in ("a", "b")))
            assert [outcome.value for outcome in outcomes] == ["a", "b"]

    run(main)


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
def test_cancelled_at_every_call(kind: str) -> None:
    """Cancelled before or after any call of the store: the key is never left claimed, and the effect's result never lost."""

    async def attempt(point: int) -> bool:
        backend, store = hooked()
        loop = asyncio.get_running_loop()
        ckpt = await store.checkpoint("run")
        ran: list[int] = []
        calls = iter(range(10**6))

        async def coroutine() -> int:
            ran.append(1)
            return len(ran)

        def plain() -> int:
            ran.append(1)
            return len(ran)

        task = asyncio.create_task(ckpt.run_once("key", coroutine if kind == "coroutine" else plain))

        def hook() -> None:
            if next(calls) == point:
                arrived = threading.Event()
                loop.call_soon_threadsafe(lambda: (task.cancel(), arrived.set()))
                arrived.wait()

        backend.hook = hook
        cancelled = False
        try:
            await task
        except asyncio.CancelledError:
            cancelled = True
        backend.hook = lambda: None
        record = await store.record("key")
        assert record is not None or cancelled
        if record is not None:
            assert record.state in ("abandoned", "committed")
            assert record.state == ("committed" if ran else "abandoned")
        assert (await ckpt.run_once("key", coroutine)).value == 1
        assert len(ran) == 1
        await store.close()
        return cancelled

    async def main() -> None:
        points = 0
        while await attempt(points):
            points += 1
        assert points >= 4  # before and after claim, before and after commit

    run(main)


def test_cancelled_in_the_effect() -> None:
    """A coroutine that is cancelled gives its key back: free for a rerun, in doubt under halt."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            for policy, state in (("rerun", "abandoned"), ("halt", "in_doubt")):
                began = asyncio.Event()

                async def effect(began: asyncio.Event = began) -> None:
                    began.set()
                    await asyncio.Event().wait()

                task = asyncio.create_task(ckpt.run_once(policy, effect, in_doubt=policy))
                await began.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                record = await store.record(policy)
                assert record is not None
                assert record.state == state

    run(main)


def test_thread_is_waited_for() -> None:
    """A plain function cannot be cancelled: its result is committed before the cancellation goes on."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            began, end = threading.Event(), threading.Event()

            def effect() -> str:
                began.set()
                end.wait()
                return "done"

            task = asyncio.create_task(ckpt.run_once("key", effect))
            await asyncio.to_thread(began.wait)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            assert not task.done()
            end.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            record = await store.record("key")
            assert record is not None
            assert (record.state, record.result) == ("committed", "done")

    run(main)


class Renewed(MemoryBackend):
    """Says when it has renewed."""

    def __init__(self) -> None:
        super().__init__(_Space())
        self.renewed = threading.Semaphore(0)

    def renew(self, grants: Any, *, now: int | None = None) -> Any:
        answer = super().renew(grants, now=now)
        self.renewed.release()
        return answer


def test_blocking_the_loop_keeps_the_lease() -> None:
    """An effect that blocks the event loop for longer than its lease is renewed all the same, and nobody takes over."""
    backend, clock = Renewed(), VirtualClock()
    sync = durastore.Store(backend, clock=clock)

    def a_third_of_the_lease_goes_by() -> None:
        clock.elapsed += 20.0
        with sync.keeper._condition:
            sync.keeper._condition.notify()  # its sleep is in real time
        assert backend.renewed.acquire(timeout=30), "the keeper waits for the event loop"

    async def main() -> None:
        store = aio.Store(sync)
        ckpt = await store.checkpoint("run", lease=60)

        async def effect() -> str:
            for _ in range(6):
                a_third_of_the_lease_goes_by()  # with the event loop at a standstill
            rival = ClaimRequest("key", "other", "rival", "nonce", 60_000_000, takeover=True)
            answer = backend.claim(rival, now=clock.now())
            return type(answer).__name__

        assert await ckpt.run_once("key", effect) == ("Held", "executed")
        assert store.stats.lost == 0
        await store.close()

    run(main)


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
def test_many_waiters_few_threads(scheme: str, kind: str, tmp_path: Path) -> None:
    """A thousand tasks on fifty keys, all asked for before the first effect ends: each effect once, everybody gets its very
    result, and threads and connections stay as few as `aio.THREADS` and `aio.EFFECT_THREADS` say.
    """
    tasks, keys = 1000, 50
    path = tmp_path / "agent.db"
    before = threading.active_count()
    asked = threading.Event()
    in_loop = asyncio.Event()
    seen: list[tuple[int, int]] = []
    ran: list[str] = []
    asking = iter(range(tasks - 1))

    def note() -> None:
        seen.append((threading.active_count() - before, sum(name == str(path) for name in open_files())))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with aio.open("memory://" if scheme == "memory" else f"sqlite:///{path}") as store:
            backend = store.sync.backend
            claim = backend.claim

            def counted(request: Any, *, now: int | None = None) -> Any:
                answer = claim(request, now=now)
                if next(asking, None) is None and not asked.is_set():
                    note()
                    asked.set()
                    loop.call_soon_threadsafe(in_loop.set)
                return answer

            backend.claim = counted  # type: ignore[method-assign]
            ckpt = await store.checkpoint("run", wait=600, lease=600)

            async def coroutine() -> list[Any]:
                await in_loop.wait()
                return in_thread()

            def in_thread() -> list[Any]:
                asked.wait()
                claimed = durastore.current()
                assert claimed is not None
                ran.append(claimed.key)
                note()
                return [claimed.key, claimed.token, len(ran)]

            effect: Any = coroutine if kind == "coroutine" else in_thread
            names = [f"key-{number % keys}" for number in range(tasks)]
            outcomes = await asyncio.gather(*(ckpt.run_once(name, effect) for name in names))
            note()
        assert sorted(ran) == sorted(set(names))
        results = {outcome.value[0]: outcome.value for outcome in outcomes}
        assert [outcome.value for outcome in outcomes] == [results[name] for name in names]
        counts = Counter(outcome.status for outcome in outcomes)
        assert counts["executed"] == keys
        assert counts["awaited"] == tasks - keys, "everybody else waited"
        assert store.stats.taken_over == 0

    run(main)
    effects = 0 if kind == "coroutine" else min(aio.EFFECT_THREADS, keys)
    assert max(threads for threads, _ in seen) <= aio.THREADS + effects + 1, "the store's, its effects', its keeper"
    connections = max(files for _, files in seen)
    assert (scheme == "memory" and connections == 0) or 1 <= connections <= aio.THREADS + 1, "one for each thread"
    assert [name for name in open_files() if name.startswith(str(path))] == []


@pytest.mark.parametrize("concurrency", [1, 8])
def test_run_agent(concurrency: int) -> None:
    """Async inputs, an async model and an async callback; a second run finds all done."""

    async def main() -> None:
        async def inputs() -> AsyncIterator[int]:
            for number in range(30):
                await asyncio.sleep(0)
                yield number

        seen: dict[int, Any] = {}

        async def model(item: int) -> int:
            await asyncio.sleep(0)
            return item * item

        async def note(step: int, outcome: Any) -> None:
            await asyncio.sleep(0)
            seen[step] = outcome.value

        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            first = await aio.run_agent(inputs(), ckpt, model, concurrency=concurrency, on_step=note)
            assert (first.processed, first.executed) == (30, 30)
            assert seen == {number: number * number for number in range(30)}
            await ckpt.reset()
            again = await aio.run_agent(range(30), ckpt, model, concurrency=concurrency)
            assert (again.processed, again.skipped) == (30, 30)
            assert await ckpt.load() == (30, {"processed": 30})

    run(main)


def test_run_agent_cancelled() -> None:
    """Cancelled in mid-run, it leaves no key claimed, and a resume does the rest."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            third = asyncio.Event()
            ran: list[int] = []

            async def model(item: int) -> int:
                if item == 2 and not third.is_set():
                    third.set()
                    await asyncio.Event().wait()
                ran.append(item)
                return item

            task = asyncio.create_task(aio.run_agent(range(6), ckpt, model))
            await third.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [record.key async for record in store.records(state="claimed")] == []
            assert (await aio.run_agent(range(6), ckpt, model)).processed == 6
            assert ran == [0, 1, 2, 3, 4, 5]

    run(main)


def test_claim_by_hand_once_and_transact() -> None:
    """The rest of the surface: claim, once, transact, listings, resolve, forget."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            async with ckpt.claim("hand") as claim:
                assert durastore.current().key == "hand"
                assert await claim.commit([1]) == ([1], "executed")
            async with ckpt.claim("hand") as claim:
                assert claim.outcome == ([1], "skipped")
            with pytest.raises(ValueError, match="no"):
                async with ckpt.claim("raised", in_doubt="halt"):
                    raise ValueError("no")
            assert (await store.record("raised")).state == "in_doubt"

            @ckpt.once(key="double:{number}")
            async def double(number: int) -> int:
                return number * 2

            assert [await double(2), await double(2), await double(number=3)] == [4, 4, 6]
            assert await ckpt.transact("tx", lambda tx: tx.update(row=1) or "ok") == ("ok", "executed")
            assert (await store.resolve("raised", result=7)).result == 7
            assert await store.forget("raised")
            assert await store.record("raised") is None
            assert await store.forget_run("run") == 4
            assert [record async for record in store.records()] == []

    run(main)


def test_sync_surface_inside_a_loop() -> None:
    """The sync surface works inside a running loop; it blocks it, and never deadlocks."""

    async def main() -> None:
        with durastore.open("memory://") as store:
            assert store.checkpoint("run").run_once("key", lambda: 1) == (1, "executed")

    run(main)


def test_cancelled_before_its_coroutine_began() -> None:
    """A plain function that only makes a coroutine, cancelled meanwhile: nothing was done, so nothing is committed."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            made, go_on = threading.Event(), threading.Event()
            ran: list[int] = []

            async def inner() -> int:
                ran.append(1)
                return len(ran)

            def effect() -> Any:
                made.set()
                go_on.wait()
                return inner()

            task = asyncio.create_task(ckpt.run_once("key", effect))
            await asyncio.to_thread(made.wait)
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ran == []
            assert (await store.record("key")).state == "abandoned"
            assert await ckpt.run_once("key", inner) == (1, "executed")

    run(main)


@pytest.mark.parametrize("surface", ["run_once", "transact", "run_agent", "run_agent side by side"])
def test_stop_iteration_is_an_error(surface: str) -> None:
    """An effect that raises StopIteration (a `next()` of its own that ran dry) fails as others do, and hangs nothing."""

    def effect(*_: Any) -> Any:
        return next(iter(()))

    def synchronous(ckpt: durastore.Checkpoint) -> None:
        if surface.startswith("run_agent"):
            durastore.run_agent([1], ckpt, effect, concurrency=1 if surface == "run_agent" else 2)
        else:
            getattr(ckpt, surface)("run:step:0", effect)

    async def awaited(ckpt: aio.Checkpoint) -> None:
        if surface.startswith("run_agent"):
            await aio.run_agent([1], ckpt, effect, concurrency=1 if surface == "run_agent" else 2)
        else:
            await getattr(ckpt, surface)("run:step:0", effect)

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            with pytest.raises(RuntimeError, match="StopIteration"):
                await awaited(ckpt)
            assert (await store.record("run:step:0")).state == "abandoned"
            await ckpt.store.forget("run:step:0")
            with pytest.raises(RuntimeError, match="StopIteration"):
                await asyncio.to_thread(synchronous, ckpt.sync)
            assert (await store.record("run:step:0")).state == "abandoned"

    run(main)


def test_cancelled_while_waiting_for_a_thread() -> None:
    """An effect that still waits for a thread is not run any more."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            end = threading.Event()
            began = threading.Barrier(aio.EFFECT_THREADS + 1)
            ran: list[str] = []

            def busy() -> None:
                began.wait()
                end.wait()

            others = [asyncio.create_task(ckpt.run_once(f"busy-{n}", busy)) for n in range(aio.EFFECT_THREADS)]
            await asyncio.to_thread(began.wait)
            task = asyncio.create_task(ckpt.run_once("key", lambda: ran.append("key")))
            while not store.driver._effects._work_queue.qsize():  # noqa: ASYNC110
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            end.set()
            await asyncio.gather(*others)
            assert ran == []
            assert (await store.record("key")).state == "abandoned"

    run(main)


def test_a_cancelled_run_begins_no_further_step() -> None:
    """Cancelled in an effect that cannot be, `run_agent` commits that step and stops there."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            began, end = threading.Event(), threading.Event()
            ran: list[int] = []
            noted: list[int] = []

            def model(item: int) -> int:
                ran.append(item)
                began.set()
                end.wait()
                return item

            task = asyncio.create_task(aio.run_agent(range(5), ckpt, model, on_step=lambda step, _: noted.append(step)))
            await asyncio.to_thread(began.wait)
            task.cancel()
            await asyncio.sleep(0)
            end.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (ran, noted) == ([0], [0])
            assert [record.key async for record in store.records(state="claimed")] == []
            assert (await ckpt.load()).step == 1
            assert (await aio.run_agent(range(5), ckpt, model)).executed == 4

    run(main)


@pytest.mark.parametrize("surface", ["run_once", "run_agent"])
def test_cancelled_and_not_stored(surface: str) -> None:
    """A cancellation that was held back is not lost when the commit fails; the failure is its cause, or was told."""

    async def main() -> None:
        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            began, end = threading.Event(), threading.Event()

            def effect(*_: Any) -> Any:
                began.set()
                end.wait()
                return object()  # no JSON

            told: list[BaseException | None] = []

            def on_error(step: int, error: Exception) -> bool:
                told.append(error)
                return True

            work = (
                ckpt.run_once("run:step:0", effect)
                if surface == "run_once"
                else aio.run_agent([0, 1], ckpt, effect, on_error=on_error)
            )

            async def cause() -> BaseException | None:
                with pytest.raises(asyncio.CancelledError) as caught:
                    await work
                return caught.value.__cause__  # 3.10 keeps it from whoever awaits the task

            task = asyncio.create_task(cause())
            await asyncio.to_thread(began.wait)
            task.cancel()
            await asyncio.sleep(0)
            end.set()
            caused = await task
            assert isinstance(*told or [caused], durastore.PayloadError)
            assert (await store.record("run:step:0")).state == "committed"

    run(main)


def test_cancelled_open_closes_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is cancelled while a store opens leaves none open."""
    began, go_on = threading.Event(), threading.Event()
    opened: list[durastore.Store] = []

    def slowly(*args: Any, **options: Any) -> durastore.Store:
        began.set()
        go_on.wait()
        opened.append(durastore.open("memory://"))
        return opened[0]

    monkeypatch.setattr("durastore.aio.store.open_sync", slowly)
    closed: list[int] = []

    async def main() -> None:
        task = asyncio.ensure_future(aio.open("memory://")._open())
        await asyncio.to_thread(began.wait)
        task.cancel()
        await asyncio.sleep(0)
        monkeypatch.setattr(durastore.Store, "close", lambda _: closed.append(1))
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
    assert (len(opened), closed) == (1, [1])


def test_once_takes_plain_functions_too() -> None:
    """What `once` decorates is awaited, whatever it was; it may be decorated before the loop runs. Closing twice is one close."""

    async def main() -> None:
        store = await aio.open("memory://")
        ckpt = await store.checkpoint("run")

        @ckpt.once(key="square:{number}")
        def square(number: int) -> int:
            return number * number

        assert [await square(3), await square(3)] == [9, 9]
        assert (await store.record("square:3")).attempt == 1
        await store.close()
        await store.close()

    run(main)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_run_agent_goes_on_after_an_error(concurrency: int) -> None:
    """`on_error`, also as a coroutine function: the step is left undone, progress stays before it, a resume tries it again."""

    async def main() -> None:
        asked: list[int] = []

        async def model(item: int) -> int:
            if item == 2 and not asked:
                raise ValueError("not yet")
            return item

        async def go_on(step: int, error: Exception) -> bool:
            assert isinstance(error, ValueError)
            asked.append(step)
            return True

        async with aio.open("memory://") as store:
            ckpt = await store.checkpoint("run")
            first = await aio.run_agent(range(5), ckpt, model, concurrency=concurrency, on_error=go_on)
            assert (first.processed, first.executed, asked) == (2, 4, [2])
            again = await aio.run_agent(range(5), ckpt, model, concurrency=concurrency)
            assert (again.processed, again.executed) == (5, 1)

            async def never(step: int, error: Exception) -> bool:
                return False

            def bad(item: int) -> int:
                raise ValueError(item)

            other = await store.checkpoint("other")
            with pytest.raises(ValueError, match="0"):
                await aio.run_agent([0], other, bad, concurrency=concurrency, on_error=never)

    run(main)


def test_the_same_surface() -> None:
    """Every public name and parameter of the sync surface is there, awaited."""
    import inspect

    pairs: list[tuple[Any, Any]] = [
        (durastore.Store, aio.Store),
        (durastore.Checkpoint, aio.Checkpoint),
        (durastore.ManualClaim, aio.ManualClaim),
    ]
    internal = {"call", "count", "pack", "unpack", "time", "terms_with"}  # for checkpoints and the command line
    functions: list[tuple[Any, Any]] = [(durastore.run_agent, aio.run_agent)]
    for ours, theirs in pairs:
        for name, member in inspect.getmembers(ours, inspect.isfunction):
            if not name.startswith("_") and name not in internal:
                functions.append((member, getattr(theirs, name)))
    for ours, theirs in functions:
        have = inspect.signature(inspect.unwrap(theirs)).parameters
        takes_more = any(each.kind is each.VAR_KEYWORD for each in have.values())
        missing = [name for name in inspect.signature(inspect.unwrap(ours)).parameters if name not in have]
        assert takes_more or missing == [], f"{ours.__qualname__}: {missing}"
