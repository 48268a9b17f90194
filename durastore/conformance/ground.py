"""TIME, RETRY, ERROR, KEY, SPACE, SETUP and LIMIT-1: what holds for every method."""

from __future__ import annotations

from typing import Any

from durastore.conformance.client import DAY, LEASE, SECOND, Client, at_once, nonce, payload, progress, request
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause
from durastore.conformance.patient import patient
from durastore.contract import ClaimRequest, Granted, Held, Payload

__all__ = ["KEYS_APART", "NASTY_KEYS", "GroundClauses"]

KEYS_APART = (
    *("key", "KEY", "Key", "key ", " key", "key\t", "key\n", "ke", "key\u200b", "key.", "ключ", "ßkey", "sskey"),
    *("caf\u00e9", "cafe\u0301", "cafe", "CAF\u00c9", "\u212b", "\u00c5", "ﬁ", "fi", "İ", "i", "\u0131", "I"),
    *("1", "01", "1.0", "\uff11", "true", "null", "None"),
)
"""Keys that a collation, a normalisation or a conversion merges."""
NASTY_KEYS = (
    *("/", ".", "..", "__x__", "a/b", "a//b", "a/../b", "\\", "%", "%2F", "_", "*", "?", "#", "a#b", ":", "|", "$"),
    *(
        "'",
        '"',
        "`",
        "';--",
        "${x}",
        "{}",
        "[0]",
        "<b>",
        "&amp;",
        "\x01",
        "\x1b[31m",
        "\x7f",
        "\r\n",
        "\u2028",
        "\ufeff",
    ),
    *("😀", "👩\u200d👩\u200d👧", "\u202eabc", "\U0010ffff", "\ufffd", "\uffff", "a" * 1024, "é" * 512, "😀" * 256),
)
"""Keys with a meaning to some store, and the longest."""
CLOCK_SLACK = SECOND
"""Microseconds that one answer may be away from the next, for stores with a coarse clock."""


