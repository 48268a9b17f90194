"""`moving.copy`: everything arrives as it was, on every store; nothing there is overwritten; a killed copy goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import durastore
from durastore import moving
from durastore.codec import EncryptingCodec
from durastore.contract import Payload, StoredProgress
from durastore.moving import leaving
from durastore.moving.tally import Refusal, Tally
from durastore.store import Store
from tests.conftest import shared
from tests.crash.killing import Points, ended, forked
from tests.moving.zoo import KEYRING, VALUES, Bytes, contents, filled, opened, record, steps
from tests.unit.virtual import VirtualClock, virtual

STORES = ("memory", "sqlite", "postgresql", "mysql", "firestore", "dynamodb")


class Told:
    """Remembers what was refused."""

    def __init__(self) -> None:
        self.refused: list[Refusal] = []

    def __call__(self, tally: Tally, refusal: Refusal | None) -> None:
        self.refused += [] if refusal is None else [refusal]

    @property
    def names(self) -> list[str]:
        return [refusal.name for refusal in self.refused]


def copied(source: Store, target: Store, told: Told | None = None, *, wait: float = 0.0) -> Tally:
    """Copy with a journal in memory."""
    with opened("memory://") as journal:
        return moving.copy(source, target, journal, "copy", wait=wait, report=told or Told())[0]


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[Store]:
    """A store with one of everything."""
    url = f"sqlite:///{tmp_path}/zoo.db"
    filled(url)
    with opened(url) as store:
        yield store


def fresh(store: str, folder: Path) -> str:
    """The URL of an empty namespace."""
    if store == "memory":
        return f"memory://{folder.name}-{os.urandom(4).hex()}"
    if store == "sqlite":
        return f"sqlite:///{folder}/{os.urandom(4).hex()}.db"
    url = shared(store)
    return f"{url}{'&' if '?' in url else '?'}create=true&namespace=moving-{os.urandom(6).hex()}"


@pytest.mark.parametrize("store", STORES)
def test_there_and_back(zoo: Store, store: str, tmp_path: Path) -> None:
    """Everything arrives with its token, attempt, times, retention and bytes, and comes back into SQLite the same."""
    with opened(fresh(store, tmp_path)) as there, opened(fresh("sqlite", tmp_path)) as back:
        before = contents(zoo)
        tally = copied(zoo, there)
        assert (tally.placed, tally.refused) == (len(before), 0)
        assert contents(there) == before
        assert copied(there, back).digest == tally.digest
        assert contents(back) == before == contents(zoo)
        verified, digest = moving.verify(zoo, there, report=Told())
        assert (verified.same, digest) == (len(before), tally.digest)
        again = copied(zoo, there)
        assert (again.placed, again.same, again.digest) == (0, len(before), tally.digest)


def test_along_a_chain(zoo: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From store to store, page by page, everything stays the same, and the digest with it."""
    monkeypatch.setattr(leaving, "PAGE", 20)
    source, digests = zoo, set()
    for store in ("postgresql", "dynamodb", "mysql", "firestore", "sqlite"):
        target = opened(fresh(store, tmp_path))
        digests.add(copied(source, target).digest)
        assert contents(target) == contents(zoo)
        source = target
    assert len(digests) == 1


