"""PLACE: records and runs as they stood in another store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from durastore.conformance.client import DAY, LEASE, SECOND, Client, at_once, nonce, payload
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause
from durastore.contract import Committed, Granted, Held, Payload, RecordState, StoredProgress, StoredRecord

__all__ = ["PlaceClauses", "placeable"]

LONG_AGO = BASE - 40 * DAY
"""Before the virtual present, as the times of a record are that comes from elsewhere."""


def placeable(key: str = "key", state: RecordState = "committed", result: Payload | None = None) -> StoredRecord:
    """A record with something in every field that its state has."""
    return StoredRecord(
        key=key,
        run_id="elsewhere",
        state=state,
        token=LONG_AGO + 4,
        attempt=5,
        nonce=nonce(),
        owner="host:1:ab",
        lease=LEASE,
        expires_at=None,
        incarnation=LONG_AGO + 1,
        fingerprint="print",
        error=None if state == "committed" else "ValueError: boom",
        result=result or payload(b"\0\xff") if state == "committed" else None,
        retain_until=None,
        taken_from="host:0:cd",
        created_at=LONG_AGO,
        updated_at=LONG_AGO + SECOND + 1,
    )


class PlaceClauses:
    """One test or more for each PLACE clause."""

    @clause("PLACE-1")
    def test_place_1_as_it_is_given(self, harness: Harness) -> None:
        """Every field of every state comes back as it was given, from the answer, a read and a listing."""
        client, other = Client(harness), Client(harness)
        given = [placeable("done"), placeable("back", "abandoned"), placeable("doubt", "in_doubt")]
        given += [replace(placeable("kept"), retain_until=BASE + DAY + 1), replace(placeable("bare"), fingerprint=None)]
        given.append(replace(placeable("plain", "abandoned"), error=None, lease=None, incarnation=0, taken_from=None))
        assert list(client.place(*given)) == given
        assert list(other.backend.read([record.key for record in given], now=BASE)) == given
        assert {record.key: record for record in other.listed()} == {record.key: record for record in given}

    @clause("PLACE-1")
    def test_place_1_verbs_go_on(self, harness: Harness) -> None:
        """What was placed lives on by the rules: tokens and attempts go on from where they were."""
        client = Client(harness)
        back, doubt, done = placeable("back", "abandoned"), placeable("doubt", "in_doubt"), placeable("done")
        client.place(back, doubt, done)
        granted = client.granted("back")
        assert (granted.grant.token, granted.grant.attempt) == (back.token + 1, back.attempt + 1)
        assert granted.took_over is None
        held = client.claim("doubt", takeover=False)
        assert isinstance(held, Held)
        assert (held.in_doubt, held.error) == (True, doubt.error)
        taken = client.granted("doubt", at=SECOND).took_over
        assert taken is not None
        assert (taken.owner, taken.token, taken.error) == (doubt.owner, doubt.token, doubt.error)
        assert client.claim("done") == Committed(payload(b"\0\xff"), done.token)
        client.commit(granted.grant, "later")
        assert client.record("back").result == payload("later")

    @clause("PLACE-1", "RETAIN-1")
    def test_place_1_retention(self, harness: Harness) -> None:
        """Retention ends when it was to end, to the microsecond, and a sweep removes the record with its chunks."""
        client, blob = Client(harness), nonce()
        client.backend.put_chunks(blob, [b"chunk"], now=BASE)
        client.place(replace(placeable(result=Payload(b"header", blob)), retain_until=BASE + SECOND))
        assert client.read(at=SECOND - 1) is not None
        assert client.sweep(at=SECOND - 1) == 0
        assert client.read(at=SECOND) is None
        assert client.sweep(at=SECOND) == 1
        client.sweep(at=2 * DAY)
        assert list(client.backend.get_chunks(blob)) == []

    @clause("PLACE-1")
    def test_place_1_many_and_large(self, harness: Harness) -> None:
        """Any number of records, among them such with results of the inline limit; those of chunks keep them through a sweep."""
        client, blob = Client(harness), nonce()
        client.backend.put_chunks(blob, [b"chunk"], now=BASE)
        large = payload(bytes(client.backend.limits.inline))
        given = [placeable(f"key-{number:03}") for number in range(120)]
        given += [placeable(f"large-{number}", result=large) for number in range(10)]
        given.append(placeable("chunked", result=Payload(b"header", blob)))
        assert list(client.place(*given)) == given
        assert client.place() == []
        client.sweep(at=2 * DAY)
        assert list(client.backend.read([record.key for record in given], now=BASE)) == given
        assert list(client.backend.get_chunks(blob)) == [b"chunk"]

    @clause("PLACE-2", "RETRY-1")
    def test_place_2_a_known_key_is_left_alone(self, harness: Harness) -> None:
        """Live, in doubt, given back or committed: a key that is there keeps its record, and the answer shows it."""
        client, other = Client(harness), Client(harness)
        live = client.grant("live")
        client.grant("lapsed", lease=0)
        client.abandon(client.grant("back"))
        client.done("done", "mine")
        keys = ("live", "lapsed", "back", "done")
        given = [replace(placeable(key), token=BASE + 9 * DAY) for key in keys]
        with client.unchanged(*keys):
            before = client.backend.read(keys, now=BASE)
            assert _stands(other.place(*given)) == _stands(before)
        assert isinstance(client.claim("live"), Held)
        client.commit(live, "still mine")
        fresh = placeable("fresh")
        assert client.place(fresh, *given)[0] == fresh, "beside keys that are known"
        assert list(other.place(fresh)) == [fresh], "an answer that was lost"

    @clause("PLACE-2", "RETAIN-1")
    def test_place_2_past_retention(self, harness: Harness) -> None:
        """A record past retention makes way for a higher token, and not for a lower one."""
        client = Client(harness)
        for key in ("higher", "lower"):
            client.done(key, retain=SECOND)
        token = client.record("higher").token
        higher, lower = replace(placeable("higher"), token=token + 1), replace(placeable("lower"), token=token)
        assert _stands(client.place(higher, at=SECOND - 1)) == _stands([client.record("higher")])
        placed, stays = client.place(higher, lower, at=SECOND)
        assert placed == higher
        assert (stays.nonce, stays.token) != (lower.nonce, lower.token - 1)
        assert client.read("higher", at=SECOND) == higher
        assert client.read("lower", at=SECOND) is None
        assert client.grant("lower", at=SECOND).token > lower.token

    @clause("PLACE-2")
    def test_place_2_at_once(self, harness: Harness) -> None:
        """Of those who place or claim a key at the same moment one succeeds, and all others hear of it."""
        clients = [Client(harness) for _ in range(4)]
        for number in range(4):
            key = f"key-{number}"
            given = [placeable(key) for _ in clients[:3]]
            placing = [partial(client.place, record) for client, record in zip(clients, given, strict=False)]
            *placed, answer = at_once(*placing, partial(clients[3].claim, key))
            stands = clients[0].record(key)
            assert [answer[0].nonce for answer in placed] == [stands.nonce] * 3
            assert isinstance(answer, Granted) is (stands.state == "claimed")

    @clause("PLACE-3")
    def test_place_3_unknown_run(self, harness: Harness) -> None:
        """An unknown run gets step, state, incarnation and time as given, and goes on from there."""
        client, other = Client(harness), Client(harness)
        for number, state in enumerate((payload("state"), payload(b""), Payload(b"header", nonce()), None)):
            run = StoredProgress(f"run-{number}", 7 * number, state, number and LONG_AGO + number, LONG_AGO)
            assert client.backend.place_run(run) == run
            assert other.load(run.run_id) == run
        assert other.save(6, run="run-1").step == 7
        assert other.save(8, "further", run="run-1").incarnation == LONG_AGO + 1
        assert client.backend.incarnate("run-1", now=BASE) == LONG_AGO + 2
        assert client.backend.incarnate("run-0", now=BASE) == BASE

    @clause("PLACE-3", "RETRY-1")
    def test_place_3_a_known_run_is_left_alone(self, harness: Harness) -> None:
        """A run that is known keeps what it has, be it further or not, or only drawn; the answer shows it."""
        client, other = Client(harness), Client(harness)
        client.save(3, "mine")
        client.backend.incarnate("drawn", now=BASE)
        for run in ("run", "drawn"):
            before = client.load(run)
            assert other.backend.place_run(StoredProgress(run, 9, payload("theirs"), LONG_AGO, LONG_AGO)) == before
            assert client.load(run) == before
        client.backend.delete_run("run")
        theirs = StoredProgress("run", 1, payload("theirs"), 0, LONG_AGO)
        assert [one.backend.place_run(theirs) for one in (client, other)] == [theirs, theirs]


def _stands(records: Sequence[StoredRecord | None]) -> list[tuple[str, str, int]]:
    """What tells one grant from another."""
    return [(record.nonce, record.state, record.token) for record in records if record is not None]
