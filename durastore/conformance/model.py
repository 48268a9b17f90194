"""MODEL: random programs, run in lockstep on the store under test and on ``memory://``, which must not differ.

Hypothesis writes the programs (`RuleBasedStateMachine`) and, when the two sides differ, shrinks them to a short one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from durastore.conformance.client import DAY, LEASE, LISTED_SECONDS_MAX, SECOND, nonce
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause
from durastore.conformance.paging import every, sweep_all
from durastore.conformance.patient import patient
from durastore.contract import (
    Backend,
    ClaimRequest,
    Grant,
    Granted,
    Payload,
    RecordState,
    StoredProgress,
    StoredRecord,
)
from durastore.errors import ClaimLost, FingerprintMismatch
from durastore.memory import connect
from durastore.rules import ORPHAN_AGE
from durastore.urls import StoreURL

__all__ = ["EXAMPLES", "STEPS", "Lockstep", "ModelClauses"]

EXAMPLES = 100
"""Programs, unless told otherwise."""
STEPS = 50
"""Calls in a program, at most."""

T = TypeVar("T")
Both = tuple[T, T]
"""The same thing of both sides: the store's, and the model's. They differ at most in `version`."""
Call = Callable[[Backend, int], Any]
"""Calls a side with its own things; the number is the side's."""

KEYS, RUNS, OWNERS, PRINTS = ("a", "A"), ("r", "s"), ("alice", "bob"), (None, None, None, "one", "two")
STATES: tuple[RecordState | None, ...] = (None, "claimed", "in_doubt", "abandoned", "committed")
actors, keys, runs = st.integers(0, 1), st.sampled_from(KEYS), st.sampled_from(RUNS)
leases = st.sampled_from((0, LEASE, 2 * LEASE))
retentions = st.sampled_from((None, None, 0, LEASE, DAY))
steps = st.integers(0, 4)
data = st.sampled_from((b"", b"\0", b"result", b"\xff"))
errors = st.sampled_from((None, "", "boom"))
pauses = st.sampled_from((1, SECOND, LEASE, LEASE - 1, 2 * LEASE, DAY, ORPHAN_AGE))
picks = st.integers(0, 5)


class Patience:
    """Waits for an index that is consistent only eventually. Runs out once: a listing that is wrong for good is not waited for
    again and again while its program is made shorter.
    """

    def __init__(self) -> None:
        self._left = LISTED_SECONDS_MAX

    def wait_for(self, look: Callable[[], T], expected: T) -> T:
        """What is seen in the end."""
        began = time.monotonic()
        while (found := look()) != expected and time.monotonic() - began < self._left:
            time.sleep(0.05)
        self._left = self._left if found == expected else 0.0
        return found