@pytest.mark.parametrize("store", STORES)
def test_runs_go_on_where_they_arrived(zoo: Store, store: str, tmp_path: Path) -> None:
    """A run resumes at the destination: results are replayed, other codecs' too, progress goes on, tokens grow."""
    url = fresh(store, tmp_path)
    with opened(url) as there:
        copied(zoo, there)
        ckpt = there.checkpoint("values")
        for number, value in enumerate(VALUES):
            outcome = ckpt.run_once(f"value-{number}", fail_if_called, fingerprint=number)
            assert (repr(outcome.value), outcome.status) == (repr(value), "skipped")
        assert ckpt.load().step == 7
        assert steps(there) == steps(zoo)
        old = zoo.record("back")
        ckpt.run_once("back", lambda: "done")
        new = there.record("back")
        assert old is not None
        assert new is not None
        assert (new.token, new.attempt) == (old.token + 1, old.attempt + 1)
        with pytest.raises(durastore.InDoubt):
            there.checkpoint("b").run_once("doubt", fail_if_called, in_doubt="halt")
        assert there.resolve("doubt", retry=True).state == "abandoned"
        assert there.checkpoint("b").run_once("doubt", lambda: "again").status == "executed"
        assert there.checkpoint("d").run_once("lapsed", lambda: "taken over", fingerprint=None).status == "executed"
        there.checkpoint("only progress").save_progress(4, {})
        assert there.checkpoint("only progress").load() == (4, {})
        before = next(run.incarnation for run in zoo.runs() if run.run_id == "only drawn")
        assert there.checkpoint("only drawn", supersede=True).run.incarnation == before + 1
        with pytest.raises(durastore.PayloadError, match="lost"):
            ckpt.run_once("lost", fail_if_called)
        assert there.record("for a moment") is None
    with opened(url, EncryptingCodec([KEYRING])) as there:
        assert there.checkpoint("secret").run_once("encrypted", fail_if_called).value == {"card": "4242"}
    with opened(url, Bytes()) as there:
        assert there.checkpoint("binary").run_once("bytes", fail_if_called).value == bytes(range(256))


def fail_if_called() -> Any:
    raise AssertionError("what was done is not done again")


def test_lapsed_claims_arrive_in_doubt(zoo: Store, tmp_path: Path) -> None:
    """A lease means nothing to another store's clock: a claim that has lapsed is in doubt there, and not free."""
    with opened(fresh("sqlite", tmp_path)) as there:
        copied(zoo, there)
        found = there.record("lapsed")
        assert found is not None
        assert (found.state, found.attempt, found.owner, found.fingerprint) == ("in_doubt", 2, "second", "print")


@pytest.mark.parametrize(
    "change",
    [
        {"token": 4, "nonce": "n0"},
        {"token": 6, "nonce": "n2"},
        {"result": Payload(b"json\n2")},
        {"state": "in_doubt", "result": None},
        {"retain_until": 4_000_000_000_000_000},
        {"run_id": "another"},
    ],
)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_what_is_there_is_never_overwritten(store: str, change: dict[str, Any], tmp_path: Path) -> None:
    """A key that the destination has with another token, result, state or run is refused by name; its neighbours arrive."""
    with opened("memory://") as source, opened(fresh(store, tmp_path)) as there:
        source.backend.place([record("key"), record("other", nonce="n9")])
        there.backend.place([record("key", **change)])
        before, told = contents(there), Told()
        tally = copied(source, there, told)
        assert (tally.conflicts, tally.placed, told.names) == (1, 1, ["key 'key'"])
        assert "the destination has it already" in told.refused[0].reason
        assert contents(there)["key 'key'"] == before["key 'key'"]
        tally, digest = moving.verify(source, there, report=told)
        assert (tally.conflicts, tally.same) == (1, 1)
        assert digest != tally.digest


def test_a_rival_between_look_and_write(tmp_path: Path) -> None:
    """A key that somebody claims at the destination while it is on its way stays theirs, and is refused."""
    there, backend, _ = virtual()
    with opened("memory://") as source:
        source.backend.place([record("key")])
        source.checkpoint("run").save_progress(3, "theirs")
        rival = Store(type(backend)(backend._space), clock=there.clock)

        def between(verb: str) -> None:
            if verb == "read":
                backend.after = lambda verb: None
                rival.checkpoint("run").run_once("key", lambda: "mine", progress=(1, "mine"))

        backend.after = between
        told = Told()
        tally = copied(source, there, told)
        assert (tally.conflicts, tally.placed) == (2, 0)
        assert told.names == ["key 'key'", "run 'run'"]
        assert rival.checkpoint("other").run_once("key", fail_if_called).value == "mine"


