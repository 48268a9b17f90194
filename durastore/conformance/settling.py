"""ABANDON, RESOLVE and FORGET: how a claim ends without a commit of its holder."""

from __future__ import annotations

from functools import partial

import pytest

from durastore.conformance.client import LEASE, SECOND, Client, at_once, nonce, payload
from durastore.conformance.harness import Harness
from durastore.conformance.holding import WAYS_TO_LOSE
from durastore.conformance.marks import clause
from durastore.contract import Committed, Held, TookOver
from durastore.errors import ClaimLost

__all__ = ["AbandonClauses", "ForgetClauses", "ResolveClauses"]


class AbandonClauses:
    """One test or more for each ABANDON clause."""

    @clause("ABANDON-1")
    def test_abandon_1_given_back(self, harness: Harness) -> None:
        """A claim is given back, lapsed or not; the record stays, and with it token and nonce."""
        client = Client(harness)
        for key, lease in (("live", LEASE), ("lapsed", 0)):
            grant = client.grant(key, lease=lease, fingerprint="print")
            assert client.abandon(grant, at=1) is True
            record = client.record(key)
            assert (record.state, record.token, record.nonce) == ("abandoned", grant.token, grant.nonce)
            assert (record.expires_at, record.attempt, record.fingerprint) == (None, 1, "print")
            assert client.grant(key, at=2).token == grant.token + 1

    @clause("ABANDON-1")
    def test_abandon_1_left_in_doubt(self, harness: Harness) -> None:
        """With `in_doubt` the record says so, and nobody gets the key without a takeover."""
        client = Client(harness)
        assert client.abandon(client.grant(), in_doubt=True) is True
        assert client.record().state == "in_doubt"
        answer = client.claim(takeover=False)
        assert isinstance(answer, Held)
        assert answer.in_doubt

    @clause("ABANDON-2")
    def test_abandon_2_no_longer_ours(self, harness: Harness) -> None:
        """A claim that was replaced, committed, resolved or forgotten: False, and nothing changes."""
        client, zombie = Client(harness), Client(harness, "zombie")
        own = ("given back", "in doubt")
        ways = {way: lose for way, lose in WAYS_TO_LOSE.items() if way not in own}
        for way, lose in (ways | {"committed": lambda client, grant: client.commit(grant)}).items():
            grant = zombie.grant(way)
            lose(client, grant)
            for in_doubt in (False, True):
                with client.unchanged(way):
                    assert zombie.abandon(grant, in_doubt=in_doubt, error="late", at=3 * LEASE) is False, way

    @clause("ABANDON-3")
    def test_abandon_3_repeated(self, harness: Harness) -> None:
        """Repeated by the same nonce: True, and nothing changes, whatever it brings."""
        client, again = Client(harness), Client(harness)
        for key, in_doubt in (("back", False), ("doubt", True)):
            grant = client.grant(key)
            client.abandon(grant, in_doubt=in_doubt, error="first")
            with client.unchanged(key):
                assert again.abandon(grant, in_doubt=in_doubt, error="first", at=1) is True
                assert again.abandon(grant, in_doubt=not in_doubt, error="second", at=2) is True

    @clause("ABANDON-4")
    def test_abandon_4_error_is_kept(self, harness: Harness) -> None:
        """The error is told by the record, by `Held` while the next attempt runs, and by `TookOver`."""
        client = Client(harness)
        error = "ValueError: it said 'no' — 😀\n\tsecond line \\ %s"
        client.abandon(client.grant("back"), error=error)
        assert client.record("back").error == error
        client.grant("back", at=1, owner="bob")
        assert client.claim("back", at=1) == Held("bob", "run", LEASE, 2, error, in_doubt=False)
        first = client.grant("doubt")
        client.abandon(first, error=error, in_doubt=True)
        assert client.granted("doubt", at=1).took_over == TookOver("alice", first.token, 1, error)

    @clause("ABANDON-4")
    def test_abandon_4_error_of_the_last_attempt(self, harness: Harness) -> None:
        """A later error replaces an earlier one, and none at all replaces it too."""
        client = Client(harness)
        for error in ("first", "second", None):
            client.abandon(client.grant(), error=error)
            assert client.record().error == error


