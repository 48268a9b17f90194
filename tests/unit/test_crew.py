"""The threads of a run with concurrency: what they claim, in how many calls, and what they leave behind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import durastore
from durastore.acquiring import request
from durastore.crew import Crew, Ended


@pytest.fixture
def ckpt() -> Iterator[durastore.Checkpoint]:
    with durastore.open("memory://") as store:
        yield store.checkpoint("run")


def calls_of(ckpt: durastore.Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each verb that writes is called from now on."""
    seen: Counter[str] = Counter()
    backend = ckpt.store.backend
    for verb in ("claim", "commit", "abandon"):
        monkeypatch.setattr(backend, verb, partial(_counted, seen, verb, getattr(backend, verb)))
    return seen


def _counted(seen: Counter[str], verb: str, call: Any, *args: Any, **more: Any) -> Any:
    seen[verb] += 1
    return call(*args, **more)


def hand_out(crew: Crew, ckpt: durastore.Checkpoint, step: int, effect: Any) -> None:
    crew.hand_out(step, partial(request, ckpt.run, f"key-{step}", ckpt.terms, None), effect)


def ended(crew: Crew) -> list[Ended]:
    """All that was handed out, once it is over."""
    found: list[Ended] = []
    while crew.under_way:
        found += crew.ended()
    return found


def test_the_next_step_is_claimed_by_the_commit(ckpt: durastore.Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that knows its next step when it commits makes one call for both."""
    calls, go = calls_of(ckpt, monkeypatch), threading.Event()
    crew = Crew(ckpt.run, ckpt.terms, 1)
    for step in range(5):
        hand_out(crew, ckpt, step, partial(go.wait, 30))
    go.set()
    assert [(step, outcome) for step, outcome, _ in ended(crew)] == [(step, (True, "executed")) for step in range(5)]
    crew.leave()
    assert calls == {"claim": 1, "commit": 5}


def test_a_step_is_chosen_after_the_effect(ckpt: durastore.Checkpoint) -> None:
    """Nobody's next step waits behind a slow effect while another thread is free."""
    slow = threading.Event()
    crew = Crew(ckpt.run, ckpt.terms, 2)
    hand_out(crew, ckpt, 0, partial(slow.wait, 30))
    for step in range(1, 20):
        hand_out(crew, ckpt, step, lambda: None)
    done: list[int] = []
    while len(done) < 19:
        done += [step for step, _, _ in crew.ended()]
    assert sorted(done) == list(range(1, 20))
    slow.set()
    assert [step for step, _, _ in ended(crew)] == [0]
    crew.leave()


def test_leaving_gives_back_what_is_held(ckpt: durastore.Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that stops just after a commit has claimed the next step leaves that key free at once, and begins nothing."""
    calls = calls_of(ckpt, monkeypatch)
    crew = Crew(ckpt.run, ckpt.terms, 1)
    begun: list[int] = []
    both = threading.Event()
    commit = ckpt.store.backend.commit

    def last(*args: Any, **more: Any) -> Any:
        try:
            return commit(*args, **more)
        finally:
            crew._leaving = True

    monkeypatch.setattr(ckpt.store.backend, "commit", last)
    for step in range(2):
        hand_out(crew, ckpt, step, lambda step=step: both.wait(30) and begun.append(step))
    both.set()
    assert [over.step for over in crew.ended()] == [0]
    crew.leave()
    assert begun == [0]
    assert calls == {"claim": 1, "commit": 1, "abandon": 1}
    record = ckpt.store.record("key-1")
    assert record is not None
    assert record.state == "abandoned"


def test_a_commit_that_fails_leaves_the_next_step_to_be_claimed_again(
    ckpt: durastore.Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that seemed to fail may have claimed the next key: that claim is its thread's own."""
    commit, failed = ckpt.store.backend.commit, threading.Event()

    def lost(*args: Any, **more: Any) -> Any:
        answer = commit(*args, **more)
        if not failed.is_set():
            failed.set()
            raise RuntimeError("the answer was lost")
        return answer

    monkeypatch.setattr(ckpt.store.backend, "commit", lost)
    go = threading.Event()
    crew = Crew(ckpt.run, ckpt.terms, 1)
    for step in range(2):
        hand_out(crew, ckpt, step, partial(go.wait, 30))
    go.set()
    first, second = ended(crew)
    crew.leave()
    assert isinstance(first.error, RuntimeError)
    assert second.outcome == (True, "executed"), "it did not wait for its own lease to end"


def test_what_cannot_be_asked_for_is_how_a_step_ends(ckpt: durastore.Checkpoint) -> None:
    """An error in making a step's key is that step's, and left to `on_error` as any other."""
    left: list[tuple[int, str]] = []

    def key(item: int) -> str:
        return "" if item == 2 else f"item-{item}"

    def note(step: int, error: Exception) -> bool:
        left.append((step, type(error).__name__))
        return True

    for concurrency in (1, 3):
        left.clear()
        run = ckpt.store.checkpoint(f"run-{concurrency}")
        summary = durastore.run_agent(
            range(5),
            run,
            lambda item: item,
            key=lambda item, n=concurrency: key(item) and f"{n}:{item}",
            concurrency=concurrency,
            on_error=note,
        )
        assert left == [(2, "InvalidKey")]
        assert (summary.processed, summary.executed) == (2, 4)