def test_a_run_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    """A run at another step, or at the same one with another state, is refused: neither map is moved on nor back."""
    with opened("memory://") as source, opened(fresh("sqlite", tmp_path)) as there:
        for run, here, elsewhere in (("lower", 5, 3), ("higher", 5, 7), ("equal", 5, 5)):
            source.checkpoint(run).save_progress(here, "here")
            there.checkpoint(run).save_progress(elsewhere, "there")
        before, told = contents(there), Told()
        assert copied(source, there, told).conflicts == 3
        assert sorted(told.names) == ["run 'equal'", "run 'higher'", "run 'lower'"]
        assert contents(there) == before


def test_tokens_never_fall(tmp_path: Path) -> None:
    """A record past retention at the destination makes way for a higher token, and keeps its place before a lower one."""
    with opened("memory://") as source, opened(fresh("sqlite", tmp_path)) as there:
        source.backend.place([record("higher", token=10), record("lower", token=10, nonce="n2")])
        there.backend.place([record("higher", token=9, retain_until=1), record("lower", token=11, retain_until=1)])
        told = Told()
        assert copied(source, there, told).placed == 1
        assert told.names == ["key 'lower'"]
        there.checkpoint("r").run_once("lower", lambda: 1)
        found = there.record("lower")
        assert found is not None
        assert found.token > 11


def test_live_claims_are_refused(tmp_path: Path) -> None:
    """While a claim is alive nothing at all is copied, and the refusal names it."""
    with opened("memory://") as source, opened("memory://") as there:
        source.checkpoint("run").run_once("done", lambda: 1)
        with source.checkpoint("run").claim("alive") as claim:
            with pytest.raises(durastore.AwaitTimeout, match="'alive'"):
                copied(source, there)
            assert contents(there) == {}
            claim.commit(2)
        assert copied(source, there).placed == 2


def test_live_claims_are_waited_for() -> None:
    """A holder that ends in time is waited for, and its result arrives; one that does not is refused when the time is over."""
    source, _, clock = virtual()
    ckpt = source.checkpoint("run", lease=1000.0)
    claim = ckpt.claim("alive").__enter__()
    clock.during = lambda: clock.elapsed > 5 and claim.commit("in time")
    with opened("memory://") as there:
        with pytest.raises(durastore.AwaitTimeout):
            copied(source, there, wait=2.0)
        assert contents(there) == {}
        copied(source, there, wait=60.0)
        found = there.record("alive")
        assert found is not None
        assert found.result == "in time"
        assert clock.elapsed < 10


def test_a_claim_that_begins_in_between() -> None:
    """A claim that is granted after the copy began stops it at that key; what was copied stays, and the next copy goes on."""
    source, backend, clock = virtual()
    source.checkpoint("run").run_once("done", lambda: 1)

    def begin(verb: str) -> None:
        if backend.calls.count("scan") == 1:
            backend.after = lambda verb: None
            source.checkpoint("run", lease=50.0).claim("new").__enter__()

    backend.calls.clear()
    backend.after = lambda verb: begin(verb) if verb == "scan" else None
    with opened("memory://") as there:
        with pytest.raises(durastore.AwaitTimeout, match="'new'"):
            copied(source, there)
        clock.elapsed += 51
        assert copied(source, there).refused == 0
        found = there.record("new")
        assert found is not None
        assert found.state == "in_doubt"


def test_damaged_results_are_named(tmp_path: Path) -> None:
    """A result whose chunks are gone is refused by name; all else arrives. So is one that the destination cannot hold."""
    with opened("memory://") as source, opened(fresh("sqlite", tmp_path)) as there:
        ckpt = source.checkpoint("run")
        ckpt.run_once("whole", lambda: os.urandom(200_000).hex())
        ckpt.run_once("damaged", lambda: os.urandom(200_000).hex())
        (stored,) = source.backend.read(["damaged"])
        assert stored is not None
        assert stored.result is not None
        source.backend._space.chunks.pop(stored.result.blob)  # type: ignore[attr-defined]
        source.backend.place([record("no header", result=Payload(b"?" * 70_000), nonce="n7")])
        told = Told()
        tally = copied(source, there, told)
        assert (tally.damaged, tally.placed) == (2, 1)
        assert sorted(told.names) == ["key 'damaged'", "key 'no header'"]


