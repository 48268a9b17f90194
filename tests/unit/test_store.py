"""The store: opening and closing, errors wrapped once, listings, housekeeping, statistics, forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import InDoubt, PayloadError, SchemaError, StoreUnavailable, rules
from durastore.contract import ClaimRequest, Finding, Granted, Payload, StoredProgress
from tests.unit.virtual import Scripted, VirtualClock, virtual

SECOND = 1_000_000
DAY = 86_400.0
LARGE = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(200_000))


# Opening and closing


def test_missing_file_is_made(tmp_path: Path) -> None:
    """A SQLite file that is missing is an empty store."""
    with durastore.open(f"sqlite:///{tmp_path}/agent.db") as store:
        assert list(store.runs()) == []
    assert (tmp_path / "agent.db").exists()


def test_create_false(tmp_path: Path) -> None:
    """`create=False` makes nothing, and the first call says what to do."""
    with (
        durastore.open(f"sqlite:///{tmp_path}/agent.db", create=False) as store,
        pytest.raises(durastore.DurastoreError),
    ):
        store.checkpoint("run").load()
    assert list(tmp_path.iterdir()) == []


class Fake(Scripted):
    """A store that is not set up by itself."""

    creates_itself = False
    closed = 0
    set_up = 0
    error: Exception | None = None

    def setup(self) -> None:
        self.set_up += 1
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed += 1

    def classify(self, error: Exception) -> durastore.DurastoreError | None:
        kinds = {ConnectionError: StoreUnavailable, LookupError: SchemaError, PermissionError: durastore.ConfigError}
        return next((made(str(error)) for kind, made in kinds.items() if isinstance(error, kind)), None)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    backend = Fake()
    monkeypatch.setattr("durastore.urls.connect", lambda _url: backend)
    return backend


@pytest.mark.parametrize(("query", "times"), [("", 0), ("?create=false", 0), ("?create=true", 1)])
def test_cloud_stores_are_set_up_when_told(fake: Fake, query: str, times: int) -> None:
    """Opening a store that others run sets nothing up, unless the URL says so."""
    durastore.open(f"cloud://x{query}").close()
    assert (fake.set_up, fake.closed) == (times, 1)


def test_set_up_that_fails(fake: Fake) -> None:
    """What was opened is closed again, and the error is one of ours with its cause."""
    fake.error = PermissionError("no CREATE right")
    with pytest.raises(durastore.ConfigError, match="no CREATE right") as raised:
        durastore.open("cloud://x?create=true")
    assert isinstance(raised.value.__cause__, PermissionError)
    assert fake.closed == 1


def test_closed_by_its_block(fake: Fake) -> None:
    """Leaving the block closes, also by an error, which passes."""
    with pytest.raises(ZeroDivisionError), durastore.open("cloud://x"):
        raise ZeroDivisionError
    assert fake.closed == 1


def test_text(fake: Fake) -> None:
    """A store shows where it is, without a password."""
    store = durastore.open("cloud://me:secret@host/db?namespace=n")
    assert repr(store) == "<Store cloud://me:***@host/db>"
    assert fake.closed == 0


# Errors of drivers


@pytest.mark.parametrize(
    ("error", "kind"), [(LookupError("no table"), SchemaError), (PermissionError("read only"), durastore.ConfigError)]
)
@pytest.mark.parametrize("verb", ["load", "read", "claim", "save", "scan", "sweep"])
def test_wrapped_once(fake: Fake, verb: str, error: Exception, kind: type[Exception]) -> None:
    """What a driver raises is wrapped once, from its cause, and tried once when trying again cannot mend it."""
    store = durastore.Store(fake, clock=VirtualClock())
    calls: list[str] = []

    def broken(*_: Any, **__: Any) -> Any:
        calls.append(verb)
        raise error

    setattr(fake, verb, broken)
    ckpt = store.checkpoint("run")
    action = {
        "load": ckpt.load,
        "read": lambda: store.record("key"),
        "claim": lambda: ckpt.run_once("key", lambda: 1),
        "save": lambda: ckpt.save_progress(1, {}),
        "scan": lambda: list(store.records()),
        "sweep": store.sweep,
    }[verb]
    with pytest.raises(kind, match=str(error)) as raised:
        action()
    assert raised.value.__cause__ is error
    assert len(calls) == 1


def test_error_that_changes_while_it_is_tried_again() -> None:
    """Out of reach first, then plainly wrong: it stops at the second, and says that."""
    backend = Fake()
    store = durastore.Store(backend, clock=VirtualClock())
    errors = iter([ConnectionError("away"), ConnectionError("away"), LookupError("no table")])

    def before(_verb: str) -> None:
        raise next(errors)

    backend.before = before
    with pytest.raises(SchemaError, match="no table"):
        store.checkpoint("run").load()


def test_deadlines_can_be_set() -> None:
    """How long a verb is tried again is the store's to say."""
    backend, clock = Fake(), VirtualClock()
    store = durastore.Store(backend, clock=clock)
    store.deadlines["load"] = 3

    def before(_verb: str) -> None:
        raise ConnectionError("away")

    backend.before = before
    with pytest.raises(StoreUnavailable, match="within 3 s"):
        store.checkpoint("run").load()
    assert 1 < clock.elapsed <= 3
    assert len(set(clock.slept)) == len(clock.slept), "without a rhythm"


