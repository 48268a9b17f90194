"""The server's clock decides: leases, retention and tokens, without virtual time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from durastore.contract import Granted, Held
from durastore_firestore import FirestoreBackend, wire

from .requests import MINUTE, RESULT, granted, request
from .wiretap import Wiretap

DAY = 24 * 3600 * 1_000_000
SECOND = 1_000_000


def document(backend: FirestoreBackend, key: str) -> wire.Message:
    name = backend._space.names.record(key)
    return backend._space.rpc.get([name]).documents[name]


def test_expiry_ignores_the_clients_clock(backend: FirestoreBackend, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A client whose clock is a year ahead steals nothing, and one a year behind waits no longer."""
    backend.claim(request("live"))
    backend.claim(request("lapsed", lease=0))
    for shift in (-365 * DAY, 365 * DAY):
        monkeypatch.setattr(time, "time_ns", lambda shift=shift, real=time.time_ns: real() + shift * 1000)
        answer = backend.claim(request("live"))
        assert isinstance(answer, Held)
        assert not answer.in_doubt
        assert answer.lease_left is not None
        assert 0 < answer.lease_left <= MINUTE
        assert isinstance(backend.claim(request("lapsed", lease=0)), Granted)
        monkeypatch.undo()


def test_lease_lapses_and_renewals_extend_it(backend: FirestoreBackend) -> None:
    """A renewal is stored although nothing in the record differs: the lease counts from it."""
    grant = granted(backend.claim(request("key", lease=5 * SECOND)))
    before = document(backend, "key").update_time
    for _ in range(2):
        (renewed,) = backend.renew([grant])
        assert renewed is not None
        after = document(backend, "key").update_time
        assert wire.micros(after) > wire.micros(before)
        grant, before = renewed, after
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.expires_at == record.updated_at + 5 * SECOND


def test_first_token_is_the_servers_time(backend: FirestoreBackend) -> None:
    """The token is the creation's commit time, also for those who read it later, through every kind of write."""
    before = backend.time()
    grant = granted(backend.claim(request("key")))
    assert before < grant.token <= backend.time()
    for _ in range(2):
        (renewed,) = backend.renew([grant])
        assert renewed is not None
        (record,) = backend.read(["key"])
        assert record is not None
        assert record.token == record.created_at == grant.token
        grant = renewed
    assert backend.abandon(grant, error=None, in_doubt=False)
    again = granted(backend.claim(request("key")))
    assert again.token == grant.token + 1


def test_tokens_grow_across_forget(backend: FirestoreBackend) -> None:
    """A key that was removed and claimed anew has a higher token, however fast that goes."""
    tokens = []
    for _ in range(10):
        tokens.append(granted(backend.claim(request("key"))).token)
        (record,) = backend.read(["key"])
        assert record is not None
        assert backend.delete(record)
    assert tokens == sorted(set(tokens))


def test_retention_is_logical_and_ttl_comes_later(backend: FirestoreBackend) -> None:
    """Past retention the record is absent at once; Firestore's own deletion is due a day later, never before."""
    backend.commit(granted(backend.claim(request("gone"))), result=RESULT, retain=0)
    backend.commit(granted(backend.claim(request("kept"))), result=RESULT, retain=MINUTE)
    gone, kept = backend.read(["gone", "kept"])
    assert gone is None
    assert kept is not None
    assert kept.retain_until == kept.updated_at + MINUTE
    deletion = wire.values(document(backend, "kept"))["expire_at"]
    assert isinstance(deletion, wire.Stamp)
    assert abs(deletion - (kept.retain_until + DAY)) < 30 * SECOND
    assert "expire_at" not in wire.values(document_after_reclaim(backend, "gone"))
    assert backend.sweep().records == 0


def document_after_reclaim(backend: FirestoreBackend, key: str) -> wire.Message:
    granted(backend.claim(request(key)))
    return document(backend, key)


def test_a_frozen_sandbox_does_not_shorten_retention(backend: FirestoreBackend) -> None:
    """A process that slept through three days estimates the time wrongly, and mends what it wrote at once."""
    grant = granted(backend.claim(request("key")))
    server, monotonic, wall = backend._space.rpc.clock._seen
    backend._space.rpc.clock._seen = (server - 3 * DAY, monotonic, wall)
    backend.commit(grant, result=RESULT, retain=MINUTE)
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.retain_until is not None
    deletion = wire.values(document(backend, "key"))["expire_at"]
    assert abs(deletion - (record.retain_until + DAY)) < 30 * SECOND


def test_sweep_removes_what_is_due_and_nothing_else(backend: FirestoreBackend, tap: Wiretap) -> None:
    """The sweep reads what is past retention, not the collection."""
    for number in range(5):
        backend.commit(granted(backend.claim(request(f"due-{number}"))), result=RESULT, retain=0)
        backend.commit(granted(backend.claim(request(f"kept-{number}"))), result=RESULT, retain=MINUTE)
        backend.claim(request(f"claimed-{number}", lease=0))
    assert backend.sweep(limit=3).records == 3
    assert backend.sweep(limit=3).records == 2
    assert [record is not None for record in backend.read(["due-0", "kept-0", "claimed-0"])] == [False, True, True]


def test_sweep_spares_a_key_that_is_claimed_meanwhile(
    backend: FirestoreBackend, tap: Wiretap, another: Callable[[], FirestoreBackend]
) -> None:
    """A key past retention that somebody claims between the sweep's look and its deletion stays theirs."""
    backend.commit(granted(backend.claim(request("key"))), result=RESULT, retain=0)
    rival = another()
    grants: list[Granted] = []
    tap.before_commit(lambda: grants.append(rival.claim(request("key"))))  # type: ignore[arg-type]  # asserted below
    assert backend.sweep().records == 0
    assert isinstance(grants[0], Granted)
    rival.commit(grants[0].grant, result=RESULT)
