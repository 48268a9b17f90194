"""The store's clock decides, and is known from its answers alone: leases, retention, tokens and signatures, without virtual time.

What is shifted is the ``Date`` of the answers (`Wiretap.shift`): the store has no other clock, so that this machine's clock is
wrong by as much. A restored snapshot and a frozen machine are a shift in mid-run, since then the monotonic clock stood still.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import pytest

import durastore
from durastore import urls
from durastore.contract import Granted, Held
from durastore_dynamodb import DynamoDBBackend
from durastore_dynamodb.backend import DynamoDBBackend as Backend
from durastore_dynamodb.clock import MARGIN, StoreClock
from durastore_dynamodb.target import parse

from .conftest import Another
from .requests import MINUTE, RESULT, TABLE, granted, request
from .wiretap import Sent, Wiretap

SECOND = 1_000_000
HOUR = 3600
CLOSE = 30 * SECOND
"""Near enough on a machine that is busy; what must not be is off by an hour."""
SKEW_MAX = 300
"""Seconds that AWS lets a signature's date be off."""


def elsewhere(url: str, shift: float) -> tuple[DynamoDBBackend, Wiretap]:
    """A client whose machine's clock is off: it has heard nothing of the store yet."""
    backend = Backend(parse(urls.parse(url)))
    tap = Wiretap().attach(backend.client)
    tap.shift = shift
    return backend, tap


def stop_clocks(monkeypatch: pytest.MonkeyPatch, *taps: Wiretap) -> None:
    """No time passes, at the store or here, but by `Wiretap.shift`."""
    now, here = float(int(time.time())), time.monotonic()
    for tap in taps:
        tap.stands_at = now
    monkeypatch.setattr(time, "monotonic", lambda: here)


def now_at(tap: Wiretap) -> int:
    return int((time.time() + tap.shift) * SECOND)


@pytest.mark.parametrize("shift", [HOUR, -HOUR, 0.0], ids=["behind", "ahead", "right"])
def test_a_clock_that_is_off(url: str, shift: float) -> None:
    """Stamps are by the store's time: a claim ends a lease after its grant, by the clock that the others see."""
    backend, tap = elsewhere(url, shift)
    grant = granted(backend.claim(request("key")))
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.expires_at is not None
    assert abs(record.expires_at - MINUTE - now_at(tap)) <= CLOSE
    assert abs(grant.token - now_at(tap)) <= CLOSE
    assert abs(backend.time() - now_at(tap)) <= CLOSE
    backend.commit(grant, result=RESULT, retain=MINUTE)
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.retain_until is not None
    assert abs(record.retain_until - MINUTE - now_at(tap)) <= CLOSE
    backend.close()


def test_nobody_steals_by_a_wrong_clock(url: str, backend: DynamoDBBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock that is set a year ahead or back, before or after opening, takes over nothing and waits no longer."""
    backend.claim(request("live"))
    for days in (-365, 365):
        monkeypatch.setattr(time, "time", lambda real=time.time, days=days: real() + days * 86400)
        monkeypatch.setattr(time, "time_ns", lambda real=time.time_ns, days=days: real() + days * 86400 * 10**9)
        fresh = Backend(parse(urls.parse(url)))
        for client in (backend, fresh):
            answer = client.claim(request("live"))
            assert isinstance(answer, Held)
            assert not answer.in_doubt
            assert answer.lease_left is not None
            assert 0 < answer.lease_left <= MINUTE + 2 * SECOND
            assert isinstance(client.claim(request("lapsed", lease=0)), Granted)
        fresh.close()
        monkeypatch.undo()


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["frozen", "restored"])
def test_a_grant_is_checked_against_its_own_answer(backend: DynamoDBBackend, tap: Wiretap, jump: float) -> None:
    """An hour passed unnoticed. The claim's answer tells, and the claim is stamped anew before it is handed out."""
    backend.time()
    tap.requests()
    tap.shift = jump
    grant = granted(backend.claim(request("key")))
    first, second = tap.requests()
    assert abs(_expiry(first) - MINUTE - now_at(tap)) > HOUR / 2 * SECOND, "the first stamp was by the old time"
    assert abs(_expiry(second) - MINUTE - now_at(tap)) <= CLOSE
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.token == grant.token == _new(second, "token")


def _expiry(sent: Sent) -> int:
    return _new(sent, "expires_at")


def _new(sent: Sent, name: str) -> int:
    return int(sent.body["ExpressionAttributeValues"][f":new_{name}"]["N"])


@pytest.mark.parametrize(("frozen", "keeps_its_token"), [(10.0, True), (HOUR, False)], ids=["seconds", "an hour"])
def test_a_claim_that_was_long_on_its_way(
    backend: DynamoDBBackend, tap: Wiretap, frozen: float, keeps_its_token: bool
) -> None:
    """The process stood still between stamp and sending, its monotonic clock did not: the claim is stamped anew. Others may have
    seen its token, which stays, unless a higher one may have been forgotten since.
    """
    backend.time()
    real, ahead = time.monotonic, [0.0]
    tap.requests()

    def freeze() -> None:
        ahead[0] = tap.shift = frozen

    tap.before(freeze)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: real() + ahead[0])
        grant = granted(backend.claim(request("key")))
        first, second = tap.requests()
        (record,) = backend.read(["key"])
    assert record is not None
    assert record.expires_at is not None
    assert _expiry(second) - _expiry(first) > frozen / 2 * SECOND
    assert abs(record.expires_at - MINUTE - now_at(tap)) <= CLOSE
    assert record.token == grant.token
    assert (grant.token == _new(first, "token")) is keeps_its_token


