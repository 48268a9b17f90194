"""CLAIM: who gets a key."""

from __future__ import annotations

from functools import partial

import pytest

from durastore.conformance.client import LEASE, SECOND, Client, at_once, request
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause
from durastore.contract import Committed, Granted, Held, TookOver
from durastore.errors import ClaimLost, FingerprintMismatch

__all__ = ["ClaimClauses"]

RACES = 10


class ClaimClauses:
    """One test or more for each CLAIM clause."""

    @clause("CLAIM-1")
    def test_claim_1_absent_key_is_granted(self, harness: Harness) -> None:
        """An absent key: granted, attempt 1, nothing taken over; the record says who holds it and until when."""
        client = Client(harness)
        asked = request(owner="alice", fingerprint="print", incarnation=3)
        answer = client.ask(asked)
        assert isinstance(answer, Granted)
        assert answer.took_over is None
        grant, record = answer.grant, client.record()
        assert (grant.key, grant.run_id, grant.owner, grant.nonce) == ("key", "run", "alice", asked.nonce)
        assert (grant.attempt, grant.lease) == (1, LEASE)
        assert (record.state, record.nonce, record.owner, record.run_id) == ("claimed", asked.nonce, "alice", "run")
        assert (record.token, record.attempt, record.lease) == (grant.token, 1, LEASE)
        assert (record.expires_at, record.incarnation, record.fingerprint) == (BASE + LEASE, 3, "print")
        assert (record.error, record.result, record.retain_until, record.taken_from) == (None, None, None, None)

    @clause("CLAIM-1")
    def test_claim_1_abandoned_key_is_granted(self, harness: Harness) -> None:
        """A key that was given back: granted at once, attempt + 1, nothing taken over."""
        client = Client(harness)
        client.abandon(client.grant(), error="boom")
        answer = client.granted(at=1, owner="bob", takeover=False)
        assert (answer.grant.attempt, answer.took_over) == (2, None)
        assert client.record().owner == "bob"

    @clause("CLAIM-1")
    def test_claim_1_key_past_retention_is_granted(self, harness: Harness) -> None:
        """A committed key past its retention: granted as if it had never been, attempt 1 and no old result."""
        client = Client(harness)
        client.abandon(client.grant())
        client.done(retain=SECOND)
        answer = client.granted(at=SECOND, takeover=False)
        record = client.record(at=SECOND)
        assert (answer.grant.attempt, answer.took_over) == (1, None)
        assert (record.state, record.result, record.retain_until) == ("claimed", None, None)

    @clause("CLAIM-2")
    def test_claim_2_committed_key_answers_its_result(self, harness: Harness) -> None:
        """A committed key: its result and token, to every caller at any time, and nothing is written."""
        client, other = Client(harness), Client(harness, "bob")
        grant = client.done(result="the result")
        with client.unchanged():
            for at, terms in ((0, {}), (LEASE * 9, {"takeover": False}), (LEASE, {"run": "other", "incarnation": 9})):
                answer = other.claim(at=at, **terms)
                assert isinstance(answer, Committed)
                assert (answer.result.data, answer.token) == (b"the result", grant.token)

    @clause("CLAIM-3")
    def test_claim_3_live_claim_is_held(self, harness: Harness) -> None:
        """A live claim, up to its last microsecond: `Held` with holder and lease left, and nothing is written."""
        client, other = Client(harness), Client(harness, "bob")
        client.grant(lease=10 * SECOND)
        with client.unchanged():
            for at in (0, 4 * SECOND, 10 * SECOND - 1):
                answer = other.claim(at=at, run="other", takeover=True)
                assert isinstance(answer, Held)
                assert answer == Held("alice", "run", 10 * SECOND - at, 1, None, in_doubt=False)

    @clause("CLAIM-3")
    def test_claim_3_rivals_at_once(self, harness: Harness) -> None:
        """Of several that ask at the same moment exactly one is granted, the others hear who it was."""
        rivals = [Client(harness, f"rival-{number}") for number in range(4)]
        answers = at_once(*(rival.claim for rival in rivals))
        granted = [answer for answer in answers if isinstance(answer, Granted)]
        held = [answer for answer in answers if isinstance(answer, Held)]
        assert (len(granted), len(held)) == (1, 3), answers
        assert {answer.owner for answer in held} == {granted[0].grant.owner} == {rivals[0].record().owner}

    @clause("CLAIM-4")
    def test_claim_4_expired_claim_is_taken_over(self, harness: Harness) -> None:
        """A claim is expired at its grant + lease exactly; its grant says whom it took over."""
        client, other = Client(harness), Client(harness, "bob")
        first = client.grant(lease=10 * SECOND)
        answer = other.granted(at=10 * SECOND, run="other")
        assert answer.took_over == TookOver("alice", first.token, 1, None)
        assert (answer.grant.attempt, answer.grant.run_id) == (2, "other")
        record = client.record()
        assert (record.owner, record.taken_from, record.state) == ("bob", "alice", "claimed")
        assert record.expires_at == BASE + 10 * SECOND + LEASE

    @clause("CLAIM-4")
    def test_claim_4_renewed_claim_expires_later(self, harness: Harness) -> None:
        """The last renewal counts, not the grant."""
        client = Client(harness)
        client.renew(client.grant(lease=10 * SECOND), at=7 * SECOND)
        assert isinstance(client.claim(at=17 * SECOND - 1), Held)
        assert client.granted(at=17 * SECOND).took_over is not None

    @clause("CLAIM-4")
    def test_claim_4_expired_claim_without_takeover(self, harness: Harness) -> None:
        """Without `takeover`, an expired claim is reported as in doubt, and nothing is written."""
        client = Client(harness)
        client.grant(lease=10 * SECOND)
        with client.unchanged():
            answer = client.claim(at=10 * SECOND, owner="bob", takeover=False)
            assert answer == Held("alice", "run", 0, 1, None, in_doubt=True)

    @clause("CLAIM-4")
    def test_claim_4_claim_in_doubt(self, harness: Harness) -> None:
        """A claim left in doubt is treated like an expired one, at once; its error is told."""
        client = Client(harness)
        first = client.grant()
        client.abandon(first, error="ValueError: boom", in_doubt=True)
        with client.unchanged():
            answer = client.claim(at=1, takeover=False)
            assert answer == Held("alice", "run", 0, 1, "ValueError: boom", in_doubt=True)
        second = client.granted(at=1, owner="bob")
        assert second.took_over == TookOver("alice", first.token, 1, "ValueError: boom")

    @clause("CLAIM-5")
    def test_claim_5_same_nonce_while_it_stands(self, harness: Harness) -> None:
        """A request repeated while its claim stands, even lapsed: the same grant; the lease is not prolonged."""
        client, again = Client(harness), Client(harness)
        asked = request(lease=10 * SECOND)
        first = client.ask(asked)
        with client.unchanged():
            for at in (0, SECOND, 11 * SECOND):
                assert again.ask(asked, at=at) == first

    @clause("CLAIM-5")
    def test_claim_5_same_nonce_after_takeover(self, harness: Harness) -> None:
        """A takeover repeated by its nonce answers the same `took_over`, its error too."""
        client = Client(harness)
        client.abandon(client.grant(), error="boom", in_doubt=True)
        asked = request(owner="bob")
        first = client.ask(asked, at=1)
        assert isinstance(first, Granted)
        assert first.took_over is not None
        with client.unchanged():
            assert client.ask(asked, at=2) == first

    @clause("CLAIM-5")
    def test_claim_5_same_nonce_afterwards(self, harness: Harness) -> None:
        """Once committed, the nonce gets `Committed`; once given back or left in doubt, `Held`, never a second grant."""
        client = Client(harness)
        asked = {key: request(key) for key in ("committed", "back", "doubt")}
        grants = {key: client.must(asked[key]).grant for key in asked}
        client.commit(grants["committed"])
        client.abandon(grants["back"])
        client.abandon(grants["doubt"], in_doubt=True)
        with client.unchanged(*asked):
            late = {key: client.ask(again, at=LEASE * 2) for key, again in asked.items()}
        assert {key: type(answer) for key, answer in late.items()} == {
            "committed": Committed,
            "back": Held,
            "doubt": Held,
        }

    @clause("CLAIM-6")
    def test_claim_6_other_fingerprint(self, harness: Harness) -> None:
        """Another fingerprint is refused for a committed, live, expired or in-doubt record, and nothing is written."""
        client = Client(harness)
        client.done("committed", fingerprint="one")
        client.grant("live", fingerprint="one")
        client.grant("expired", fingerprint="one", lease=0)
        client.abandon(client.grant("doubt", fingerprint="one"), in_doubt=True)
        for key in ("committed", "live", "expired", "doubt"):
            for takeover in (True, False):
                with client.unchanged(key), pytest.raises(FingerprintMismatch):
                    client.claim(key, at=SECOND, fingerprint="two", takeover=takeover)

    @clause("CLAIM-6")
    def test_claim_6_same_or_no_fingerprint(self, harness: Harness) -> None:
        """The same fingerprint is accepted; None on either side is not compared."""
        client = Client(harness)
        client.done("with", fingerprint="one")
        client.done("without")
        for key, given in (("with", "one"), ("with", None), ("without", "any"), ("without", None)):
            assert isinstance(client.claim(key, fingerprint=given), Committed), (key, given)
        assert client.record("without").fingerprint is None

    @clause("CLAIM-6")
    def test_claim_6_abandoned_takes_new_fingerprint(self, harness: Harness) -> None:
        """A record that was given back, or is past retention, takes the new fingerprint; None leaves none."""
        client = Client(harness)
        for key, given in (("new", "two"), ("none", None)):
            client.abandon(client.grant(key, fingerprint="one"))
            client.grant(key, at=1, fingerprint=given)
            assert client.record(key).fingerprint == given
        client.done("old", fingerprint="one", retain=SECOND)
        client.grant("old", at=SECOND, fingerprint="two")
        assert client.record("old", at=SECOND).fingerprint == "two"

    @clause("CLAIM-6")
    def test_claim_6_takeover_keeps_fingerprint(self, harness: Harness) -> None:
        """A grant over an expired or in-doubt claim keeps the stored fingerprint when it brings none, else takes its own."""
        client = Client(harness)
        client.grant("kept", fingerprint="one", lease=0)
        client.grant("kept", at=1)
        assert client.record("kept").fingerprint == "one"
        client.abandon(client.grant("taken"), in_doubt=True)
        client.grant("taken", at=1, fingerprint="two")
        assert client.record("taken").fingerprint == "two"

    @clause("CLAIM-7")
    def test_claim_7_takeover_against_commit(self, harness: Harness) -> None:
        """A takeover and the holder's commit at the same moment: exactly one of them happens, and it stays."""
        holder, taker = Client(harness), Client(harness, "bob")
        for number in range(RACES):
            key = f"key-{number}"
            grant = holder.grant(key, lease=0)
            committed, answer = at_once(
                partial(holder.commit, grant, key, at=SECOND), partial(taker.claim, key, at=SECOND)
            )
            record = holder.record(key)
            if isinstance(answer, Granted):
                assert isinstance(committed, ClaimLost), "a commit that was taken over must not report success"
                assert (record.state, record.nonce) == ("claimed", answer.grant.nonce)
            else:
                assert isinstance(answer, Committed), answer
                assert committed is None
                assert (record.state, record.nonce) == ("committed", grant.nonce)

    @clause("CLAIM-7")
    def test_claim_7_takeover_against_takeover(self, harness: Harness) -> None:
        """Of several that take over one expired claim at the same moment exactly one is granted."""
        rivals = [Client(harness, f"rival-{number}") for number in range(3)]
        for number in range(3):
            rivals[0].grant(f"key-{number}", lease=0)
            answers = at_once(*(partial(rival.claim, f"key-{number}", at=1) for rival in rivals))
            assert [type(answer) for answer in answers].count(Granted) == 1, answers
            assert rivals[0].record(f"key-{number}").attempt == 2

    @clause("CLAIM-8")
    def test_claim_8_lease_of_zero(self, harness: Harness) -> None:
        """`lease` 0 is an expired lease: granted, free for takeover at once, never free for nothing."""
        client = Client(harness)
        first = client.grant(lease=0)
        assert client.record().expires_at == BASE
        assert client.claim(takeover=False) == Held("alice", "run", 0, 1, None, in_doubt=True)
        assert client.granted(owner="bob").took_over == TookOver("alice", first.token, 1, None)

    @clause("CLAIM-9")
    def test_claim_9_tokens(self, harness: Harness) -> None:
        """The first token is the store's time; each later grant has one more: after a give-back, a lapse, a commit."""
        client = Client(harness)
        first = client.grant(at=5)
        assert first.token == BASE + 5
        client.abandon(first, at=6)
        second = client.grant(at=7, lease=0)
        third = client.grant(at=8)
        client.commit(third, retain=SECOND, at=9)
        fourth = client.grant(at=2 * SECOND)
        assert [second.token, third.token, fourth.token] == [first.token + 1, first.token + 2, first.token + 3]

    @clause("CLAIM-9")
    def test_claim_9_tokens_outlive_the_record(self, harness: Harness) -> None:
        """A record that was forgotten or swept away: the next token is larger all the same."""
        client = Client(harness)
        first = client.done("forgotten")
        assert client.delete(client.record("forgotten"))
        assert client.grant("forgotten", at=SECOND).token > first.token
        second = client.done("swept", retain=1)
        client.sweep(at=SECOND)
        assert client.grant("swept", at=2 * SECOND).token > second.token

    @clause("CLAIM-10")
    def test_claim_10_higher_incarnation_supersedes(self, harness: Harness) -> None:
        """A live claim of the same run and a lower incarnation counts as expired."""
        client = Client(harness)
        first = client.grant(incarnation=4)
        with client.unchanged():
            assert client.claim(incarnation=5, takeover=False) == Held("alice", "run", LEASE, 1, None, in_doubt=True)
        answer = client.granted(incarnation=5, owner="bob")
        assert answer.took_over == TookOver("alice", first.token, 1, None)
        assert client.record().incarnation == 5

    @clause("CLAIM-10")
    def test_claim_10_others_do_not_supersede(self, harness: Harness) -> None:
        """A live claim stands against an equal or lower incarnation, and against another run."""
        client = Client(harness)
        client.grant(incarnation=4)
        with client.unchanged():
            for terms in (
                {"incarnation": 4},
                {"incarnation": 3},
                {"incarnation": 0},
                {"incarnation": 9, "run": "other"},
            ):
                answer = client.claim(**terms)
                assert isinstance(answer, Held), terms
                assert not answer.in_doubt

    @clause("CLAIM-10", "CLAIM-6")
    def test_claim_10_superseding_keeps_to_the_fingerprint(self, harness: Harness) -> None:
        """A higher incarnation with another fingerprint is refused like anybody else."""
        client = Client(harness)
        client.grant(incarnation=4, fingerprint="one")
        with client.unchanged(), pytest.raises(FingerprintMismatch):
            client.claim(incarnation=5, fingerprint="two")

    @clause("CLAIM-5", "CLAIM-9")
    def test_claim_5_replaced_nonce_never_matches(self, harness: Harness) -> None:
        """A holder that was replaced has lost its claim for good, though the new claim lapses too."""
        client = Client(harness)
        first = client.grant(lease=0)
        client.grant(at=1, owner="bob", lease=0)
        with client.unchanged():
            assert list(client.renew(first, at=2)) == [None]
            with pytest.raises(ClaimLost):
                client.commit(first, at=2)