def test_interrupt_while_it_is_tried_again() -> None:
    """Ctrl-C is heard at once, in mid-wait."""
    store, backend, clock = virtual()

    def before(_verb: str) -> None:
        raise ConnectionError("away")

    def during() -> None:
        raise KeyboardInterrupt

    backend.before, clock.during = before, during
    with pytest.raises(KeyboardInterrupt):
        store.checkpoint("run").load()
    assert len(clock.slept) == 1


# Looking


def filled(count: int) -> tuple[durastore.Store, Scripted, VirtualClock]:
    store, backend, clock = virtual()
    for number in range(count):
        ckpt = store.checkpoint(f"run-{number % 3}")
        ckpt.run_once(f"key-{number:04}", lambda number=number: number)
        ckpt.save_progress(number, {"at": number})
    return store, backend, clock


def test_listing_is_lazy() -> None:
    """Records come page by page: whoever looks at a few reads a page."""
    store, backend, _ = filled(450)
    backend.calls.clear()
    assert [record.result for record in islice(store.records(), 5)] == [0, 1, 2, 3, 4]
    assert backend.calls.count("scan") == 1
    assert len(list(store.records())) == 450


def test_filters() -> None:
    """By run, by state, by prefix, and all at once."""
    store, backend, clock = filled(30)
    backend.claim(ClaimRequest("key-live", "run-0", "somebody", "n1", 60 * SECOND), now=clock.now())
    backend.claim(ClaimRequest("key-lapsed", "run-0", "somebody", "n2", 0), now=clock.now())
    found = {
        state: [record.key for record in store.records(state=state)] for state in ("claimed", "in_doubt", "abandoned")
    }
    assert found == {"claimed": ["key-live"], "in_doubt": ["key-lapsed"], "abandoned": []}
    assert len(list(store.records(run_id="run-1"))) == 10
    assert [record.key for record in store.records(prefix="key-002")] == [f"key-002{digit}" for digit in range(10)]
    assert [record.key for record in store.records(run_id="run-0", state="committed", prefix="key-000")] == [
        "key-0000", "key-0003", "key-0006", "key-0009",
    ]  # fmt: skip


def test_record() -> None:
    """A record as people see it: seconds, decoded values, the state by now."""
    store, backend, clock = virtual()
    backend.claim(ClaimRequest("key", "run", "somebody", "n", 60 * SECOND), now=clock.now())
    clock.elapsed = 20
    record = store.record("key")
    assert record is not None
    assert (record.state, record.owner, record.lease, record.lease_left, record.attempt) == (
        "claimed",
        "somebody",
        60,
        40,
        1,
    )
    assert (record.result, record.error, record.retain_until) == (None, None, None)
    assert record.created_at == 1_700_000_000
    clock.elapsed = 60
    assert (store.record("key").state, store.record("key").lease_left) == ("in_doubt", None)
    assert store.record("other") is None
    with pytest.raises(AttributeError):
        record.state = "committed"  # type: ignore[misc]


def test_runs() -> None:
    """The runs that saved progress, with their states decoded."""
    store, _, _ = filled(5)
    assert {run.run_id: (run.step, run.state) for run in store.runs()} == {
        "run-0": (3, {"at": 3}), "run-1": (4, {"at": 4}), "run-2": (2, {"at": 2}),
    }  # fmt: skip