class GroundClauses:
    """One test or more for each clause on all methods."""

    @clause("TIME-1")
    def test_time_1_now_replaces_the_clock(self, harness: Harness) -> None:
        """`now` alone decides: a lease of a minute lapses between two calls that say so, and not between two that don't."""
        client = Client(harness)
        client.grant(lease=LEASE)
        assert isinstance(client.claim(at=LEASE - 1), Held)
        assert isinstance(client.claim(at=LEASE), Granted)
        client.done("kept", retain=DAY)
        assert client.read("kept", at=DAY - 1) is not None
        assert client.read("kept", at=DAY) is None

    @clause("TIME-1")
    def test_time_1_the_stores_own_clock(self, harness: Harness) -> None:
        """Without `now` the store's clock decides: tokens and leases are of its time."""
        client, other = Client(harness), Client(harness)
        slack = harness.clock_margin + CLOCK_SLACK
        before = client.backend.time()
        answer = client.backend.claim(request(lease=LEASE))
        after = other.backend.time()
        assert isinstance(answer, Granted)
        assert before - slack <= answer.grant.token <= after + slack
        held = other.backend.claim(request(owner="bob"))
        assert isinstance(held, Held)
        assert held.lease_left is not None
        assert 0 < held.lease_left <= LEASE + slack
        lapsed = client.backend.claim(request("lapsed", lease=0))
        assert isinstance(lapsed, Granted)
        (record,) = other.backend.read(["key"])
        assert record is not None
        assert record.expires_at is not None
        assert before + LEASE - slack <= record.expires_at <= after + LEASE + slack

    @clause("RETRY-1")
    def test_retry_1_every_verb_twice(self, harness: Harness) -> None:
        """Each verb, called again with the same arguments by a client that knows of no answer, answers as before."""
        first, again = Client(harness).backend, Client(harness).backend

        def twice(verb: str, *args: Any, **kwargs: Any) -> Any:
            answer = getattr(first, verb)(*args, **kwargs, now=BASE)
            assert getattr(again, verb)(*args, **kwargs, now=BASE) == answer, f"{verb} answers as before"
            return answer

        blob, new = nonce(), nonce()
        grant = twice("claim", request()).grant
        twice("renew", [grant])
        twice("put_chunks", blob, [b"a", b"b"])
        then = twice("commit", grant, result=Payload(b"h", blob), progress=progress(1), then=request("next"))
        twice("save", progress(2))
        twice("abandon", then.grant, error="boom", in_doubt=True)
        twice("resolve", again.read(["next"], now=BASE)[0], nonce=new, result=payload("x"))
        records = first.read(["key", "next"], now=BASE)
        assert [record and (record.state, record.attempt) for record in records] == [("committed", 1)] * 2
        assert list(again.get_chunks(blob)) == [b"a", b"b"]

    @clause("ERROR-1")
    def test_error_1_what_is_not_the_stores(self, harness: Harness) -> None:
        """`classify` leaves alone what is not the store's: errors of the application, and bugs."""
        client = Client(harness)
        for error in (ValueError("x"), KeyError("x"), ZeroDivisionError(), RuntimeError("boom"), Exception("boom")):
            assert client.backend.classify(error) is None, repr(error)

    @clause("KEY-1")
    def test_key_1_keys_are_apart(self, harness: Harness) -> None:
        """Keys that differ in case, blanks, normalisation or in looking like a number are different keys."""
        client = Client(harness)
        for key in KEYS_APART:
            answer = client.claim(key, fingerprint=key)
            assert isinstance(answer, Granted), f"{key!r} is taken for another key"
        found = client.backend.read(KEYS_APART, now=BASE)
        assert [record and (record.key, record.fingerprint) for record in found] == [(key, key) for key in KEYS_APART]

    @clause("KEY-1")
    def test_key_1_runs_are_apart(self, harness: Harness) -> None:
        """Run ids that differ in the same ways are different runs."""
        client = Client(harness)
        for step, run in enumerate(KEYS_APART):
            assert client.load(run) is None, f"{run!r} is taken for another run"
            client.save(step, run, run=run)
        for step, run in list(enumerate(KEYS_APART))[::3]:
            loaded = client.load(run)
            assert loaded is not None
            assert (loaded.run_id, loaded.step, loaded.state) == (run, step, payload(run))

    @clause("LIMIT-1")
    def test_limit_1_nasty_keys(self, harness: Harness) -> None:
        """Keys and run ids up to 1,024 bytes with characters that mean something to some store, through their whole life."""
        client, other = Client(harness), Client(harness)
        for number, key in enumerate(NASTY_KEYS):
            grant = client.grant(key, run=key)
            assert (grant.key, grant.run_id) == (key, key)
            client.commit(grant, progress=progress(number, key, run=key))
        found = other.backend.read(NASTY_KEYS, now=BASE)
        assert [record and (record.key, record.run_id, record.state) for record in found] == [
            (key, key, "committed") for key in NASTY_KEYS
        ]
        for number, key in list(enumerate(NASTY_KEYS))[::4]:
            loaded = other.load(key)
            assert loaded is not None
            assert (loaded.run_id, loaded.step) == (key, number)

    @clause("LIMIT-1")
    def test_limit_1_nasty_texts(self, harness: Harness) -> None:
        """Owners and fingerprints keep every character as well."""
        client = Client(harness)
        for number, text in enumerate(NASTY_KEYS[:12]):
            client.ask(ClaimRequest(f"key-{number}", "run", f"owner {text}", nonce(), LEASE, True, f"print {text}"))
            record = client.record(f"key-{number}")
            assert (record.owner, record.fingerprint) == (f"owner {text}", f"print {text}")

    @clause("SPACE-1")
    def test_space_1_namespaces_are_apart(self, harness: Harness) -> None:
        """Another namespace of the same store sees neither records nor runs nor chunks, and its sweep leaves them alone."""
        client, other = Client(harness), patient(harness.elsewhere())
        blob, orphan = nonce(), nonce()
        client.backend.put_chunks(blob, [b"chunk"], now=BASE)
        client.backend.put_chunks(orphan, [b"chunk"], now=BASE)
        client.backend.commit(client.grant(), result=Payload(b"header", blob), progress=progress(3), now=BASE)
        client.done("old", retain=1)
        assert list(other.read(["key"], now=BASE)) == [None]
        assert other.load("run") is None
        assert list(other.get_chunks(blob)) == []
        assert (list(other.scan(now=BASE).items), list(other.scan_runs().items)) == ([], [])
        seen = client.record()
        assert other.delete(seen, now=BASE) is False
        assert other.delete_run("run") is False
        assert isinstance(other.claim(request(), now=BASE), Granted)
        with client.unchanged("key", "old"):
            other.sweep(now=BASE + 2 * DAY)
        assert list(client.backend.get_chunks(orphan)) == [b"chunk"]

    @clause("SETUP-1")
    def test_setup_1_setup_at_once(self, harness: Harness) -> None:
        """Several clients set up at the same moment, on a store in use: all succeed, and it keeps its contents."""
        clients = [Client(harness) for _ in range(4)]
        clients[0].done()
        clients[0].save(3)
        with clients[0].unchanged():
            assert at_once(*(client.backend.setup for client in clients)) == [None] * len(clients)
        assert all(finding.ok for finding in clients[0].backend.check()), clients[0].backend.check()