def test_a_dry_run_writes_nothing(zoo: Store, tmp_path: Path) -> None:
    """It counts what would be placed, what is the same and what is in conflict, and leaves the destination alone."""
    with opened(fresh("sqlite", tmp_path)) as there:
        there.backend.place([record("chunked")])
        before, told = contents(there), Told()
        tally = moving.look(zoo, there, report=told)
        assert contents(there) == before
        assert (tally.placed, tally.conflicts) == (len(contents(zoo)) - 1, 1)
        assert told.names == ["key 'chunked'"]
        assert copied(zoo, there).placed == tally.placed


def test_what_is_missing_is_found(zoo: Store, tmp_path: Path) -> None:
    """Verification finds what is missing, what was changed, and a run that went on, and says so by name."""
    with opened(fresh("sqlite", tmp_path)) as there:
        copied(zoo, there)
        there.forget("chunked")
        there.resolve("compressed", result="x", force=True)
        there.checkpoint("only progress").save_progress(4, {})
        told = Told()
        tally, digest = moving.verify(zoo, there, report=told)
        assert sorted(told.names) == ["key 'chunked'", "key 'compressed'", "run 'only progress'"]
        assert (tally.conflicts, tally.same) == (3, len(contents(zoo)) - 3)
        assert digest != tally.digest


def test_killed_at_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy killed by SIGKILL before or after any call of a store goes on where it was, and ends with everything there, once."""
    monkeypatch.setattr(leaving, "PAGE", 3)
    source = f"sqlite:///{tmp_path}/source.db"
    with opened(source) as store:
        ckpt = store.checkpoint("run", supersede=True)
        for number in range(5):
            ckpt.run_once(f"key-{number}", lambda number=number: number, progress=(number, None))
        ckpt.run_once("large", lambda: os.urandom(100_000).hex())
        expected = contents(store)
    deadly, killed = 0, 0
    while True:
        deadly += 1
        target = f"sqlite:///{tmp_path}/target-{deadly}.db"
        opened(target).close()
        code = ended(forked(lambda target=target, deadly=deadly: _copy_until(source, target, deadly)))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        killed += 1
        with opened(source) as here, opened(target) as there, opened(f"{target}?namespace=journal") as journal:
            tally, resumed = moving.copy(here, there, journal, "copy", wait=0.0, report=Told())
            assert (tally.refused, tally.placed + tally.same) == (0, len(expected))
            assert contents(there) == expected
            assert contents(journal) == {}, "the copy's own progress is gone"
            assert resumed or tally.keys == 6
    assert killed > 40


def _copy_until(source: str, target: str, deadly: int) -> None:
    point = Points(deadly)
    stores = [opened(source), opened(target), opened(f"{target}?namespace=journal")]
    for store in stores:
        store.backend = Mortal(store.backend, point)  # type: ignore[assignment]
    moving.copy(*stores, "copy", wait=0.0, report=Told())


class Mortal:
    """A backend with a point before and after every call."""

    def __init__(self, backend: Any, point: Callable[[], None]) -> None:
        self._backend = backend
        self._point = point

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found):
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            self._point()
            answer = found(*args, **kwargs)
            self._point()
            return answer

        return verb


class Losing(Mortal):
    """A backend that does what it is asked, and whose n-th answer is lost."""

    def classify(self, error: Exception) -> durastore.DurastoreError | None:
        return durastore.StoreUnavailable(str(error)) if isinstance(error, ConnectionError) else None


def test_lost_answers() -> None:
    """Whichever answer of the destination is lost, the copy asks again, and counts everything once."""
    with opened("memory://") as source:
        source.checkpoint("run").run_once("large", lambda: os.urandom(200_000).hex(), progress=(1, "state"))
        source.backend.place([record(f"key-{number}", nonce=f"n{number}") for number in range(3)])
        expected, lost = contents(source), 0
        while True:
            points = iter(range(1, 1_000))

            def point(points: Iterator[int] = points, deadly: int = 2 * (lost + 1)) -> None:
                if next(points) == deadly:  # even: after the call
                    raise ConnectionError("the answer was lost")

            with opened("memory://") as there:
                there.clock = VirtualClock()
                there.clock.now = lambda: None  # type: ignore[method-assign]
                there.backend = Losing(there.backend, point)  # type: ignore[assignment]
                tally = copied(source, there)
                assert (tally.placed + tally.same, tally.refused) == (len(expected), 0)
                there.backend = there.backend._backend  # type: ignore[attr-defined]
                assert contents(there) == expected
            if next(points) <= 2 * (lost + 1):
                break
            lost += 1
        assert lost >= 5


def test_a_resumed_copy_does_not_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interruption no page is read a second time, and the counts are those of the whole."""
    monkeypatch.setattr(leaving, "PAGE", 2)
    source, backend, _ = virtual()
    source.backend.place([record(f"key-{number}", nonce=f"n{number}") for number in range(10)])
    with opened("memory://") as there, opened("memory://") as journal:

        def interrupt(verb: str) -> None:
            if backend.calls.count("scan") == 5:
                raise KeyboardInterrupt

        backend.before = interrupt
        with pytest.raises(KeyboardInterrupt):
            moving.copy(source, there, journal, "copy", wait=0.0, report=Told())
        backend.before = lambda verb: None
        backend.calls.clear()
        tally, resumed = moving.copy(source, there, journal, "copy", wait=0.0, report=Told())
        assert resumed
        assert (tally.keys, tally.placed) == (10, 10)
        assert backend.calls.count("scan") == 3, "a look for claims, and the two pages that were left"