def test_damaged_result_in_a_listing() -> None:
    """A damaged value does not hide the others: its record is listed, and only asking for the value raises."""
    store, backend, clock = virtual()
    granted = backend.claim(ClaimRequest("bad", "run", "o", "n", SECOND), now=clock.now())
    assert isinstance(granted, Granted)
    backend.commit(granted.grant, result=Payload(b"no header"), now=clock.now())
    backend.save(StoredProgress("run", 1, Payload(b"json\n{")), now=clock.now())
    store.checkpoint("run").run_once("good", lambda: 1)
    found = {record.key: record for record in store.records()}
    assert found["good"].result == 1
    with pytest.raises(PayloadError, match="damaged"):
        _ = found["bad"].result
    [run] = store.runs()
    with pytest.raises(PayloadError, match="damaged"):
        _ = run.state


def test_repr_shows_no_result() -> None:
    """A record in a log does not spill its payload."""
    store, _, _ = virtual()
    store.checkpoint("run").run_once("key", lambda: "secret result")
    assert "secret" not in repr(store.record("key"))


# Settling


def test_resolve_with_a_large_result() -> None:
    """A result given by hand may be as large as any."""
    store, backend, clock = virtual()
    backend.claim(ClaimRequest("key", "run", "dead", "n", 0), now=clock.now())
    assert store.resolve("key", result=LARGE).result == LARGE
    assert store.checkpoint("run").run_once("key", lambda: 1) == (LARGE, "skipped")


def test_resolve_with_what_cannot_be_stored() -> None:
    """Refused before anything is written."""
    store, backend, clock = virtual()
    backend.claim(ClaimRequest("key", "run", "dead", "n", 0), now=clock.now())
    with pytest.raises(PayloadError):
        store.resolve("key", result=object())
    assert store.record("key").state == "in_doubt"


@pytest.mark.parametrize("applied", [True, False])
def test_resolve_whose_answer_was_lost(*, applied: bool) -> None:
    """Called again, it recognises its own success."""
    store, backend, clock = virtual()
    backend.claim(ClaimRequest("key", "run", "dead", "n", 0), now=clock.now())

    def lose(verb: str) -> None:
        if verb == "resolve" and backend.calls.count("resolve") == 1:
            raise ConnectionResetError("gone")

    if applied:
        backend.after = lose
    else:
        backend.before = lose
    assert store.resolve("key", result=7).result == 7
    assert backend.calls.count("resolve") == 2


def test_resolve_races_a_takeover() -> None:
    """Somebody takes over between the look and the write: the live claim is not settled under its holder."""
    store, backend, clock = virtual()
    backend.claim(ClaimRequest("key", "run", "dead", "n", 0), now=clock.now())

    def take_over(verb: str) -> None:
        if verb == "resolve":
            backend.before = lambda _verb: None
            backend.claim(ClaimRequest("key", "run", "alive", "n2", 60 * SECOND), now=clock.now())

    backend.before = take_over
    with pytest.raises(InDoubt, match="'alive'"):
        store.resolve("key", result=7)
    assert store.record("key").owner == "alive"


def test_forget_races_a_commit() -> None:
    """A key that was committed between the look and the removal is looked at again, and then removed as it is: committed."""
    store, backend, clock = virtual()
    granted = backend.claim(ClaimRequest("key", "run", "slow", "n", 0), now=clock.now())
    assert isinstance(granted, Granted)

    def commit(verb: str) -> None:
        if verb == "delete":
            backend.before = lambda _verb: None
            backend.commit(granted.grant, result=Payload(b"json\n1"), now=clock.now())

    backend.before = commit
    assert store.forget("key") is True
    assert backend.calls.count("delete") == 2
    assert store.record("key") is None


def test_forget_removes_chunks() -> None:
    """A large result's chunks go with its key, and with its retention."""
    store, backend, clock = virtual()
    ckpt = store.checkpoint("run")
    ckpt.run_once("a", lambda: LARGE)
    ckpt.run_once("b", lambda: LARGE, retain=5)
    assert len(backend._space.chunks) == 2
    store.forget("a")
    clock.elapsed += 6
    swept = store.sweep()
    assert (swept.records, swept.more, backend._space.chunks) == (1, False, {})


def test_sweep_goes_on_until_all_is_done() -> None:
    """Many small steps, one count; what is still retained stays."""
    store, backend, clock = virtual()
    for number in range(1200):
        store.checkpoint("run", retain=10).run_once(f"key-{number}", lambda: 1)
    store.checkpoint("run").run_once("kept", lambda: 1)
    clock.elapsed += 11
    assert store.sweep().records == 1200
    assert list(backend._space.records) == ["kept"]


