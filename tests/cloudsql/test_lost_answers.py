"""The server did what was asked, and its answer was lost: the call is made again and recognises its own earlier success."""

from __future__ import annotations

from typing import Any

import pytest

import durastore
from durastore.conformance.proxy import Proxy
from durastore.contract import Granted, Held
from durastore.errors import StoreUnavailable

from .requests import RESULT, granted, progress, request


@pytest.fixture
def losing(watched: durastore.Store, proxy: Proxy) -> Any:
    """Calls a verb as the store does, its first answer lost."""

    def call(verb: str, *args: Any, **kwargs: Any) -> Any:
        watched.call("time", watched.backend.time)  # there is a connection
        proxy.lose_answers()
        answer = watched.call(verb, getattr(watched.backend, verb), *args, **kwargs)
        assert proxy.lost_all()
        return answer

    return call


def test_claim(losing: Any, watched: durastore.Store) -> None:
    """The caller is not locked out of its own key."""
    asked = request("key")
    grant = granted(losing("claim", asked))
    assert (grant.attempt, grant.nonce) == (1, asked.nonce)
    assert isinstance(watched.backend.claim(request("key")), Held)


def test_takeover(losing: Any, watched: durastore.Store) -> None:
    """A repeated takeover hears again what it took over, and takes over once."""
    first = granted(watched.backend.claim(request("key", lease=0, owner="first")))
    answer = losing("claim", request("key"))
    assert isinstance(answer, Granted)
    assert answer.took_over is not None
    assert (answer.took_over.owner, answer.grant.token) == ("first", first.token + 1)


def test_commit(losing: Any, watched: durastore.Store) -> None:
    """Record and progress stand, and the next claim is answered."""
    grant = granted(watched.backend.claim(request("key")))
    then = granted(losing("commit", grant, result=RESULT, progress=progress(1), then=request("next")))
    assert then.attempt == 1
    [record] = watched.backend.read(["key"])
    assert record is not None
    assert record.result == RESULT
    stored = watched.backend.load("run")
    assert stored is not None
    assert stored.step == 1


def test_the_rest(losing: Any, watched: durastore.Store) -> None:
    """Renewing, giving back and saving answer as the first time."""
    grant = granted(watched.backend.claim(request("key")))
    assert losing("renew", [grant]) == [grant]
    assert losing("abandon", grant, error="boom", in_doubt=False) is True
    assert losing("save", progress(4)).step == 4
    number = losing("incarnate", "run")
    assert watched.backend.incarnate("run") == number + 1


def test_transact(watched: durastore.Store, proxy: Proxy) -> None:
    """The answer to COMMIT is lost: what the effect wrote stands once, and the effect is not called again."""
    calls: list[int] = []

    def effect(tx: Any) -> str:
        tx.exec_driver_sql("SELECT 1")
        calls.append(1)
        proxy.lose_answers(after=1)  # after the mark comes COMMIT
        return "done"

    outcome = watched.checkpoint("run").transact("key", effect)
    assert (outcome.value, calls) == ("done", [1])
    assert proxy.lost_all()
    [record] = watched.backend.read(["key"])
    assert record is not None
    assert record.state == "committed"


def test_lost_for_good(watched: durastore.Store, proxy: Proxy) -> None:
    """When every answer is lost until the deadline: `StoreUnavailable`, and the claim is left to lapse."""
    watched.call("time", watched.backend.time)
    watched.deadlines["claim"] = 0.3
    proxy.lose_answers(10_000)
    with pytest.raises(StoreUnavailable, match="did not take a claim"):
        watched.checkpoint("run").run_once("key", lambda: 1)


@pytest.mark.parametrize("fault", ["drop", "lose", "reset", "refuse", "throttle"])
def test_transact_is_quiet(
    watched: durastore.Store,
    proxy: Proxy,
    fault: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whichever request of a transaction is disturbed, it lands once, and no pool writes a traceback about it."""
    watched.call("time", watched.backend.time)
    for request_number in range(8):
        proxy.inject(fault, after=request_number)
        key = f"key-{request_number}"
        assert (
            watched.checkpoint("run").transact(key, lambda tx: tx.exec_driver_sql("SELECT 1") and "done").value
            == "done"
        )
        proxy.calm()
    assert [record.message for record in caplog.records] == []
    assert capfd.readouterr().err == ""
