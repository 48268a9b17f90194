"""LOST: the request or its answer is lost on the way, for each verb, and the caller still gets it right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from durastore.conformance.client import nonce, payload, progress, request
from durastore.conformance.disturbing import REQUESTS_MAX, Case, disturbed
from durastore.conformance.harness import Harness, UserData
from durastore.conformance.marks import clause
from durastore.conformance.placing import placeable
from durastore.conformance.surface import run_agent
from durastore.contract import Grant, Granted, Payload, StoredProgress, StoredRecord

__all__ = ["LostClauses"]

STEPS = 12
OUTAGE_LEASE = 0.3
"""Seconds."""


def cases(harness: Harness, requests: int = REQUESTS_MAX) -> Iterator[Case]:
    """Every case; one that was not disturbed at all is an error of the test."""
    with disturbed(harness) as way:
        hits = 0
        for case in way.cases(requests):
            yield case
            hits += case.hit
        assert hits > 0, "nothing was disturbed"


def _granted(case: Case, key: str, **terms: Any) -> Grant:
    answer = case.store.call("claim", case.store.backend.claim, request(key, **terms))
    assert isinstance(answer, Granted), f"{case}: a free key is granted"
    return answer.grant


def _record(case: Case, key: str | None = None) -> StoredRecord:
    (found,) = case.store.call("read", case.store.backend.read, [key or case.key])
    assert found is not None, f"{case}: the record is there"
    record: StoredRecord = found
    return record


@dataclass(frozen=True)
class _Row:
    """An effect that writes a row of the application's own, in whatever process it runs."""

    data: UserData
    name: str
    value: str

    def __call__(self, tx: Any) -> Payload:
        self.data.write(tx, self.name, self.value)
        return payload("result")


