"""A checkpoint: its map, its decorator, its claims by hand, and its options, in virtual time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import durastore
from durastore import ClaimLost, ConfigError, Found, InvalidKey, Outcome
from durastore.checkpoint import Checkpoint, Position
from durastore.contract import ClaimRequest, Payload, StoredProgress
from tests.unit.virtual import Scripted, VirtualClock, virtual

SECOND = 1_000_000


@pytest.fixture
def ground() -> tuple[Checkpoint, Scripted, VirtualClock]:
    store, backend, clock = virtual()
    return store.checkpoint("run"), backend, clock


Ground = tuple[Checkpoint, Scripted, VirtualClock]


def state_of(backend: Scripted, key: str = "key") -> str | None:
    record = backend._space.records.get(key)
    return None if record is None else record.state


# The map


def test_new_run(ground: Ground) -> None:
    """A new run starts at step 0 with an empty state, and looking writes nothing."""
    ckpt, backend, _ = ground
    position = ckpt.load()
    assert position == (0, {}) == Position(0, {})
    assert (position.step, position.state) == (0, {})
    assert backend._space.runs == {}


def test_progress_never_goes_back(ground: Ground) -> None:
    """A lower step changes nothing and returns what is stored; an equal one replaces the state."""
    ckpt, _, _ = ground
    assert ckpt.save_progress(step=5, state={"a": 1}) == (5, {"a": 1})
    assert ckpt.save_progress(4, {"a": 0}) == (5, {"a": 1}) == ckpt.load()
    assert ckpt.save_progress(5, {"a": 2}) == (5, {"a": 2}) == ckpt.load()


@pytest.mark.parametrize(
    "state", [None, {}, [], 0, False, "", [1, {"x": None}], "x" * 200_000], ids=lambda s: repr(s)[:9]
)
def test_states(ground: Ground, state: Any) -> None:
    """Any JSON is a state, the falsy ones and large ones too, and comes back as it was."""
    ckpt, _, _ = ground
    for found in (ckpt.save_progress(1, state), ckpt.load()):
        assert (found.state, type(found.state)) == (state, type(state))


def test_damaged_state(ground: Ground) -> None:
    """A state that cannot be read is an error, never an empty one."""
    ckpt, backend, clock = ground
    backend.save(StoredProgress("run", 3, Payload(b"json\n{tru")), now=clock.now())
    with pytest.raises(durastore.PayloadError, match="damaged"):
        ckpt.load()


def test_superseding_alone_is_no_progress() -> None:
    """Drawing an incarnation leaves a new run new."""
    store, _, _ = virtual()
    assert store.checkpoint("run", supersede=True).load() == (0, {})
    store.checkpoint("run").save_progress(2, [1])
    assert store.checkpoint("run", supersede=True).load() == (2, [1])


def test_runs_are_apart() -> None:
    """Runs have their own maps; keys are the store's."""
    store, _, _ = virtual()
    one, other = store.checkpoint("one"), store.checkpoint("other")
    one.save_progress(3, {})
    assert other.load().step == 0
    one.run_once("key", lambda: 1)
    assert other.run_once("key", lambda: 2) == (1, "skipped")


@pytest.mark.parametrize("name", ["", "\0", "x" * 1025, "\ud800", 7, None], ids=repr)
def test_bad_names(name: Any) -> None:
    """A run id or key that no store takes is refused before anything is called."""
    store, backend, _ = virtual()
    with pytest.raises(InvalidKey, match="run id"):
        store.checkpoint(name, supersede=True)
    ckpt = store.checkpoint("run")
    for call in (ckpt.run_once, ckpt.transact):
        with pytest.raises(InvalidKey):
            call(name, lambda *_: 1)
    with pytest.raises(InvalidKey), ckpt.claim(name):
        pass
    assert backend.calls == []


# Progress that comes with a key


@pytest.mark.parametrize("how", ["run_once", "transact"])
def test_progress_with_a_replay(ground: Ground, how: str) -> None:
    """A key that was done already moves the progress on as its first run would have."""
    ckpt, _, _ = ground
    call = getattr(ckpt, how)
    call("key", lambda *_: 1)
    assert call("key", lambda *_: 2, progress=(4, {"at": 4})) == (1, "skipped")
    assert ckpt.load() == (4, {"at": 4})


def test_progress_with_a_recovery() -> None:
    """A key that a probe found done, too."""
    store, backend, clock = virtual()
    backend.claim(ClaimRequest("key", "run", "dead", "n", 0), now=clock.now())
    ckpt = store.checkpoint("run", in_doubt=lambda _claim: Found(7))
    assert ckpt.run_once("key", lambda: 1, progress=(1, {})) == (7, "recovered")
    assert ckpt.load().step == 1