@pytest.mark.parametrize(("frozen", "stays"), [(10.0, True), (HOUR, False)], ids=["seconds", "an hour"])
def test_an_incarnation_that_was_long_on_its_way(
    backend: DynamoDBBackend, tap: Wiretap, frozen: float, stays: bool
) -> None:
    """The same: after an hour a higher one may have been forgotten."""
    backend.time()
    real, ahead = time.monotonic, [0.0]
    tap.requests()

    def freeze() -> None:
        ahead[0] = tap.shift = frozen

    tap.before(freeze)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: real() + ahead[0])
        drawn = backend.incarnate("run")
        assert len(tap.requests()) == (1 if stays else 2)
        assert (abs(drawn - now_at(tap)) > frozen / 2 * SECOND) is stays
        assert backend.incarnate("run") == drawn + 1


def test_a_restamp_rechecks(backend: DynamoDBBackend, tap: Wiretap, another: Another) -> None:
    """Stamped an hour too early, the claim looks lapsed to others: when one takes it before it is mended, it is theirs."""
    rival = another()
    rival_tap = Wiretap().attach(rival.client)
    backend.time()
    tap.shift = rival_tap.shift = HOUR
    rival.time()
    tap.let_through()
    tap.before(lambda: granted(rival.claim(request("key"))))
    assert isinstance(backend.claim(request("key")), Held)
    assert tap.idle


