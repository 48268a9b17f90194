"""The threads that do the steps of one run side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from durastore.acquiring import acquire, admit
from durastore.claims import Claim
from durastore.contract import ClaimRequest
from durastore.holding import UNBEGUN, Run, give_back
from durastore.protocol import perform
from durastore.steps import Steps, drive
from durastore.terms import Outcome, Terms

__all__ = ["Crew", "Ended"]

WAKE_SECONDS = 0.5
"""How often the waiting thread wakes with nothing to do: a signal that comes as it falls asleep is heard no later."""


class _Task(NamedTuple):
    step: int
    asked: ClaimRequest
    effect: Callable[[], Any]
    context: Context


class Ended(NamedTuple):
    """A step that is over: its outcome, or why there is none."""

    step: int
    outcome: Outcome[Any] | None
    error: BaseException | None


class Crew:
    """Threads for one run. Whoever has committed a step claims the next one in the same write, if one is to be had by then."""

    def __init__(self, run: Run, terms: Terms, threads: int) -> None:
        self._run = run
        self._terms = terms
        self._to_do: SimpleQueue[_Task | None] = SimpleQueue()
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._leaving = False
        self.under_way = 0
        """Steps that were handed out and are not over."""
        self._threads = [Thread(target=self._work, name=f"durastore-step-{number}") for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def hand_out(self, step: int, ask: Callable[[], ClaimRequest], effect: Callable[[], Any]) -> None:
        """Let one of the threads do a step, in the caller's context. What `ask` raises is how the step ended."""
        self.under_way += 1
        try:
            self._to_do.put(_Task(step, ask(), effect, copy_context()))
        except Exception as exc:  # noqa: BLE001  whoever waits for the step decides
            self._ended.put(Ended(step, None, exc))

    def ended(self) -> Iterator[Ended]:
        """The steps that are over by now; waits for one."""
        while True:
            with suppress(Empty):
                yield self._next(WAKE_SECONDS)
                break
        while not self._ended.empty():
            yield self._next(0)

    def _next(self, timeout: float) -> Ended:
        found = self._ended.get(timeout=timeout)
        self.under_way -= 1
        return found

    def leave(self) -> None:
        """Begin no further step, and wait for those that have begun."""
        self._leaving = True
        for _ in self._threads:
            self._to_do.put(None)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(WAKE_SECONDS)

    def _work(self) -> None:
        held: Claim | None = None
        task = self._to_do.get()
        while task is not None and not self._leaving:
            taken: list[_Task | None] = []
            steps = self._step(task, held, partial(self._take, taken))
            held = None
            try:
                outcome, held = task.context.run(drive, steps)
            except BaseException as exc:  # noqa: BLE001  whoever waits for the step raises it
                self._ended.put(Ended(task.step, None, exc))
            else:
                self._ended.put(Ended(task.step, outcome, None))
            task = taken[0] if taken else self._to_do.get()
        if held is not None:
            with suppress(Exception):  # its lease ends by itself
                drive(give_back(self._run, held, UNBEGUN, in_doubt=held.took_over is not None))

    def _step(
        self, task: _Task, held: Claim | None, then: Callable[[], ClaimRequest | None]
    ) -> Steps[tuple[Outcome[Any], Claim | None]]:
        run, terms = self._run, self._terms
        got = yield from (acquire(run, task.asked, terms) if held is None else admit(run, held, terms))
        if not isinstance(got, Claim):
            return got, None
        done = yield from perform(run, got, task.effect, terms, then=then)
        return done.outcome, done.held

    def _take(self, taken: list[_Task | None]) -> ClaimRequest | None:
        """What this thread does next, if that is known by now: once it is in `taken`, always the same."""
        if not taken and not self._leaving:
            with suppress(Empty):
                taken.append(self._to_do.get_nowait())
        return taken[0].asked if taken and taken[0] is not None else None
