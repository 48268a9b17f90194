"""Many at one key: one is granted it, whatever the moment, and nobody gets an error."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import durastore
from durastore.contract import Committed, Granted, Held
from durastore.errors import ClaimLost

from .requests import MINUTE, RESULT, granted, progress, request

THREADS = 8
ROUNDS = 25


def _together(work: Callable[[int, int], Any]) -> list[list[Any]]:
    """The answers of each round, in which all threads begin at the same time."""
    barrier = threading.Barrier(THREADS)

    def rounds(number: int) -> list[Any]:
        answers = []
        for turn in range(ROUNDS):
            barrier.wait(60)
            answers.append(work(number, turn))
        return answers

    with ThreadPoolExecutor(THREADS) as executor:
        return [list(each) for each in zip(*executor.map(rounds, range(THREADS)), strict=True)]


def _kinds(answers: list[Any]) -> Counter[str]:
    return Counter(type(answer).__name__ for answer in answers)


def test_a_new_key(store: durastore.Store) -> None:
    """Neither the insert nor the look may miss the row that another has just inserted."""
    for answers in _together(lambda _number, turn: store.backend.claim(request(f"key-{turn}"))):
        assert _kinds(answers) == {"Granted": 1, "Held": THREADS - 1}


def test_a_lapsed_claim(store: durastore.Store) -> None:
    """One takes over; the others find a live claim."""
    old = [granted(store.backend.claim(request(f"key-{turn}", lease=0))) for turn in range(ROUNDS)]
    for first, answers in zip(
        old, _together(lambda _n, turn: store.backend.claim(request(f"key-{turn}"))), strict=True
    ):
        assert _kinds(answers) == {"Granted": 1, "Held": THREADS - 1}
        [won] = [answer for answer in answers if isinstance(answer, Granted)]
        assert (won.grant.token, won.grant.attempt) == (first.token + 1, 2)


def test_a_commit_against_takeovers(store: durastore.Store) -> None:
    """Either the lapsed holder commits, and nobody is granted the key, or it is lost, and one is. Never both, never neither."""
    old = [granted(store.backend.claim(request(f"key-{turn}", lease=0))) for turn in range(ROUNDS)]

    def work(number: int, turn: int) -> Any:
        if number:
            return store.backend.claim(request(f"key-{turn}"))
        try:
            return store.backend.commit(old[turn], result=RESULT, progress=progress(turn)) or "committed"
        except ClaimLost:
            return "lost"

    for outcome, *answers in _together(work):
        kinds = _kinds(answers)
        if outcome == "committed":
            assert kinds == {"Committed": THREADS - 1}, "nobody was granted it before, since the commit matched"
        else:
            assert kinds["Granted"] == 1
            assert kinds["Committed"] == 0


def test_next_claims_crosswise(store: durastore.Store) -> None:
    """Commits that claim each other's next keys: each key is granted once, none is stuck, nobody hears of a deadlock."""
    mine = [
        [granted(store.backend.claim(request(f"{turn}-{n}-now"))) for n in range(THREADS)] for turn in range(ROUNDS)
    ]

    def work(number: int, turn: int) -> Any:
        then = request(f"{turn}-{(number // 2)}-next", nonce=f"{turn}-{number}")
        state = progress(turn)
        return store.call("commit", store.backend.commit, mine[turn][number], result=RESULT, progress=state, then=then)

    for answers in _together(work):
        for pair in zip(answers[::2], answers[1::2], strict=True):
            assert sum(isinstance(answer, Granted) for answer in pair) == 1


def test_removed_meanwhile(store: durastore.Store) -> None:
    """A key that is forgotten while others claim it: every call gets an answer, and tokens never fall."""
    tokens: list[int] = []

    def work(number: int, turn: int) -> Any:
        answer = store.backend.claim(request("key", lease=0 if number % 2 else MINUTE))
        if isinstance(answer, Granted):
            tokens.append(answer.grant.token)
        [seen] = store.backend.read(["key"])
        if number == 0 and seen is not None:
            store.backend.delete(seen)
        return answer

    for answers in _together(work):
        assert all(isinstance(answer, (Granted, Held, Committed)) for answer in answers)
    assert len(set(tokens)) == len(tokens), "a token is never given twice"


