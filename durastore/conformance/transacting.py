"""TRANSACT: the application's own writes and the mark, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durastore.conformance.client import LEASE, Client, nonce, payload, progress
from durastore.conformance.harness import BASE, Harness, UserData
from durastore.conformance.holding import WAYS_TO_LOSE
from durastore.conformance.marks import clause
from durastore.contract import Grant, Payload
from durastore.errors import ClaimLost

__all__ = ["TransactClauses"]

Effect = Callable[[Any], Payload]


class _Boom(Exception):
    pass


class _Table:
    """The application's own data, in rows that no other test uses."""

    def __init__(self, harness: Harness, client: Client) -> None:
        if harness.user_data is None:
            pytest.skip("nobody says how effects write to this store (see durastore.conformance.UserData)")
        self.data: UserData = harness.user_data
        self.backend = client.backend
        self.row = nonce()
        self.data.prepare(client.backend)

    def writing(self, value: str, *, result: str = "result") -> Effect:
        """An effect that writes a row and returns a result."""

        def effect(tx: Any) -> Payload:
            self.data.write(tx, self.row, value)
            return payload(result)

        return effect

    def stored(self) -> str | None:
        """The row by now."""
        return self.data.read(self.backend, self.row)


def _transact(client: Client, grant: Grant, effect: Effect, *, at: int = 0, **more: Any) -> Payload:
    return client.backend.transact(grant, effect, now=BASE + at, **more)


class TransactClauses:
    """One test or more for each TRANSACT clause."""

    @clause("TRANSACT-1")
    def test_transact_1_all_lands_together(self, harness: Harness) -> None:
        """The effect's writes, the result, the retention and the progress land together."""
        client, other = Client(harness), Client(harness)
        table = _Table(harness, client)
        done = _transact(client, client.grant(), table.writing("row"), progress=progress(3, "map"), retain=LEASE)
        assert done == payload("result")
        record, loaded = other.record(), other.load()
        assert (record.state, record.result, record.retain_until) == ("committed", payload("result"), BASE + LEASE)
        assert table.stored() == "row"
        assert loaded is not None
        assert (loaded.step, loaded.state) == (3, payload("map"))

    @clause("TRANSACT-1")
    def test_transact_1_lapsed_claim(self, harness: Harness) -> None:
        """A lapsed claim that nobody replaced transacts; a lower step leaves the progress alone."""
        client = Client(harness)
        table = _Table(harness, client)
        client.save(5, "five")
        before = client.load()
        _transact(client, client.grant(lease=0), table.writing("row"), at=LEASE, progress=progress(4))
        assert (client.record().state, table.stored(), client.load()) == ("committed", "row", before)

    @clause("TRANSACT-2")
    def test_transact_2_effect_raises(self, harness: Harness) -> None:
        """The effect raised after it wrote: its own exception comes, nothing was written, and the claim stands."""
        client = Client(harness)
        table = _Table(harness, client)
        grant, raised = client.grant(), _Boom("boom")

        def effect(tx: Any) -> Payload:
            table.writing("row")(tx)
            raise raised

        with client.unchanged():
            with pytest.raises(_Boom) as caught:
                _transact(client, grant, effect, progress=progress(3))
            assert caught.value is raised
            assert table.stored() is None
        _transact(client, grant, table.writing("second"), at=1)
        assert (client.record().state, table.stored()) == ("committed", "second")

    @clause("TRANSACT-3")
    def test_transact_3_claim_was_lost(self, harness: Harness) -> None:
        """A claim that was replaced, given back, left in doubt, resolved or forgotten: `ClaimLost`, nothing remains."""
        client, zombie = Client(harness), Client(harness, "zombie")
        table = _Table(harness, client)
        for way, lose in WAYS_TO_LOSE.items():
            grant = zombie.grant(way)
            lose(client, grant)
            with client.unchanged(way), pytest.raises(ClaimLost):
                _transact(zombie, grant, table.writing("late"), progress=progress(9), at=3 * LEASE)
            assert table.stored() is None, way

    @clause("TRANSACT-4")
    def test_transact_4_repeated(self, harness: Harness) -> None:
        """Repeated after a commit by the same nonce: the stored payload, and the effect is not called again."""
        client, again = Client(harness), Client(harness)
        table = _Table(harness, client)
        grant = client.grant()
        _transact(client, grant, table.writing("first", result="first"))
        calls: list[str] = []

        def effect(tx: Any) -> Payload:
            calls.append("called")
            return table.writing("second", result="second")(tx)

        with client.unchanged():
            assert _transact(again, grant, effect, progress=progress(9), at=1) == payload("first")
        assert (calls, table.stored()) == ([], "first")