def test_pages_of_an_earlier_copy_are_not_believed() -> None:
    """What an earlier copy left in the journal, as where an index was behind when it was forgotten, misleads no later one."""
    with opened("memory://") as source, opened("memory://") as journal:
        source.backend.place([record("key")])
        forget, journal.forget_run = journal.forget_run, lambda *_, **__: 0  # type: ignore[method-assign, assignment]
        with opened("memory://") as there:
            moving.copy(source, there, journal, "copy", wait=0.0, report=Told())
        journal.backend.delete_run("copy")
        assert list(journal.records())
        journal.forget_run = forget  # type: ignore[method-assign]
        source.backend.place([record("another", nonce="n2")])
        with opened("memory://") as there:
            assert moving.copy(source, there, journal, "copy", wait=0.0, report=Told())[0].placed == 2


def test_a_second_copy_takes_over() -> None:
    """Of two copies of the same name the later one goes on; the earlier one ends with `ClaimLost`. Nothing is copied twice."""
    source, backend, _ = virtual()
    source.backend.place([record("key")])
    with opened("memory://") as there, opened("memory://") as journal:

        def rival(verb: str) -> None:
            if verb == "scan" and backend.calls.count("scan") == 2:
                backend.before = lambda verb: None
                assert moving.copy(source, there, journal, "copy", wait=0.0, report=Told())[0].placed == 1

        backend.before = rival
        with pytest.raises(durastore.ClaimLost):
            moving.copy(source, there, journal, "copy", wait=0.0, report=Told())
        assert len(contents(there)) == 1


def test_a_run_of_the_longest_name(tmp_path: Path) -> None:
    """A run with a state that fits inline at the source and not at the destination arrives in chunks."""
    name = "😀" * 256
    with opened(fresh("sqlite", tmp_path)) as source, opened(fresh("memory", tmp_path)) as there:
        source.checkpoint(name).save_progress(1, os.urandom(30_000).hex())
        there.backend.limits = replace(there.backend.limits, inline=1000, chunk=7_000)
        assert copied(source, there).placed == 1
        stored = there.backend.load(name)
        assert isinstance(stored, StoredProgress)
        assert stored.state is not None
        assert stored.state.blob is not None
        assert there.checkpoint(name).load() == source.checkpoint(name).load()