def test_the_margin_is_not_mended(backend: DynamoDBBackend, tap: Wiretap, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference that a ``Date`` of whole seconds makes is none: no request more."""
    stop_clocks(monkeypatch, tap)
    backend.time()
    tap.requests()
    for shift in (0.4, -0.4, 0.9, -0.9, 0.0):
        tap.shift = shift
        backend.claim(request(f"key{shift}"))
    assert [sent.operation for sent in tap.requests()] == ["UpdateItem"] * 5


def test_renewals_and_retention_are_checked_too(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """A renewal, and the end of a retention, stamped by an old time are written anew."""
    grants = [granted(backend.claim(request(key))) for key in ("renewed", "committed")]
    tap.shift = HOUR
    assert backend.renew(grants[:1]) == grants[:1]
    tap.shift = 3 * HOUR
    backend.commit(grants[1], result=RESULT, retain=MINUTE)
    renewed, committed = backend.read(["renewed", "committed"])
    assert renewed is not None
    assert renewed.expires_at is not None
    assert abs(renewed.expires_at - MINUTE - now_at(tap) + 2 * HOUR * SECOND) <= CLOSE
    assert committed is not None
    assert committed.retain_until is not None
    assert abs(committed.retain_until - MINUTE - now_at(tap)) <= CLOSE


def test_a_run_under_a_jumping_clock(store: durastore.Store, tap: Wiretap, another: Another) -> None:
    """The machine is frozen and restored in mid-run, again and again: each effect once, and no rival gets a live claim."""
    rival, calls = another(), []
    rival_tap = Wiretap().attach(rival.client)

    def effect(item: int) -> int:
        tap.shift = rival_tap.shift = (0, 5 * HOUR, 2 * HOUR, 2 * HOUR)[item % 4]
        store.backend.time()
        (claim,) = [durastore.current()]
        assert claim is not None
        store.backend.renew([claim.grant])
        rival.time()
        assert isinstance(rival.claim(request(claim.key)), Held)
        calls.append(item)
        return item

    summary = durastore.run_agent(range(12), store.checkpoint("run"), effect)
    assert (summary.executed, calls) == (12, list(range(12)))
    ckpt = store.checkpoint("run")
    ckpt.reset()
    assert durastore.run_agent(range(12), ckpt, effect).skipped == 12


# Signatures


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The store refuses what is signed more than five minutes off its time, as AWS does and emulators do not."""
    ages: list[float] = []
    send = Wiretap._follow

    def check(self: Wiretap, request: Any, what: str, detail: Any) -> Any:
        signed = datetime.strptime(request.headers["X-Amz-Date"].decode(), "%Y%m%dT%H%M%SZ").replace(
            tzinfo=timezone.utc
        )
        ages.append(time.time() + self.shift - signed.timestamp())
        if abs(ages[-1]) > SKEW_MAX:
            return self._refusal(request, "InvalidSignatureException", 400, {"message": "Signature expired"})
        return send(self, request, what, detail)

    monkeypatch.setattr(Wiretap, "_follow", check)
    return ages


@pytest.mark.parametrize("shift", [HOUR, -HOUR], ids=["behind", "ahead"])
def test_signed_by_the_stores_time(url: str, strict: list[float], shift: float) -> None:
    """The first request is refused for its date, and says the time; everything after it is signed by that."""
    backend, tap = elsewhere(url, shift)
    backend.commit(granted(backend.claim(request("key"))), result=RESULT)
    assert [abs(age) > SKEW_MAX for age in strict] == [True, False, False, False]
    assert [sent.operation for sent in tap.requests()] == ["DescribeTable"] * 2 + ["UpdateItem"] * 2
    backend.close()


def test_signed_anew_after_a_freeze(backend: DynamoDBBackend, tap: Wiretap, strict: list[float]) -> None:
    """A machine that slept for an hour is refused once, and goes on by the store's time."""
    grant = granted(backend.claim(request("key")))
    tap.shift = HOUR
    backend.commit(grant, result=RESULT)
    backend.claim(request("other"))
    assert [abs(age) > SKEW_MAX for age in strict] == [False, True, False, False]


# Leases, retention and tokens


def test_takeover_comes_late_and_never_early(
    backend: DynamoDBBackend, tap: Wiretap, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before the lease has passed since the grant, at most the margin later."""
    rival = another()
    rival_tap = Wiretap().attach(rival.client)
    stop_clocks(monkeypatch, tap, rival_tap)
    backend.time()
    granted(backend.claim(request("key", lease=MINUTE)))
    for after, expected in ((59.9, Held), (60.0, Held), ((MINUTE + MARGIN) / SECOND, Granted)):
        rival_tap.shift = after
        rival.time()
        assert isinstance(rival.claim(request("key")), expected), after


def test_a_record_without_a_lease_is_live(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Not free: it is held until somebody resolves it, however late it is."""
    backend.claim(request("key"))
    backend.client.update_item(
        TableName=TABLE,
        Key=backend._names.record("key"),
        UpdateExpression="REMOVE lease, expires_at",
    )
    tap.shift = 365 * 86400
    backend.time()
    for takeover in (True, False):
        answer = backend.claim(request("key", takeover=takeover))
        assert isinstance(answer, Held)
        assert (answer.lease_left, answer.in_doubt) == (None, False)
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.lease is None
    assert backend.resolve(record, nonce="free", result=None)
    granted(backend.claim(request("key")))


def test_a_lease_of_zero_has_lapsed_for_everybody(backend: DynamoDBBackend, another: Another) -> None:
    """At once, although each client knows the time to a second only: claimed, taken over and renewed so."""
    for client in (backend, another(), another(), backend):
        grant = granted(client.claim(request("key", lease=0)))
        assert client.renew([grant]) == [grant]


def test_a_retention_of_zero_has_ended_for_everybody(backend: DynamoDBBackend, another: Another) -> None:
    """At once, as a lease of zero: the result is not there for anybody who asks."""
    backend.commit(granted(backend.claim(request("key"))), result=RESULT, retain=0)
    for client in (backend, another(), another()):
        assert client.read(["key"]) == [None]
    granted(another().claim(request("key")))


def test_tokens_grow_across_forget(backend: DynamoDBBackend) -> None:
    """A key that was removed and claimed anew has a higher token, however fast that goes and whoever asks."""
    tokens = []
    for _ in range(3):
        tokens.append(granted(backend.claim(request("key"))).token)
        (record,) = backend.read(["key"])
        assert record is not None
        assert backend.delete(record)
    assert tokens == sorted(set(tokens))


def test_a_removed_key_leaves_its_token_for_an_hour(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Nobody sees it: it is no record for any verb, counts nowhere, and makes the next claim a first attempt."""
    grant = granted(backend.claim(request("key")))
    backend.abandon(grant, error="boom", in_doubt=True)
    (seen,) = backend.read(["key"])
    assert seen is not None
    assert backend.delete(seen)
    left = _item(backend, "key")
    assert int(left["token"]["N"]) == grant.token
    assert int(left["ttl"]["N"]) == grant.token // SECOND + 2 * HOUR
    assert backend.read(["key", "other"]) == [None, None]
    for listed in (
        backend.scan(),
        backend.scan(run_id="run"),
        backend.scan(state="committed"),
        backend.scan(prefix="k"),
    ):
        assert not listed.items
    assert not backend.delete(seen)
    assert not backend.resolve(seen, nonce="settled", result=None)
    assert backend.renew([grant]) == [None]
    assert not backend.abandon(grant, error=None, in_doubt=False)
    with pytest.raises(durastore.ClaimLost, match="its record was forgotten"):
        backend.commit(grant, result=RESULT)
    with pytest.raises(durastore.ClaimLost, match="its record was forgotten"):
        backend.transact(grant, lambda tx: RESULT)
    assert backend.sweep().records == 0
    assert _item(backend, "key") == left, "a claim may be on its way"
    answer = backend.claim(request("key"))
    assert isinstance(answer, Granted)
    assert (answer.grant.attempt, answer.grant.token, answer.took_over) == (1, grant.token + 1, None)
    (seen,) = backend.read(["key"])
    assert seen is not None
    assert seen.error is None
    assert "ttl" not in _item(backend, "key")
    assert backend.delete(seen)
    tap.shift = HOUR + 60
    backend.time()
    assert backend.sweep() == durastore.contract.Swept(0, 0, more=False)
    assert not _has_item(backend, "key")


def test_an_old_key_leaves_nothing(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """No claim is on its way for an hour: what is removed or swept after one is gone."""
    backend.commit(granted(backend.claim(request("kept"))), result=RESULT)
    for key in ("due", "young"):
        tap.shift = HOUR + 60 if key == "young" else 0
        backend.commit(
            granted(backend.claim(request(key))), result=RESULT, retain=2 * HOUR * SECOND if key == "due" else MINUTE
        )
    tap.shift = 2 * HOUR + 60
    (seen,) = backend.read(["kept"])
    assert seen is not None
    assert backend.delete(seen)
    assert backend.sweep().records == 2
    assert [_has_item(backend, key) for key in ("kept", "due", "young")] == [False, False, True]
    tap.shift = 3 * HOUR
    backend.time()
    assert backend.sweep().records == 0
    assert not _has_item(backend, "young")


def test_a_record_comes_back_where_one_was_removed(backend: DynamoDBBackend) -> None:
    """An import after a removal writes the record and the run as they were, with their numbers."""
    first = backend.incarnate("run")
    backend.save(durastore.contract.StoredProgress("run", 3, RESULT))
    backend.commit(granted(backend.claim(request("key"))), result=RESULT)
    (seen,), run = backend.read(["key"]), backend.load("run")
    assert seen is not None
    assert run is not None
    assert backend.delete(seen)
    assert backend.delete_run("run")
    backend.place([seen])
    backend.place_run(run)
    assert backend.read(["key"]) == [seen]
    assert backend.load("run") == run
    assert run.incarnation == first
    assert backend.incarnate("run") == first + 1


def test_a_removed_run_leaves_its_incarnation(backend: DynamoDBBackend) -> None:
    """Nobody sees it, also when the run is saved anew; only the next incarnation is higher."""
    first = backend.incarnate("run")
    backend.save(durastore.contract.StoredProgress("run", 3, RESULT))
    assert backend.delete_run("run")
    assert not backend.delete_run("run")
    assert backend.load("run") is None
    assert not backend.scan_runs().items
    saved = backend.save(durastore.contract.StoredProgress("run", 1, RESULT))
    assert (saved.step, saved.incarnation) == (1, 0)
    assert backend.load("run") == saved
    assert "ttl" not in _item(backend, "run", of_a_run=True)
    assert backend.delete_run("run")
    assert "ttl" in _item(backend, "run", of_a_run=True)
    assert backend.incarnate("run") == first + 1
    run = backend.load("run")
    assert run is not None
    assert (run.step, run.state, run.incarnation) == (0, None, first + 1)
    assert "ttl" not in _item(backend, "run", of_a_run=True)


@pytest.mark.parametrize("retried", [False, True])
def test_tokens_grow_while_a_claim_is_on_its_way(
    backend: DynamoDBBackend, tap: Wiretap, another: Another, retried: bool
) -> None:
    """A key that somebody else claims, commits and removes between the sending of a claim and its landing: the claim that lands
    after all that has the higher token. It was stamped before.
    """
    rival = another()
    backend.time()
    rivals: list[int] = []

    def use_and_remove() -> None:
        grant = granted(rival.claim(request("key")))
        rival.commit(grant, result=RESULT)
        (record,) = rival.read(["key"])
        assert record is not None
        assert rival.delete(record)
        rivals.append(grant.token)

    tap.before(use_and_remove)
    if retried:
        tap.lose()
    mine = granted(backend.claim(request("key")))
    assert tap.idle
    assert mine.token > rivals[0]
    (record,) = backend.read(["key"])
    assert record is not None
    assert record.token == mine.token
    backend.commit(mine, result=RESULT)


def test_incarnations_grow_while_one_is_on_its_way(backend: DynamoDBBackend, tap: Wiretap, another: Another) -> None:
    """The same for the incarnation of a run that somebody else draws and removes meanwhile."""
    rival = another()
    backend.time()
    rivals: list[int] = []

    def draw_and_remove() -> None:
        rivals.append(rival.incarnate("run"))
        assert rival.delete_run("run")

    tap.before(draw_and_remove)
    assert backend.incarnate("run") > rivals[0]
    assert tap.idle


def test_retention_is_logical_and_ttl_comes_later(backend: DynamoDBBackend, tap: Wiretap) -> None:
    """Past retention a record is absent at once, for every verb; DynamoDB's own deletion is due an hour later, never before."""
    backend.commit(granted(backend.claim(request("gone"))), result=RESULT, retain=MINUTE)
    backend.commit(granted(backend.claim(request("kept"))), result=RESULT, retain=HOUR * SECOND)
    backend.commit(granted(backend.claim(request("ever"))), result=RESULT)
    items = {key: _item(backend, key) for key in ("gone", "kept", "ever")}
    for key in ("gone", "kept"):
        assert int(items[key]["ttl"]["N"]) == int(items[key]["retain_until"]["N"]) // SECOND + HOUR
    assert "ttl" not in items["ever"]
    tap.shift = HOUR / 2
    backend.time()
    assert [record is not None for record in backend.read(["gone", "kept", "ever"])] == [False, True, True]
    assert {record.key for record in backend.scan().items} == {"kept", "ever"}
    assert granted(backend.claim(request("gone"))).attempt == 1
    assert "ttl" not in _item(backend, "gone"), "a claim is not deleted under its holder"


def _item(backend: DynamoDBBackend, name: str, *, of_a_run: bool = False) -> dict[str, Any]:
    key = backend._names.run(name) if of_a_run else backend._names.record(name)
    found: dict[str, Any] = backend.client.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]
    return found


def _has_item(backend: DynamoDBBackend, key: str) -> bool:
    return "Item" in backend.client.get_item(TableName=TABLE, Key=backend._names.record(key), ConsistentRead=True)


# The clock itself


def date(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")


def test_answers_narrow_the_bounds() -> None:
    """Each answer bounds the time by its whole second; several do so to their overlap."""
    clock = StoreClock()
    assert not clock.known
    clock.heard(date(1_000), sent=10.0, received=10.1)
    assert clock.bounds(at=10.1) == (1_000_000_000, 1_001_100_000)
    clock.heard(date(1_001), sent=10.2, received=10.2)
    low, high = clock.bounds(at=10.2)
    assert low >= 1_000_999_000
    assert high - low < 210_000


def test_stamps_do_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that narrows the bounds makes no later stamp an earlier one; one that contradicts them does."""
    clock = StoreClock()
    monkeypatch.setattr(time, "monotonic", lambda: 50.0)
    clock.heard(date(1_000), sent=49.5, received=50.0)
    first = clock.stamp()
    clock.heard(date(1_000), sent=50.0, received=50.0)
    assert clock.bounds()[1] < first == clock.stamp()
    clock.heard(date(10), sent=50.0, received=50.0)
    assert clock.stamp() < first


def test_an_answer_that_contradicts_replaces() -> None:
    """What was known before a freeze is forgotten by the first answer after it, in both directions."""
    for jump in (HOUR, -HOUR):
        clock = StoreClock()
        clock.heard(date(100_000), sent=10.0, received=10.0)
        clock.heard(date(100_000 + jump), sent=11.0, received=11.0)
        assert clock.bounds(at=11.0)[0] == (100_000 + jump) * SECOND


def test_nonsense_is_not_heard() -> None:
    """A proxy's answer without a date, or with a broken one, says nothing."""
    clock = StoreClock()
    for said in (None, "", "yesterday"):
        clock.heard(said, sent=1.0, received=1.0)
    assert not clock.known