class Lockstep(RuleBasedStateMachine):
    """One program: two clients of the store, one model, one virtual time."""

    def __init__(self, clients: Sequence[Backend], model: Backend, number: int, patience: Patience) -> None:
        super().__init__()
        self.clients, self.model, self.patience = clients, model, patience
        self.prefix = f"{number}:"
        self.now = BASE
        self.grants: list[Both[Grant]] = []
        self.seen: list[Both[StoredRecord]] = []
        self.incarnation = 0
        self.blobs: list[str] = []
        self.last: Call | None = None

    def both(self, actor: int, call: Call) -> Both[Any]:
        """Call both sides; the answers, or the contract's errors, must be equal."""
        self.last = call
        answers = (_answer(call, self.clients[actor], 0), _answer(call, self.model, 1))
        assert answers[0] == answers[1], "the store (left) answers as memory:// does (right)"
        return answers

    def request(self, key: str, run: str, owner: str, lease: int, **terms: Any) -> ClaimRequest:
        return ClaimRequest(self.prefix + key, self.prefix + run, owner, nonce(), lease, **terms)

    def keep(self, answers: Both[Any]) -> None:
        """Remember grants, for their holders to act on later, or too late."""
        if isinstance(answers[0], Granted):
            self.grants.append((answers[0].grant, answers[1].grant))

    @rule(pause=pauses)
    def time_passes(self, pause: int) -> None:
        self.now += pause

    @rule(
        actor=actors, key=keys, run=runs, owner=st.sampled_from(OWNERS), lease=leases, takeover=st.booleans(),
        fingerprint=st.sampled_from(PRINTS), newest=st.booleans(),
    )  # fmt: skip
    def claim(
        self, actor: int, key: str, run: str, owner: str, lease: int, fingerprint: str | None, *, takeover: bool,
        newest: bool,
    ) -> None:  # fmt: skip
        incarnation = self.incarnation if newest else 0
        asked = self.request(
            key, run, owner, lease, takeover=takeover, fingerprint=fingerprint, incarnation=incarnation
        )
        self.keep(self.both(actor, lambda side, _: side.claim(asked, now=self.now)))

    @rule(actor=actors, key=keys, lease=leases, newest=st.booleans())
    def claim_to_get_it(self, actor: int, key: str, lease: int, *, newest: bool) -> None:
        """On terms that are granted more often."""
        asked = self.request(key, RUNS[0], OWNERS[0], lease, incarnation=self.incarnation if newest else 0)
        self.keep(self.both(actor, lambda side, _: side.claim(asked, now=self.now)))

    @precondition(lambda self: self.last is not None)
    @rule(actor=actors)
    def last_call_again(self, actor: int) -> None:
        """As after a lost answer."""
        assert self.last is not None
        self.both(actor, self.last)

    @precondition(lambda self: self.grants)
    @rule(actor=actors, picked=st.lists(picks, max_size=4))
    def renew(self, actor: int, picked: list[int]) -> None:
        grants = [_pick(self.grants, pick) for pick in picked]
        answers = self.both(
            actor, lambda side, which: list(side.renew([grant[which] for grant in grants], now=self.now))
        )
        for given, pair in zip(grants, zip(*answers, strict=True), strict=True):
            self.grants = [pair if grant is given and None not in pair else grant for grant in self.grants]

    @precondition(lambda self: self.grants)
    @rule(
        actor=actors, pick=picks, result=data, retain=retentions, step=st.none() | steps, run=runs,
        then=st.none() | keys, fingerprint=st.sampled_from(PRINTS), takeover=st.booleans(), large=st.booleans(),
    )  # fmt: skip
    def commit(
        self, actor: int, pick: int, result: bytes, retain: int | None, step: int | None, run: str, then: str | None,
        fingerprint: str | None, *, takeover: bool, large: bool,
    ) -> None:  # fmt: skip
        grant = _pick(self.grants, pick)
        asked = then and self.request(then, run, "next", LEASE, takeover=takeover, fingerprint=fingerprint)
        payload = Payload(result, self._chunks(actor) if large else None)
        saved = None if step is None else StoredProgress(self.prefix + run, step, Payload(result))
        answers = self.both(
            actor,
            lambda side, which: side.commit(
                grant[which], result=payload, retain=retain, progress=saved, then=asked or None, now=self.now
            ),
        )
        self.keep(answers)

    @precondition(lambda self: self.grants)
    @rule(actor=actors, pick=picks, result=data, retain=retentions, step=st.none() | steps, run=runs)
    def transact(self, actor: int, pick: int, result: bytes, retain: int | None, step: int | None, run: str) -> None:
        grant = _pick(self.grants, pick)
        saved = None if step is None else StoredProgress(self.prefix + run, step, Payload(result))
        effect = partial(_payload, result)
        self.both(
            actor,
            lambda side, which: side.transact(grant[which], effect, retain=retain, progress=saved, now=self.now),
        )

    @precondition(lambda self: self.grants)
    @rule(actor=actors, pick=picks, error=errors, in_doubt=st.booleans())
    def abandon(self, actor: int, pick: int, error: str | None, *, in_doubt: bool) -> None:
        grant = _pick(self.grants, pick)
        self.both(actor, lambda side, which: side.abandon(grant[which], error=error, in_doubt=in_doubt, now=self.now))

    def _look(self, actor: int, key: str) -> None:
        found = self.both(actor, lambda side, _: side.read([self.prefix + key], now=self.now)[0])
        if found[0] is not None:
            self.seen.append(found)

    def _seen(self, actor: int, key: str, old: int | None) -> Both[StoredRecord] | None:
        """A record to act on: as it is now, or as it was when somebody looked."""
        if old is None:
            self._look(actor, key)
        return _pick(self.seen, old or 0) if self.seen else None

    @rule(actor=actors, key=keys, old=st.none() | picks, result=st.none() | data, retain=retentions)
    def resolve(self, actor: int, key: str, old: int | None, result: bytes | None, retain: int | None) -> None:
        seen, new = self._seen(actor, key, old), nonce()
        stored = None if result is None else Payload(result)
        if seen is not None:
            self.both(
                actor,
                lambda side, which: side.resolve(seen[which], nonce=new, result=stored, retain=retain, now=self.now),
            )

    @rule(actor=actors, key=keys, old=st.none() | picks, really=st.integers(0, 3))
    def look_or_forget(self, actor: int, key: str, old: int | None, really: int) -> None:
        seen = self._seen(actor, key, old)
        if seen is not None and really == 3:
            self.both(actor, lambda side, which: side.delete(seen[which], now=self.now))

    @rule(
        actor=actors, key=keys, state=st.sampled_from(STATES[2:]), token=st.sampled_from((1, BASE, 2 * BASE)), result=data,
        retain=retentions, fingerprint=st.sampled_from(PRINTS),
    )  # fmt: skip
    def place(
        self, actor: int, key: str, state: RecordState, token: int, result: bytes, retain: int | None, fingerprint: str | None
    ) -> None:  # fmt: skip
        done = state == "committed"
        record = StoredRecord(
            key=self.prefix + key, run_id=self.prefix + RUNS[0], state=state, token=token, attempt=3, nonce=nonce(),
            owner="elsewhere", lease=LEASE, expires_at=None, incarnation=0, fingerprint=fingerprint,
            error=None if done else "boom", result=Payload(result) if done else None,
            retain_until=self.now + retain if done and retain is not None else None, taken_from=None,
            created_at=BASE - DAY, updated_at=BASE - LEASE,
        )  # fmt: skip
        self.both(actor, lambda side, _: list(side.place([record], now=self.now)))

    @rule(actor=actors, run=runs, step=st.none() | steps, state=data)
    def save_or_load(self, actor: int, run: str, step: int | None, state: bytes) -> None:
        if step is not None:
            progress = StoredProgress(self.prefix + run, step, Payload(state))
            self.both(actor, lambda side, _: side.save(progress, now=self.now))
        self.both(actor, lambda side, _: side.load(self.prefix + run))

    @rule(actor=actors, run=runs, what=st.sampled_from(("sweep", "sweep", "incarnate", "incarnate", "forget", "place")))
    def keep_house(self, actor: int, run: str, what: str) -> None:
        if what == "sweep":
            self.both(actor, lambda side, _: sum(swept.records for swept in sweep_all(side, now=self.now)))
        elif what == "place":
            given = StoredProgress(self.prefix + run, 2, Payload(b"placed"), BASE - DAY, BASE - LEASE)
            self.both(actor, lambda side, _: side.place_run(given))
        elif what == "forget":
            self.both(actor, lambda side, _: side.delete_run(self.prefix + run))
        else:
            self.incarnation = self.both(actor, lambda side, _: side.incarnate(self.prefix + run, now=self.now))[0]
            self.last = None  # drawing again is another number, on purpose

    @rule(actor=actors, state=st.sampled_from(STATES), run=st.none() | runs, prefix=st.just("") | keys)
    def scan(self, actor: int, state: RecordState | None, run: str | None, prefix: str) -> None:
        run_id = None if run is None else self.prefix + run
        listed = partial(_listed, run_id=run_id, state=state, prefix=self.prefix + prefix, now=self.now)
        expected = listed(self.model)
        found = self.patience.wait_for(lambda: listed(self.clients[actor]), expected)
        assert found == expected, "the store (left) lists what memory:// does (right)"

    def _chunks(self, actor: int) -> str:
        blob = nonce()
        self.both(actor, lambda side, _: side.put_chunks(blob, [b"one", blob.encode()], now=self.now))
        self.blobs.append(blob)
        return blob

    def teardown(self) -> None:
        """The contents are the same; then they go."""
        names = [self.prefix + key for key in KEYS]
        records = self.both(1, lambda side, _: list(side.read(names, now=self.now)))
        loaded = self.both(0, lambda side, _: [side.load(self.prefix + run) for run in RUNS])
        used = {stored.result.blob for stored in records[0] if stored and stored.result and stored.result.blob}
        self.both(0, lambda side, _: {blob: list(side.get_chunks(blob)) for blob in used})
        self._clear(names, [run.run_id for run in loaded[0] if run])

    def _clear(self, names: list[str], known_runs: list[str]) -> None:
        for side in (self.clients[0], self.model):
            for record in side.read(names, now=1):
                if record is not None:
                    side.delete(record, now=1)
            for run in known_runs:
                side.delete_run(run)


