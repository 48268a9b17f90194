"""PROGRESS and INCARNATION: a run's map, and which of its sandboxes is the newest."""

from __future__ import annotations

from functools import partial

from durastore.conformance.client import SECOND, Client, at_once, payload
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause

__all__ = ["IncarnationClauses", "ProgressClauses"]


class ProgressClauses:
    """One test or more for each PROGRESS clause."""

    @clause("PROGRESS-1")
    def test_progress_1_lower_step_changes_nothing(self, harness: Harness) -> None:
        """A lower step changes nothing, and hears what is stored."""
        client = Client(harness)
        client.save(5, "five")
        before = client.load()
        assert client.save(4, "four", at=SECOND) == before
        assert client.save(0, "zero", at=SECOND) == before
        assert client.load() == before

    @clause("PROGRESS-2")
    def test_progress_2_equal_and_higher_step(self, harness: Harness) -> None:
        """An equal step replaces the state, a higher one both; step 0 and a step beyond 2**31 are steps."""
        client = Client(harness)
        for step, state in ((0, "zero"), (0, "again"), (1, "one"), (2**40, "far"), (2**40, "")):
            saved = client.save(step, state)
            assert (saved.run_id, saved.step, saved.state) == ("run", step, payload(state))
            assert client.load() == saved

    @clause("PROGRESS-3")
    def test_progress_3_step_and_state_belong_together(self, harness: Harness) -> None:
        """Of savers at the same moment the highest step wins, with its own state."""
        savers = [Client(harness) for _ in range(4)]
        for start in range(0, 12, 4):
            at_once(*(partial(saver.save, start + n, f"s{start + n}") for n, saver in enumerate(savers)))
            loaded = savers[0].load()
            assert loaded is not None
            assert (loaded.step, loaded.state) == (start + 3, payload(f"s{start + 3}"))

    @clause("PROGRESS-4")
    def test_progress_4_seen_at_once(self, harness: Harness) -> None:
        """What one client saved, another loads at once; an unknown run is None; runs do not mix."""
        client, other = Client(harness), Client(harness)
        assert other.load() is None
        for step in range(5):
            client.save(step, f"state {step}")
            client.save(9, "other", run="other")
            loaded = other.load()
            assert loaded is not None
            assert (loaded.step, loaded.state) == (step, payload(f"state {step}"))

    @clause("PROGRESS-5")
    def test_progress_5_forgotten_run(self, harness: Harness) -> None:
        """A run that was removed counts as new: a lower step is saved; its records stay. Removed again: False."""
        client = Client(harness)
        client.done()
        client.save(5)
        assert client.backend.delete_run("run") is True
        assert client.load() is None
        assert client.backend.delete_run("run") is False
        client.save(1, "again")
        loaded = client.load()
        assert loaded is not None
        assert (loaded.step, loaded.state) == (1, payload("again"))
        assert client.record().state == "committed"


class IncarnationClauses:
    """One test or more for each INCARNATION clause."""

    @clause("INCARNATION-1")
    def test_incarnation_1_numbers_grow(self, harness: Harness) -> None:
        """The first number is the store's time, each later one last + 1; across `delete_run` they only grow."""
        client, other = Client(harness), Client(harness)
        first = client.backend.incarnate("run", now=BASE)
        assert [first, other.backend.incarnate("run", now=BASE + 1)] == [BASE, BASE + 1]
        client.backend.delete_run("run")
        assert client.backend.incarnate("run", now=BASE + SECOND) > first + 1

    @clause("INCARNATION-1")
    def test_incarnation_1_at_once(self, harness: Harness) -> None:
        """No two that draw at the same moment get the same number, on a new run and on a known one."""
        clients = [Client(harness) for _ in range(4)]
        drawn: list[int] = []
        for _ in range(2):
            drawn += at_once(*(partial(client.backend.incarnate, "run", now=BASE) for client in clients))
        assert len(set(drawn)) == 8, drawn
        assert min(drawn) >= BASE

    @clause("INCARNATION-2")
    def test_incarnation_2_progress_is_left_alone(self, harness: Harness) -> None:
        """Drawing leaves step and state alone, and saving leaves the number alone."""
        client = Client(harness)
        client.save(5, "five")
        drawn = client.backend.incarnate("run", now=BASE + SECOND)
        loaded = client.load()
        assert loaded is not None
        assert (loaded.step, loaded.state, loaded.incarnation) == (5, payload("five"), drawn)
        assert client.save(6, "six").incarnation == drawn

    @clause("INCARNATION-2")
    def test_incarnation_2_incarnation_before_progress(self, harness: Harness) -> None:
        """A run that was only incarnated is at step 0 without a state, and saves step 0."""
        client = Client(harness)
        drawn = client.backend.incarnate("run", now=BASE)
        loaded = client.load()
        assert loaded is not None
        assert (loaded.step, loaded.state, loaded.incarnation) == (0, None, drawn)
        saved = client.save(0, "zero")
        assert (saved.step, saved.state, saved.incarnation) == (0, payload("zero"), drawn)