class ResolveClauses:
    """One test or more for each RESOLVE clause."""

    @clause("RESOLVE-1")
    def test_resolve_1_only_what_was_seen(self, harness: Harness) -> None:
        """A record whose nonce or state (by now) changed since it was seen: False, and nothing changes."""
        client = Client(harness)
        replaced = client.grant("replaced", lease=0)
        committed, lapsed, back = (client.grant(key) for key in ("committed", "lapsed", "back"))
        client.abandon(client.grant("doubt"), in_doubt=True)
        seen = {key: client.record(key) for key in ("replaced", "committed", "lapsed", "back", "doubt")}
        client.grant(replaced.key, at=1)
        client.commit(committed)
        client.abandon(back)
        client.grant("doubt", at=1)
        for key, at in (("replaced", 1), ("committed", 1), ("back", 1), ("doubt", 1)):
            for result in ("result", None):
                with client.unchanged(key):
                    assert client.resolve(seen[key], result, at=at) is False, key
        client.renew(lapsed, at=SECOND)
        with client.unchanged("lapsed"):
            assert client.resolve(seen["lapsed"], at=LEASE) is False, "seen in doubt by now, but renewed meanwhile"

    @clause("RESOLVE-1")
    def test_resolve_1_forgotten_record(self, harness: Harness) -> None:
        """A record that is gone, or past retention: False, and none comes of it."""
        client = Client(harness)
        client.grant("gone")
        client.done("retained", retain=SECOND)
        gone, retained = client.record("gone"), client.record("retained")
        client.delete(gone)
        assert client.resolve(gone, "result", at=SECOND) is False
        assert client.resolve(retained, "result", at=SECOND) is False
        assert client.read("gone") is client.read("retained", at=SECOND) is None

    @clause("RESOLVE-1")
    def test_resolve_1_settled_as_done(self, harness: Harness) -> None:
        """A record in doubt is settled with a result: every later caller gets it, for as long as it is retained."""
        client, other = Client(harness), Client(harness)
        client.abandon(client.grant(), in_doubt=True, error="boom")
        assert client.resolve(client.record(), "by hand", retain=LEASE) is True
        answer = other.claim()
        assert isinstance(answer, Committed)
        assert answer.result == payload("by hand")
        assert other.read(at=LEASE) is None

    @clause("RESOLVE-1")
    def test_resolve_1_settled_for_retry(self, harness: Harness) -> None:
        """A record in doubt, or a lapsed claim, is given back for another attempt: a free key, nothing taken over."""
        client = Client(harness)
        client.grant("lapsed", lease=0)
        client.abandon(client.grant("doubt"), in_doubt=True)
        for key in ("lapsed", "doubt"):
            assert client.resolve(client.record(key)) is True
            answer = client.granted(key, at=1, takeover=False)
            assert (answer.grant.attempt, answer.took_over) == (2, None)

    @clause("RESOLVE-2")
    def test_resolve_2_former_holder_has_lost(self, harness: Harness) -> None:
        """The record takes the new nonce, so that the former holder can't write; token, attempt, fingerprint stay."""
        client = Client(harness)
        for key, result in (("done", "by hand"), ("retry", None)):
            grant = client.grant(key, lease=0, fingerprint="print")
            new = nonce()
            assert client.resolve(client.record(key), result, new=new)
            record = client.record(key)
            assert (record.nonce, record.token, record.attempt) == (new, grant.token, 1)
            assert record.fingerprint == "print"
            with client.unchanged(key):
                assert list(client.renew(grant)) == [None]
                assert client.abandon(grant) is False
                with pytest.raises(ClaimLost):
                    client.commit(grant, "late")

    @clause("RESOLVE-3")
    def test_resolve_3_repeated(self, harness: Harness) -> None:
        """Repeated with the same new nonce: True, and nothing changes."""
        client, again = Client(harness), Client(harness)
        for key, result in (("done", "by hand"), ("retry", None)):
            client.grant(key, lease=0)
            seen, new = client.record(key), nonce()
            assert client.resolve(seen, result, new=new)
            with client.unchanged(key):
                assert again.resolve(seen, result, new=new, at=1) is True


class ForgetClauses:
    """One test or more for each FORGET clause."""

    @clause("FORGET-1")
    def test_forget_1_forgotten(self, harness: Harness) -> None:
        """A record in any state is removed; the key counts as never seen."""
        client, other = Client(harness), Client(harness)
        client.grant("claimed")
        client.abandon(client.grant("back"))
        client.abandon(client.grant("doubt"), in_doubt=True)
        client.done("committed")
        for key in ("claimed", "back", "doubt", "committed"):
            seen = client.record(key)
            assert client.delete(seen) is True
            assert other.read(key) is None
            assert client.delete(seen) is False
            assert other.granted(key, at=1).grant.attempt == 1

    @clause("FORGET-1")
    def test_forget_1_only_what_was_seen(self, harness: Harness) -> None:
        """A record whose nonce or state (by now) changed since it was seen: False, and nothing changes."""
        client = Client(harness)
        client.grant("replaced", lease=0)
        committed, renewed = client.grant("committed"), client.grant("renewed")
        seen = {key: client.record(key) for key in ("replaced", "committed", "renewed")}
        client.grant("replaced", at=1)
        client.commit(committed)
        client.renew(renewed, at=SECOND)
        for key, at in (("replaced", 1), ("committed", 1), ("renewed", LEASE)):
            with client.unchanged(key):
                assert client.delete(seen[key], at=at) is False, key

    @clause("FORGET-1")
    def test_forget_1_against_commit(self, harness: Harness) -> None:
        """A removal and the holder's commit at the same moment: a commit that reported success is still there."""
        holder, other = Client(harness), Client(harness)
        for number in range(5):
            key = f"key-{number}"
            grant = holder.grant(key)
            seen = other.record(key)
            committed, deleted = at_once(partial(holder.commit, grant), partial(other.delete, seen))
            record = holder.read(key)
            if deleted is True:
                assert isinstance(committed, ClaimLost)
                assert record is None
            else:
                assert (deleted, committed) == (False, None)
                assert record is not None
                assert record.state == "committed"