class LostClauses:
    """One test for each LOST clause."""

    @clause("LOST-1")
    def test_lost_1_claim(self, harness: Harness) -> None:
        """The key is its caller's, once: attempt 1, with the token that is stored, and a commit that lands."""
        for case in cases(harness):
            asked = request(case.key)
            answer = case.call("claim", asked)
            assert isinstance(answer, Granted), f"{case}: locked out of its own key"
            assert (answer.grant.nonce, answer.grant.attempt, answer.took_over) == (asked.nonce, 1, None), case
            assert answer.grant.token == _record(case).token, case
            case.store.call("commit", case.store.backend.commit, answer.grant, result=payload("result"))
            assert _record(case).state == "committed", case

    @clause("LOST-2")
    def test_lost_2_takeover(self, harness: Harness) -> None:
        """Taken over once, and each answer says from whom."""
        for case in cases(harness):
            first = _granted(case, case.key, lease=0, owner="first")
            answer = case.call("claim", request(case.key))
            assert isinstance(answer, Granted), f"{case}: locked out of its own key"
            assert answer.took_over is not None, f"{case}: the caller is not told to look first"
            assert (answer.took_over.owner, answer.took_over.attempt) == ("first", 1), case
            assert (answer.grant.token, answer.grant.attempt) == (first.token + 1, 2), case
            assert _record(case).token == first.token + 1, case

    @clause("LOST-3")
    def test_lost_3_renew(self, harness: Harness) -> None:
        """No claim counts as lost because an answer was, of one or of several; both commit."""
        for case in cases(harness):
            grants = [_granted(case, key) for key in (case.key, f"{case.key} b")]
            before = _record(case)
            assert list(case.call("renew", grants)) == grants, f"{case}: a lost answer is not a lost claim"
            after = _record(case)
            assert (after.nonce, after.token, after.attempt) == (before.nonce, before.token, before.attempt), case
            assert (after.expires_at or 0) >= (before.expires_at or 0) - harness.clock_margin, case
            for grant in grants:
                case.store.call("commit", case.store.backend.commit, grant, result=payload("result"))

    @clause("LOST-4")
    def test_lost_4_commit(self, harness: Harness) -> None:
        """A success, once: the result stands, and so do the progress and a save that came later."""
        for case in cases(harness):
            grant = _granted(case, case.key)
            saved = progress(3, "three", run=case.key)
            case.call("commit", grant, result=payload("result"), progress=saved)
            assert (_record(case).state, _record(case).result) == ("committed", payload("result")), case
            loaded = case.store.call("load", case.store.backend.load, case.key)
            assert loaded is not None, f"{case}: the progress landed with the result"
            assert (loaded.step, loaded.state) == (3, payload("three")), case
            plain = _granted(case, f"{case.key} b")
            case.store.call("commit", case.store.backend.commit, plain, result=payload("plain"))

    @clause("LOST-4")
    def test_lost_4_commit_alone(self, harness: Harness) -> None:
        """The same without progress."""
        for case in cases(harness):
            case.call("commit", _granted(case, case.key), result=payload("result"))
            assert (_record(case).state, _record(case).result) == ("committed", payload("result")), case

    @clause("LOST-5")
    def test_lost_5_fused(self, harness: Harness) -> None:
        """Result, progress and the next claim land once. Who is granted the next claim holds it; who is not, may ask for it."""
        for case in cases(harness):
            then = request(f"{case.key} next")
            answer = case.call(
                "commit",
                _granted(case, case.key),
                result=payload("result"),
                progress=progress(3, run=case.key),
                then=then,
            )
            assert _record(case).state == "committed", case
            if answer is None:  # the commit may land alone, and says so
                answer = case.store.call("claim", case.store.backend.claim, then)
            assert isinstance(answer, Granted), f"{case}: locked out of its own key"
            assert (answer.grant.nonce, answer.grant.attempt) == (then.nonce, 1), case
            assert answer.grant.token == _record(case, then.key).token, case

    @clause("LOST-6")
    def test_lost_6_abandon(self, harness: Harness) -> None:
        """True, given back once, token and error kept."""
        for case in cases(harness):
            grant = _granted(case, case.key)
            assert case.call("abandon", grant, error="why", in_doubt=True) is True, case
            record = _record(case)
            assert (record.state, record.error, record.token) == ("in_doubt", "why", grant.token), case

    @clause("LOST-7")
    def test_lost_7_save(self, harness: Harness) -> None:
        """What is answered is what is stored, and it is what was saved."""
        for case in cases(harness):
            stored = case.call("save", progress(2, "two", run=case.key))
            assert (stored.step, stored.state) == (2, payload("two")), case
            loaded = case.store.call("load", case.store.backend.load, case.key)
            assert loaded == stored, case

    @clause("LOST-7")
    def test_lost_7_load(self, harness: Harness) -> None:
        """A look that got lost is taken again."""
        for case in cases(harness):
            case.store.call("save", case.store.backend.save, progress(2, "two", run=case.key))
            loaded = case.call("load", case.key)
            assert loaded is not None, case
            assert (loaded.step, loaded.state) == (2, payload("two")), case

    @clause("LOST-7")
    def test_lost_7_incarnate(self, harness: Harness) -> None:
        """Numbers may be left out, never drawn twice; step and state stay."""
        for case in cases(harness):
            case.store.call("save", case.store.backend.save, progress(2, "two", run=case.key))
            incarnate = case.store.backend.incarnate
            drawn = [case.store.call("incarnate", incarnate, case.key), case.call("incarnate", case.key)]
            drawn.append(case.store.call("incarnate", incarnate, case.key))
            assert drawn == sorted(set(drawn)), case
            loaded: StoredProgress | None = case.store.call("load", case.store.backend.load, case.key)
            assert loaded is not None, case
            assert loaded.step == 2, case

    @clause("LOST-7")
    def test_lost_7_place(self, harness: Harness) -> None:
        """Records that are placed stand as they were given, those beside a known key too, and the answer shows them."""
        for case in cases(harness):
            _granted(case, f"{case.key} known")
            given = [placeable(f"{case.key} {name}") for name in ("known", "new")]
            known, new = case.call("place", given)
            assert (known.state, new) == ("claimed", given[1]), case
            assert _record(case, new.key) == given[1], case

    @clause("LOST-7")
    def test_lost_7_place_run(self, harness: Harness) -> None:
        """A run that is placed stands as it was given, and the answer shows it."""
        for case in cases(harness):
            run = StoredProgress(case.key, 2, payload("two"), 7, 8)
            assert case.call("place_run", run) == run, case
            assert case.store.call("load", case.store.backend.load, case.key) == run, case

    @clause("LOST-8")
    def test_lost_8_transact(self, harness: Harness) -> None:
        """What the effect wrote stands once, with the mark and the progress; a second answer is that of the first."""
        data = harness.user_data
        if data is None:
            pytest.skip("nobody says how effects write to this store (see durastore.conformance.UserData)")
        data.prepare(harness.open())
        for case in cases(harness):
            grant, row = _granted(case, case.key), nonce()
            done = case.call("transact", grant, _Row(data, row, "row"), progress=progress(3, run=case.key))
            assert done == payload("result"), case
            assert data.read(case.store.backend, row) == "row", case
            assert (_record(case).state, _record(case).result) == ("committed", payload("result")), case
            again = _Row(data, row, "again")
            assert case.store.call("transact", case.store.backend.transact, grant, again) == payload("result"), case
            assert data.read(case.store.backend, row) == "row", f"{case}: an effect that landed is not called again"

    @clause("LOST-9")
    def test_lost_9_resolve(self, harness: Harness) -> None:
        """Settled once, and the answer says so."""
        for case in cases(harness):
            _granted(case, case.key, lease=0)
            settled = nonce()
            assert case.call("resolve", _record(case), nonce=settled, result=payload("found")) is True, case
            record = _record(case)
            assert (record.state, record.nonce, record.result) == ("committed", settled, payload("found")), case

    @clause("LOST-9")
    def test_lost_9_delete(self, harness: Harness) -> None:
        """It is gone, nothing else is. Who removed it may be unknown: then the answer is False."""
        for case in cases(harness):
            for key in (case.key, f"{case.key} b"):
                grant = _granted(case, key)
                case.store.call("commit", case.store.backend.commit, grant, result=payload("result"))
            case.call("delete", _record(case))
            left = case.store.call("read", case.store.backend.read, [case.key, f"{case.key} b"])
            assert [record is None for record in left] == [True, False], case

    @clause("LOST-10")
    def test_lost_10_sweep(self, harness: Harness) -> None:
        """All that is due goes, and nothing else: no claim, no result that is kept."""
        for case in cases(harness, requests=1):
            names = {state: f"{case.key} {state}" for state in ("due", "kept", "held")}
            grants = {state: _granted(case, key, lease=0) for state, key in names.items()}
            for state, retain in (("due", 0), ("kept", None)):
                commit = case.store.backend.commit
                case.store.call("commit", commit, grants[state], result=payload("result"), retain=retain)
            case.call("sweep")
            while case.store.call("sweep", case.store.backend.sweep).more:
                pass
            left = case.store.call("read", case.store.backend.read, list(names.values()))
            assert [record is None for record in left] == [True, False, False], case

    @clause("LOST-11")
    def test_lost_11_whole_runs(self, harness: Harness) -> None:
        """A run in bad weather: each effect happens once, in order, nobody waits for its own lease, and a replay finds it all."""
        with disturbed(harness) as way:
            way.bad_weather()
            began: list[int] = []
            ckpt = way.store.checkpoint("weather", wait=0)

            def effect(item: int) -> int:
                began.append(item)
                return item

            summary = run_agent(range(STEPS), ckpt, effect)
            assert (summary.executed, began) == (STEPS, list(range(STEPS)))
            replay = [ckpt.run_once(f"{ckpt.run_id}:step:{step}", lambda: -1) for step in range(STEPS)]
            assert replay == [(step, "skipped") for step in range(STEPS)]
            assert ckpt.load()[0] == STEPS

    @clause("OUTAGE-1")
    def test_outage_1_longer_than_a_lease(self, harness: Harness) -> None:
        """Out of reach for three leases while an effect runs: nobody replaced its holder, so it commits, and the run goes on."""
        with disturbed(harness) as way:
            began: list[int] = []
            ckpt = way.store.checkpoint("outage", lease=OUTAGE_LEASE, wait=0)

            def effect(item: int) -> int:
                began.append(item)
                if item == 1:
                    with way.out_of_reach():
                        time.sleep(3 * OUTAGE_LEASE)
                return item

            summary = run_agent(range(3), ckpt, effect, save_every=1)
            assert (summary.executed, began, ckpt.load()[0]) == (3, [0, 1, 2], 3)
            assert [way.store.record(f"{ckpt.run_id}:step:{step}").result for step in range(3)] == [0, 1, 2]  # type: ignore[union-attr]