_SLOW = {
    "postgresql": (
        "CREATE FUNCTION {t}slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$",
        "CREATE TRIGGER slow BEFORE INSERT ON {t}records FOR EACH ROW WHEN (NEW.owner = 'slow') EXECUTE FUNCTION {t}slow()",
    ),
    "mysql": (
        "CREATE TRIGGER {t}slow BEFORE INSERT ON {t}records FOR EACH ROW SET @slept = IF(NEW.owner = 'slow', SLEEP(1), 0)",
    ),
}
"""A claim by "slow" stops for a second between its decision and its row."""


def test_removed_between_decision_and_row(url: str, kind: str) -> None:
    """A claim that stands still before it inserts, while others are granted the key and remove it, has the higher token."""
    prefix = f"t{uuid.uuid4().hex[:12]}_"
    with durastore.open(url, table_prefix=prefix, create=True) as store, ThreadPoolExecutor(1) as executor:
        with store.backend._pool.transaction() as connection:
            for statement in _SLOW[kind]:
                connection.exec_driver_sql(statement.format(t=prefix))
        slow = executor.submit(store.backend.claim, request("key", owner="slow"))
        time.sleep(0.3)
        quick = store.backend.claim(request("key", owner="quick"))
        if isinstance(quick, Granted):
            [seen] = store.backend.read(["key"])
            assert seen is not None
            assert store.backend.delete(seen)
            assert granted(slow.result()).token > quick.grant.token
        else:  # it had to wait
            assert isinstance(quick, Held)
            granted(slow.result())


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_another_isolation_by_default(postgresql: str, isolation: str) -> None:
    """Where the database's default is stricter, collisions are tried again and the answers are the same."""

    def creator() -> Any:
        words = isolation.replace(" ", "\\ ")
        address = postgresql.partition("?")[0]
        return psycopg.connect(address, prepare_threshold=None, options=f"-c default_transaction_isolation={words}")

    with durastore.open(postgresql, creator=creator) as store:

        def work(_number: int, turn: int) -> Any:
            return store.call("claim", store.backend.claim, request(f"key-{turn}"))

        for answers in _together(work):
            assert _kinds(answers) == {"Granted": 1, "Held": THREADS - 1}
        assert not {finding.name: finding.ok for finding in store.check()}["isolation"]


def test_progress(store: durastore.Store) -> None:
    """Saved by many at once, a step never goes back, and step and state belong together."""

    def work(number: int, turn: int) -> Any:
        step = turn * THREADS + number
        state = type(RESULT)(f"json\n{step}".encode())
        return store.backend.save(type(progress(0))("run", step, state))

    highest = -1
    for answers in _together(work):
        assert all(answer.state.data == f"json\n{answer.step}".encode() for answer in answers)
        assert all(answer.step >= highest for answer in answers)
        stored = store.backend.load("run")
        assert stored is not None
        highest = max([highest, *(answer.step for answer in answers)])


def test_incarnations(store: durastore.Store) -> None:
    """No two draw the same."""
    drawn = [number for answers in _together(lambda _n, _t: store.backend.incarnate("run")) for number in answers]
    assert len(set(drawn)) == THREADS * ROUNDS


def test_sweep_beside_writers(store: durastore.Store) -> None:
    """A record that somebody holds a lock on is passed over, not waited for; the rest is removed."""
    for number in range(20):
        grant = granted(store.backend.claim(request(f"old-{number}")))
        store.backend.commit(grant, result=RESULT, retain=0)
    with store.backend._pool.transaction() as connection:
        quoted = "key" if store.backend.scheme == "postgresql" else "`key`"
        connection.exec_driver_sql(
            f"SELECT 1 FROM durastore_records WHERE namespace = '{store.backend._namespace}' AND {quoted} = 'old-7' FOR UPDATE"
        ).fetchall()
        began = time.monotonic()
        assert store.sweep().records == 19
        assert time.monotonic() - began < 10
    assert store.sweep().records == 1