def test_sweep_leaves_young_orphans() -> None:
    """Chunks that nobody points to may belong to a commit under way: they stay for a day."""
    store, backend, clock = virtual()
    store.pack(LARGE)
    clock.elapsed += rules.ORPHAN_AGE / SECOND - 1
    assert store.sweep().chunks == 0
    clock.elapsed += 2
    assert store.sweep().chunks == 1
    assert backend._space.chunks == {}
    assert rules.ORPHAN_AGE / SECOND >= DAY


# Health


def test_check(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach, clock, and what the store finds; a clock that is off is told, with its direction."""
    store = durastore.Store(fake)
    fake.check = lambda: [Finding("schema", ok=True, detail="1")]  # type: ignore[method-assign]
    assert [(found.name, found.ok) for found in store.check()] == [("reach", True), ("clock", True), ("schema", True)]
    real = fake.time()
    monkeypatch.setattr(fake, "time", lambda: real + 3600 * SECOND)
    clock = store.check()[1]
    assert (clock.ok, "behind" in clock.detail) == (False, True)


def test_check_of_a_store_out_of_reach(fake: Fake) -> None:
    """A store that does not answer is a finding with advice, not an exception."""
    store = durastore.Store(fake, clock=VirtualClock())

    def away() -> int:
        raise ConnectionError("no route")

    fake.time = away  # type: ignore[method-assign]
    [found] = store.check()
    assert (found.name, found.ok) == ("reach", False)
    assert "no route" in found.detail
    assert found.advice


# Statistics, threads, forks


def test_stats_from_many_threads() -> None:
    """No count is lost."""
    with durastore.open("memory://") as store:
        ckpt = store.checkpoint("run")

        def work(number: int) -> None:
            for step in range(200):
                ckpt.run_once(f"{number}:{step // 2}", lambda: 1)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (store.stats.executed, store.stats.skipped) == (800, 800)
        assert (ckpt.stats.executed, ckpt.stats.skipped) == (800, 800)


def test_threads_on_one_key() -> None:
    """Threads that ask for one key at once: one runs it, the others get its result."""
    with durastore.open("memory://") as store:
        ckpt, gate = store.checkpoint("run"), threading.Barrier(8)
        ran: list[int] = []
        results: list[Any] = []

        def work() -> None:
            gate.wait(30)
            results.append(ckpt.run_once("key", lambda: ran.append(1) or "value"))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ran == [1]
        assert {outcome.value for outcome in results} == {"value"}
        assert sum(outcome.status == "executed" for outcome in results) == 1


def in_child(work: Any) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[durastore.Store]:
    with durastore.open(f"sqlite:///{tmp_path}/agent.db") as opened:
        yield opened


def test_fork(store: durastore.Store) -> None:
    """A child is somebody else: another owner, fresh statistics, connections and claims of its own; the parent goes on."""
    ckpt = store.checkpoint("run")
    ckpt.run_once("before", lambda: 1)
    owner = store.owner

    def child() -> bool:
        fresh = store.owner != owner and store.stats.executed == 0
        return (
            fresh
            and ckpt.run_once("child", lambda: 2).status == "executed"
            and ckpt.run_once("before", lambda: 3).value == 1
        )

    def effect() -> str:
        assert in_child(child) == 0
        assert in_child(lambda: durastore.current() is None and not store.keeper._due) == 0
        return "parent"

    assert ckpt.run_once("around", effect) == ("parent", "executed")
    assert store.owner == owner
    assert store.record("child").result == 2


def test_fork_with_live_claims(store: durastore.Store) -> None:
    """Workers forked while other threads hold claims inherit none of their locks: each does its own keys."""
    ckpt = store.checkpoint("run")
    inside, leave = threading.Event(), threading.Event()

    def effect() -> str:
        inside.set()
        leave.wait(60)
        return "thread"

    thread = threading.Thread(target=lambda: ckpt.run_once("held", effect))
    thread.start()
    assert inside.wait(30)
    codes = [in_child(lambda n=n: ckpt.run_once(f"child-{n}", lambda: n).status == "executed") for n in range(4)]
    leave.set()
    thread.join(60)
    assert codes == [0] * 4
    assert store.record("held").result == "thread"
