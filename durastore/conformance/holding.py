"""RENEW and COMMIT: what a holder may do, and what one that was replaced may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from durastore.conformance.client import LEASE, SECOND, Client, nonce, payload, progress, request
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause
from durastore.contract import Committed, Grant, Granted, Held, TookOver
from durastore.errors import ClaimLost

__all__ = ["WAYS_TO_LOSE", "CommitClauses", "RenewClauses"]


def _replaced(client: Client, grant: Grant) -> None:
    client.grant(grant.key, at=2 * LEASE, owner="bob")


def _forgotten(client: Client, grant: Grant) -> None:
    assert client.delete(client.record(grant.key))


def _forgotten_and_claimed(client: Client, grant: Grant) -> None:
    _forgotten(client, grant)
    client.grant(grant.key, at=2 * LEASE, owner="bob")


def _settled(client: Client, grant: Grant) -> None:
    assert client.resolve(client.record(grant.key), "settled")


def _settled_for_retry(client: Client, grant: Grant) -> None:
    assert client.resolve(client.record(grant.key))


WAYS_TO_LOSE: Mapping[str, Callable[[Client, Grant], object]] = {
    "replaced": _replaced,
    "given back": lambda client, grant: client.abandon(grant),
    "in doubt": lambda client, grant: client.abandon(grant, in_doubt=True),
    "settled": _settled,
    "settled for retry": _settled_for_retry,
    "forgotten": _forgotten,
    "forgotten and claimed": _forgotten_and_claimed,
}
"""How a claim is lost to its holder."""


class RenewClauses:
    """One test or more for each RENEW clause."""

    @clause("RENEW-1")
    def test_renew_1_renewal_extends(self, harness: Harness) -> None:
        """A renewal counts from now, by the lease of the grant that it is given; token and attempt stay."""
        client = Client(harness)
        grant = client.grant()
        (renewed,) = client.renew(grant, at=SECOND)
        assert renewed == grant
        assert client.record().expires_at == BASE + SECOND + LEASE
        client.renew(replace(grant, lease=3 * LEASE), at=SECOND)
        record = client.record()
        assert (record.expires_at, record.lease) == (BASE + SECOND + 3 * LEASE, 3 * LEASE)
        assert (record.token, record.attempt, record.nonce) == (grant.token, 1, grant.nonce)

    @clause("RENEW-1")
    def test_renew_1_lapsed_claim_is_renewed(self, harness: Harness) -> None:
        """A lapsed claim that nobody replaced is renewed, and is live again."""
        client, other = Client(harness), Client(harness, "bob")
        (renewed,) = client.renew(client.grant(), at=5 * LEASE)
        assert renewed is not None
        assert other.claim(at=6 * LEASE - 1) == Held("alice", "run", 1, 1, None, in_doubt=False)

    @clause("RENEW-1")
    def test_renew_1_any_of_its_grants_will_do(self, harness: Harness) -> None:
        """The nonce decides: an older copy of the grant renews and commits after a newer one renewed."""
        client = Client(harness)
        oldest = client.grant()
        assert None not in [*client.renew(oldest, at=1), *client.renew(oldest, at=2)]
        client.commit(oldest, at=3)
        assert client.record().state == "committed"

    @clause("RENEW-2")
    def test_renew_2_lost_claim_is_not_renewed(self, harness: Harness) -> None:
        """A claim that was replaced, given back, left in doubt, resolved or forgotten: None, and nothing changes."""
        client = Client(harness)
        grants = {way: client.grant(way) for way in WAYS_TO_LOSE}
        for way, lose in WAYS_TO_LOSE.items():
            lose(client, grants[way])
        with client.unchanged(*WAYS_TO_LOSE):
            answers = client.renew(*grants.values(), at=3 * LEASE)
        assert dict(zip(grants, answers, strict=True)) == dict.fromkeys(grants)

    @clause("RENEW-2")
    def test_renew_2_answers_in_order(self, harness: Harness) -> None:
        """Many at once: one answer for each grant, in their order, lost ones among live ones; none for none."""
        client = Client(harness)
        grants = [client.grant(f"key-{number}") for number in range(5)]
        client.abandon(grants[1])
        client.commit(grants[3])
        answers = client.renew(*grants, at=SECOND)
        assert [None if answer is None else answer.key for answer in answers] == [
            "key-0",
            None,
            "key-2",
            "key-3",
            "key-4",
        ]
        assert list(client.renew()) == []

    @clause("RENEW-3")
    def test_renew_3_committed_claim(self, harness: Harness) -> None:
        """A claim that its own nonce has committed: the grant, and nothing changes."""
        client = Client(harness)
        grant = client.done()
        with client.unchanged():
            assert list(client.renew(grant, at=SECOND)) == [grant]


class CommitClauses:
    """One test or more for each COMMIT clause."""

    @clause("COMMIT-1")
    def test_commit_1_commit(self, harness: Harness) -> None:
        """A commit stores the result and the mark; token, attempt and fingerprint stay, the error of earlier attempts goes."""
        client, other = Client(harness), Client(harness, "bob")
        client.abandon(client.grant(), error="boom")
        grant = client.grant(at=1, fingerprint="print")
        assert client.commit(grant, "result", at=2) is None
        record = other.record()
        assert (record.state, record.result, record.error) == ("committed", payload("result"), None)
        assert (record.token, record.attempt, record.fingerprint) == (grant.token, 2, "print")
        assert (record.expires_at, record.retain_until, record.nonce) == (None, None, grant.nonce)

    @clause("COMMIT-1")
    def test_commit_1_lapsed_claim_is_committed(self, harness: Harness) -> None:
        """A lapsed claim that nobody replaced is committed."""
        client = Client(harness)
        client.commit(client.grant(lease=0), at=LEASE)
        assert client.record().state == "committed"

    @clause("COMMIT-2")
    def test_commit_2_lost_claim_is_not_committed(self, harness: Harness) -> None:
        """A claim that was replaced, given back, left in doubt, resolved or forgotten: `ClaimLost`, and nothing changes."""
        client, zombie = Client(harness), Client(harness, "zombie")
        client.save(5)
        for way, lose in WAYS_TO_LOSE.items():
            grant = zombie.grant(way)
            lose(client, grant)
            with client.unchanged(way), pytest.raises(ClaimLost):
                zombie.commit(grant, "late", progress=progress(9, "late"), then=request("next"), at=3 * LEASE)
            assert client.read("next", at=3 * LEASE) is None, f"{way}: `then` is not claimed"

    @clause("COMMIT-2")
    def test_commit_2_new_holder_is_untouched(self, harness: Harness) -> None:
        """After a zombie's commit was refused, the new holder commits, and its result stands."""
        client, zombie = Client(harness), Client(harness, "zombie")
        late = zombie.grant(lease=0)
        grant = client.grant(at=1)
        for _ in range(2):
            with pytest.raises(ClaimLost):
                zombie.commit(late, "late", at=2)
        client.commit(grant, "good", at=3)
        with client.unchanged(), pytest.raises(ClaimLost):
            zombie.commit(late, "late", at=4)
        assert client.record().result == payload("good")

    @clause("COMMIT-3")
    def test_commit_3_repeated_commit(self, harness: Harness) -> None:
        """Repeated by the same nonce: a success that changes neither record nor progress, whatever it brings."""
        client, again = Client(harness), Client(harness)
        grant = client.grant()
        client.commit(grant, "first", progress=progress(1, "first"), retain=LEASE)
        with client.unchanged():
            assert again.commit(grant, "first", progress=progress(1, "first"), retain=LEASE, at=1) is None
            assert again.commit(grant, "second", progress=progress(2, "second"), at=2) is None

    @clause("COMMIT-3")
    def test_commit_3_repeated_commit_answers_then(self, harness: Harness) -> None:
        """A repeated commit answers the grant of `then` again; asked with another request, by the rules of `claim`."""
        client, again = Client(harness), Client(harness)
        grant, asked = client.grant(), request("next")
        first = client.commit(grant, then=asked)
        assert isinstance(first, Granted)
        with client.unchanged("key", "next"):
            assert again.commit(grant, then=asked, at=1) == first
            assert again.commit(grant, then=request("next"), at=1) is None

    @clause("COMMIT-4")
    def test_commit_4_progress_lands_with_the_result(self, harness: Harness) -> None:
        """Result and progress land together: a new run, a higher step, an equal step."""
        client, other = Client(harness), Client(harness)
        for step, state in ((3, "new"), (4, "higher"), (4, "equal")):
            client.commit(client.grant(state), progress=progress(step, state))
            loaded = other.load()
            assert loaded is not None
            assert (loaded.step, loaded.state) == (step, payload(state))
            assert other.record(state).state == "committed"

    @clause("COMMIT-4")
    def test_commit_4_lower_step_leaves_progress_alone(self, harness: Harness) -> None:
        """A commit with a lower step lands, and leaves step and state as they are; so does one without progress."""
        client = Client(harness)
        client.save(5, "five")
        before = client.load()
        client.commit(client.grant("lower"), progress=progress(4, "four"), at=1)
        client.commit(client.grant("none"), at=1)
        assert client.load() == before
        assert client.record("lower").state == client.record("none").state == "committed"

    @clause("COMMIT-4")
    def test_commit_4_progress_of_another_run(self, harness: Harness) -> None:
        """The progress is saved under its own run id, and leaves that run's incarnation alone."""
        client = Client(harness)
        drawn = client.backend.incarnate("other", now=BASE)
        client.commit(client.grant(), progress=progress(2, run="other"))
        loaded = client.load("other")
        assert loaded is not None
        assert (loaded.step, loaded.incarnation) == (2, drawn)
        assert client.load("run") is None

    @clause("COMMIT-5")
    def test_commit_5_then_is_claimed(self, harness: Harness) -> None:
        """A free next key is claimed in the same operation, as `claim` would have."""
        client, other = Client(harness), Client(harness)
        asked = request("next", fingerprint="print")
        answer = client.commit(client.grant(), progress=progress(1), then=asked, at=5)
        assert isinstance(answer, Granted)
        assert answer.took_over is None
        record = other.record("next")
        assert (answer.grant.token, answer.grant.attempt) == (record.token, record.attempt) == (BASE + 5, 1)
        assert (record.state, record.nonce, record.fingerprint) == ("claimed", asked.nonce, "print")
        assert record.expires_at == BASE + 5 + LEASE
        assert other.record("key").state == "committed"

    @clause("COMMIT-5")
    def test_commit_5_then_takes_over(self, harness: Harness) -> None:
        """An expired next key is taken over and told so; without `takeover` the commit lands alone."""
        client = Client(harness)
        first = client.grant("next", owner="bob", lease=0)
        with client.unchanged("next"):
            assert client.commit(client.grant("one"), then=request("next", takeover=False), at=1) is None
        answer = client.commit(client.grant("two"), then=request("next"), at=1)
        assert isinstance(answer, Granted)
        assert answer.took_over == TookOver("bob", first.token, 1, None)
        assert {client.record(key).state for key in ("one", "two")} == {"committed"}

    @clause("COMMIT-5")
    def test_commit_5_commit_lands_alone(self, harness: Harness) -> None:
        """A next key that is held, committed, or known by another fingerprint: the commit lands, with its progress, alone."""
        client = Client(harness)
        client.grant("held", owner="bob")
        client.done("committed")
        client.grant("other inputs", fingerprint="one", lease=0)
        for step, key in enumerate(("held", "committed", "other inputs"), 1):
            grant = client.grant(f"before {key}")
            with client.unchanged(key, run="none"):
                answer = client.commit(grant, progress=progress(step), then=request(key, fingerprint="two"), at=1)
            assert answer is None, key
            assert client.record(f"before {key}").state == "committed"
            loaded = client.load()
            assert loaded is not None
            assert loaded.step == step

    @clause("COMMIT-5")
    def test_commit_5_then_after_then(self, harness: Harness) -> None:
        """A whole run, each commit claiming the next key: the fused grants commit as any other."""
        client = Client(harness)
        grant = client.grant("step-0")
        for step in range(1, 4):
            answer = client.commit(grant, progress=progress(step), then=request(f"step-{step}"), at=step)
            assert isinstance(answer, Granted)
            grant = answer.grant
        assert None not in client.renew(grant, at=LEASE)
        client.abandon(grant, at=LEASE)
        assert [client.record(f"step-{step}").state for step in range(4)] == [*["committed"] * 3, "abandoned"]

    @clause("COMMIT-6")
    def test_commit_6_retained_until(self, harness: Harness) -> None:
        """With `retain` the result is there up to the last microsecond, and absent from then on; 0 is absent at once."""
        client = Client(harness)
        client.commit(client.grant("key"), retain=SECOND, at=5)
        client.commit(client.grant("zero"), retain=0, at=5)
        assert client.record("key").retain_until == BASE + 5 + SECOND
        assert isinstance(client.claim("key", at=SECOND + 4), Committed)
        assert client.read("key", at=SECOND + 5) is None
        assert client.read("zero", at=5) is None

    @clause("COMMIT-1")
    def test_commit_1_unknown_grant(self, harness: Harness) -> None:
        """A grant that never was: `ClaimLost`, and no record comes of it."""
        client = Client(harness)
        grant = replace(client.grant("other"), key="key", nonce=nonce(), version=None)
        with pytest.raises(ClaimLost):
            client.commit(grant)
        assert client.read() is None