# Options


def test_options_of_one_key(ground: Ground) -> None:
    """What a key is given replaces the run's terms for this key, and for no other."""
    ckpt, backend, _ = ground

    def lease() -> float:
        return backend._space.records[durastore.current().key].lease / SECOND

    assert ckpt.run_once("a", lease, lease=5).value == 5
    assert ckpt.run_once("b", lease).value == 60
    with pytest.raises(ValueError, match="boom"):
        ckpt.run_once("c", _boom, in_doubt="halt")
    assert state_of(backend, "c") == "in_doubt"


def _boom(*_: Any) -> Any:
    raise ValueError("boom")


def test_unknown_option(ground: Ground) -> None:
    """An option that does not exist is named."""
    ckpt, _, _ = ground
    with pytest.raises(ConfigError, match="leese"):
        ckpt.terms_with(leese=5)
    with pytest.raises(TypeError, match="leese"):
        ckpt.run_once("key", lambda: 1, leese=5)


# The decorator


def test_once_by_every_kind_of_argument(ground: Ground) -> None:
    """A template sees arguments by name however they are passed: positional, keyword, default, keyword-only, starred."""
    ckpt, backend, _ = ground

    @ckpt.once(key="{a}:{b}:{args}:{c}:{more}")
    def function(a: int, b: int = 2, *args: int, c: str = "c", **more: int) -> str:
        return f"{a}{b}{args}{c}{more}"

    assert function(1) == function(a=1, b=2) == "12()c{}"
    assert function(1, 2, 3, c="d", z=9) == "12(3,)d{'z': 9}"
    assert list(backend._space.records) == ["1:2:():c:{}", "1:2:(3,):d:{'z': 9}"]


def test_once_replays_what_was_stored(ground: Ground) -> None:
    """The first call returns what a replay returns: a tuple is a list for both."""
    ckpt, _, _ = ground

    @ckpt.once(key="pair")
    def pair() -> Any:
        return (1, 2)

    assert [pair(), pair()] == [[1, 2], [1, 2]]


def test_once_with_options(ground: Ground) -> None:
    """Options of `run_once` go through; an error leaves the key as they say."""
    ckpt, backend, _ = ground

    @ckpt.once(key=lambda: "key", in_doubt="halt", fingerprint=[1])
    def fail() -> None:
        _boom()

    with pytest.raises(ValueError, match="boom"):
        fail()
    assert state_of(backend) == "in_doubt"
    with pytest.raises(durastore.FingerprintMismatch):
        ckpt.run_once("key", lambda: 1, fingerprint=[2])


def test_once_with_wrong_arguments(ground: Ground) -> None:
    """A call that the function would not take is the caller's `TypeError`, and claims nothing."""
    ckpt, backend, _ = ground

    @ckpt.once(key="{a}")
    def function(a: int) -> int:
        return a

    with pytest.raises(TypeError):
        function(1, 2)  # type: ignore[call-arg]
    assert backend.calls == []


# By hand


def test_commit_twice(ground: Ground) -> None:
    """By hand, a key is committed once: a second result is refused, not taken for stored."""
    ckpt, backend, _ = ground
    with ckpt.claim("key") as claim:
        assert claim.commit(1) == (1, "executed") == claim.outcome
        with pytest.raises(ConfigError, match="second commit"):
            claim.commit(2)
    assert ckpt.run_once("key", _boom) == (1, "skipped")
    assert backend.calls.count("abandon") == 0


def test_commit_after_the_block(ground: Ground) -> None:
    """A claim that was given back commits nothing."""
    ckpt, backend, _ = ground
    with ckpt.claim("key") as claim:
        pass
    with pytest.raises((ClaimLost, ConfigError)):
        claim.commit(1)
    assert state_of(backend) == "abandoned"


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt(), SystemExit(1)], ids=repr)
@pytest.mark.parametrize(("policy", "state"), [("rerun", "abandoned"), ("halt", "in_doubt")])
def test_block_that_raises(ground: Ground, error: BaseException, policy: Any, state: str) -> None:
    """The error passes, and the key is given back or in doubt, with the error's name for whoever comes next."""
    ckpt, backend, _ = ground
    with pytest.raises(type(error)) as raised, ckpt.claim("key", in_doubt=policy):
        raise error
    assert raised.value is error
    assert state_of(backend) == state
    assert type(error).__name__ in (backend._space.records["key"].error or "")
    assert durastore.current() is None