def _answer(call: Call, side: Backend, which: int) -> Any:
    try:
        return call(side, which)
    except (ClaimLost, FingerprintMismatch) as exc:
        return type(exc)


def _pick(things: Sequence[T], pick: int) -> T:
    """The newest for 0: what just happened is the most telling."""
    return things[-1 - pick % len(things)]


def _payload(result: bytes, _tx: Any) -> Payload:
    return Payload(result)


def _listed(side: Backend, **filters: Any) -> dict[str, StoredRecord]:
    scan = partial(side.scan, limit=2, **filters)
    return {record.key: record for page in every(lambda cursor: scan(cursor=cursor)) for record in page.items}


class ModelClauses:
    """The MODEL clause. `examples` says how many programs, `shrinks` whether one that fails is made shorter."""

    examples: int | None = None
    shrinks = True

    @clause("MODEL-1")
    def test_model_1_lockstep(self, harness: Harness) -> None:
        """Any program gets the same answers, and leaves the same contents, as on ``memory://``."""
        clients, model = [patient(harness.open()) for _ in range(2)], connect(StoreURL("memory", ""))
        numbers, patience = count(), Patience()
        given = settings(
            max_examples=self.examples or EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            derandomize=self.examples is None or "CI" in os.environ,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink] if self.shrinks else [Phase.generate],
        )
        machine: Any = lambda: Lockstep(clients, model, next(numbers), patience)  # noqa: E731  a factory, where a class is asked for
        run: Any = run_state_machine_as_test  # untyped in the last Hypothesis for Python 3.10
        run(machine, settings=given)