def test_block_after_its_commit(ground: Ground) -> None:
    """An error after the commit takes nothing back."""
    ckpt, backend, _ = ground
    with pytest.raises(ValueError, match="boom"), ckpt.claim("key") as claim:
        claim.commit(1)
        _boom()
    assert state_of(backend) == "committed"


def test_block_that_was_replaced(ground: Ground) -> None:
    """By hand as by call: a holder that was replaced gets `ClaimLost`, and changes nothing."""
    ckpt, backend, clock = ground
    with pytest.raises(ClaimLost), ckpt.claim("key", lease=10) as claim:
        clock.elapsed += 11
        backend.claim(ClaimRequest("key", "rival", "rival", "rival's", 60 * SECOND), now=clock.now())
        claim.commit(1, progress=(5, {}))
    record = backend._space.records["key"]
    assert (record.owner, record.state) == ("rival", "claimed")
    assert ckpt.load().step == 0
    assert ckpt.stats.lost == 1


def test_progress_that_cannot_be_stored(ground: Ground) -> None:
    """A bad state is refused before the commit: the claim is still there, and can be committed or given back."""
    ckpt, backend, _ = ground
    with ckpt.claim("key") as claim:
        with pytest.raises(durastore.PayloadError):
            claim.commit(1, progress=(1, object()))
        assert state_of(backend) == "claimed"
        claim.commit(1)
    assert state_of(backend) == "committed"


def test_result_that_cannot_be_stored(ground: Ground) -> None:
    """By hand, too, the effect counts as done, and its result as lost."""
    ckpt, backend, _ = ground
    with ckpt.claim("key") as claim, pytest.raises(durastore.PayloadError, match="will not be repeated"):
        claim.commit(object())
    assert state_of(backend) == "committed"


def test_claim_by_hand_awaits(ground: Ground) -> None:
    """Somebody else's result is in the outcome, and there is no claim to hold."""
    ckpt, _, _ = ground
    ckpt.run_once("key", lambda: {"a": 1})
    with ckpt.claim("key") as claim:
        assert claim.outcome == Outcome({"a": 1}, "skipped")
        with pytest.raises(ConfigError, match="done already"):
            _ = claim.live
        assert durastore.current() is None


def test_probe_by_hand() -> None:
    """A probe is asked on the way in: what it found is the outcome."""
    store, backend, clock = virtual()
    backend.claim(ClaimRequest("key", "run", "dead", "n", 0), now=clock.now())
    with store.checkpoint("run", in_doubt=lambda _claim: Found(7)).claim("key") as claim:
        assert claim.outcome == (7, "recovered")


# The current claim


def test_current_by_hand_and_nested(ground: Ground) -> None:
    """Blocks and calls nest, each seeing the innermost claim; its neighbours in other threads see their own."""
    ckpt, _, _ = ground
    seen: dict[str, Any] = {}
    both = threading.Barrier(2)

    def neighbour(name: str) -> None:
        def effect() -> None:
            both.wait(30)
            seen[name] = durastore.current().key
            both.wait(30)

        ckpt.run_once(name, effect)

    threads = [threading.Thread(target=neighbour, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ckpt.claim("outer") as claim:
        seen["outer"] = durastore.current() is claim.live
        ckpt.run_once("inner", lambda: seen.update(inner=durastore.current().key))
        ckpt.transact("rows", lambda _tx: seen.update(rows=durastore.current().key))
        seen["after"] = durastore.current() is claim.live
        claim.commit(None)
        seen["still"] = durastore.current() is claim.live
    assert seen == {
        "left": "left", "right": "right", "outer": True, "inner": "inner", "rows": "rows", "after": True, "still": True
    }  # fmt: skip
    assert durastore.current() is None


def test_live_claim(ground: Ground) -> None:
    """What an effect can pass on: key, run, a token that grows, the attempt, and whether it is lost."""
    ckpt, _, _ = ground
    seen: list[Any] = []

    def effect() -> None:
        claim = durastore.current()
        seen.append((claim.key, claim.run_id, claim.attempt, claim.lost.is_set(), claim.token))
        if claim.attempt < 3:
            _boom()

    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            ckpt.run_once("key", effect)
    ckpt.run_once("key", effect)
    assert [found[:4] for found in seen] == [("key", "run", attempt, False) for attempt in (1, 2, 3)]
    assert [found[4] - seen[0][4] for found in seen] == [0, 1, 2]
