"""CHUNK, SWEEP, RETAIN, LIMIT and VALUE-1: bytes that come back, and bytes that go."""

from __future__ import annotations

import os

from durastore.conformance.client import DAY, LEASE, SECOND, Client, nonce, payload, progress
from durastore.conformance.harness import BASE, Harness
from durastore.conformance.marks import clause
from durastore.contract import Committed, Granted, Payload, StoredProgress
from durastore.payload import PAYLOAD_BYTES_MAX

__all__ = ["ChunkClauses", "LimitClauses", "SweepClauses"]

NASTY_BYTES = (
    b"",
    b"\0",
    b"\0\0a",
    bytes(range(256)),
    b"\xff\xfe",
    b"{}",
    b"null",
    "é😀".encode(),
    b" trailing ",
    b"\r\n",
)


class ChunkClauses:
    """One test or more for each CHUNK clause, and VALUE-1."""

    @clause("CHUNK-1", "VALUE-1")
    def test_chunk_1_chunks_come_back(self, harness: Harness) -> None:
        """Chunks are there for another client as soon as they are written, byte for byte, and again when written again."""
        client, other = Client(harness), Client(harness)
        for chunks in ([b"only"], [bytes(range(256)), b"\0", b"\xff"]):
            blob = nonce()
            for _ in range(2):
                client.backend.put_chunks(blob, chunks, now=BASE)
                assert list(other.backend.get_chunks(blob)) == chunks

    @clause("CHUNK-2")
    def test_chunk_2_order_and_absence(self, harness: Harness) -> None:
        """More than ten chunks come in order; an unknown id has none; ids do not mix."""
        client = Client(harness)
        first, second = nonce(), nonce()
        chunks = [f"chunk {number}".encode() for number in range(23)]
        client.backend.put_chunks(first, chunks, now=BASE)
        client.backend.put_chunks(second, chunks[:1], now=BASE)
        assert list(client.backend.get_chunks(first)) == chunks
        assert list(client.backend.get_chunks(second)) == chunks[:1]
        assert list(client.backend.get_chunks(nonce())) == []

    @clause("FORGET-1", "CHUNK-2")
    def test_forget_1_chunks_of_a_forgotten_record(self, harness: Harness) -> None:
        """A record that is removed takes its chunks along, and nobody else's."""
        client = Client(harness)
        blobs = {key: nonce() for key in ("gone", "stays")}
        for key, blob in blobs.items():
            client.backend.put_chunks(blob, [b"chunk"], now=BASE)
            client.backend.commit(client.grant(key), result=Payload(b"header", blob), now=BASE)
        assert client.record("gone").result == Payload(b"header", blobs["gone"])
        client.delete(client.record("gone"))
        assert list(client.backend.get_chunks(blobs["gone"])) == []
        assert list(client.backend.get_chunks(blobs["stays"])) == [b"chunk"]

    @clause("VALUE-1")
    def test_value_1_bytes_come_back(self, harness: Harness) -> None:
        """Results and states of any bytes, the empty ones too, from the record, the claim, the run and a repeated save."""
        client, other = Client(harness), Client(harness)
        for number, data in enumerate(NASTY_BYTES):
            key = f"key-{number}"
            client.commit(client.grant(key), data, progress=progress(number, data))
            answer = other.claim(key)
            assert isinstance(answer, Committed)
            assert answer.result == payload(data)
            assert other.record(key).result == payload(data)
            loaded = other.load()
            assert loaded is not None
            assert loaded.state == payload(data)
            assert client.save(number, data) == other.load()

    @clause("VALUE-1")
    def test_value_1_blob_ids_come_back(self, harness: Harness) -> None:
        """The id of the chunks is kept in record and run; none stays none."""
        client = Client(harness)
        for key, blob in (("with", nonce()), ("without", None)):
            client.backend.commit(client.grant(key), result=Payload(b"header", blob), now=BASE)
            assert client.record(key).result == Payload(b"header", blob)
            saved = client.backend.save(StoredProgress(key, 1, Payload(b"header", blob)), now=BASE)
            assert saved.state == Payload(b"header", blob)
            assert client.load(key) == saved


class SweepClauses:
    """One test or more for each SWEEP clause, and RETAIN-1."""

    @clause("SWEEP-1")
    def test_sweep_1_only_past_retention(self, harness: Harness) -> None:
        """A sweep removes what is past retention and nothing else: no claim, however old, no doubt, nothing given back."""
        client = Client(harness)
        client.grant("lapsed", lease=0)
        client.abandon(client.grant("doubt"), in_doubt=True)
        client.abandon(client.grant("back"))
        client.done("for ever")
        client.done("retained", retain=9 * DAY + 1)
        client.done("old", retain=9 * DAY)
        client.done("claimed again", retain=1)
        client.grant("claimed again", at=1)
        stay = ("lapsed", "doubt", "back", "for ever", "retained", "claimed again")
        with client.unchanged(*stay):
            assert client.sweep(at=9 * DAY) == 1
        assert client.read("old") is None

    @clause("SWEEP-1")
    def test_sweep_1_in_small_steps(self, harness: Harness) -> None:
        """`limit` bounds one call, `more` says that there is more, and a sweep of nothing does nothing."""
        client = Client(harness)
        for number in range(5):
            client.done(f"key-{number}", retain=1)
        assert client.sweep(at=SECOND, limit=2) == 5
        assert client.sweep(at=SECOND) == 0
        assert client.names() == []

    @clause("SWEEP-2")
    def test_sweep_2_orphaned_chunks(self, harness: Harness) -> None:
        """Chunks that nothing points to go a day after they were written, not before; those of records and runs stay."""
        client = Client(harness)
        orphan, result, state, late = nonce(), nonce(), nonce(), nonce()
        for blob, at in ((orphan, 0), (result, 0), (state, 0), (late, SECOND)):
            client.backend.put_chunks(blob, [b"one", b"two"], now=BASE + at)
        client.backend.commit(client.grant(), result=Payload(b"header", result), now=BASE)
        client.backend.save(StoredProgress("run", 1, Payload(b"header", state)), now=BASE)
        client.sweep(at=DAY - 1)
        assert list(client.backend.get_chunks(orphan)) == [b"one", b"two"]
        client.sweep(at=DAY)
        left = {blob: len(client.backend.get_chunks(blob)) for blob in (orphan, result, state, late)}
        assert left == {orphan: 0, result: 2, state: 2, late: 2}

    @clause("SWEEP-2")
    def test_sweep_2_chunks_of_what_went(self, harness: Harness) -> None:
        """Chunks go once nothing points to them: of a record past retention, of a state that was replaced, of a removed run."""
        client = Client(harness)
        result, replaced, removed = nonce(), nonce(), nonce()
        for blob in (result, replaced, removed):
            client.backend.put_chunks(blob, [b"chunk"], now=BASE)
        client.backend.commit(client.grant(), result=Payload(b"header", result), retain=SECOND, now=BASE)
        client.backend.save(StoredProgress("run", 1, Payload(b"header", replaced)), now=BASE)
        client.backend.save(StoredProgress("gone", 1, Payload(b"header", removed)), now=BASE)
        client.save(2)
        client.backend.delete_run("gone")
        for _ in range(2):  # what one sweep orphans may be left to the next
            client.sweep(at=2 * DAY)
        assert [len(client.backend.get_chunks(blob)) for blob in (result, replaced, removed)] == [0, 0, 0]

    @clause("RETAIN-1")
    def test_retain_1_absent_at_once(self, harness: Harness) -> None:
        """Past retention, unswept: absent for read, scan, resolve, delete, and for a rival with another fingerprint."""
        client = Client(harness)
        client.done(fingerprint="one", retain=SECOND)
        seen = client.record(at=SECOND - 1)
        assert client.names(at=SECOND - 1) == ["key"]
        assert client.read(at=SECOND) is None
        assert client.names(at=SECOND) == []
        assert client.resolve(seen, "late", at=SECOND) is False
        assert client.delete(seen, at=SECOND) is False
        assert isinstance(client.claim(at=SECOND, fingerprint="two"), Granted)

    @clause("RETAIN-1")
    def test_retain_1_retention_of_the_last_commit(self, harness: Harness) -> None:
        """A new claim and commit after the retention has its own retention, or none."""
        client = Client(harness)
        client.done(retain=SECOND)
        client.done("key", "second", at=SECOND)
        assert client.record(at=9 * DAY).result == payload("second")
        assert client.sweep(at=9 * DAY) == 0


class LimitClauses:
    """One test or more for each LIMIT clause on payloads."""

    @clause("LIMIT-2")
    def test_limit_2_inline_limit(self, harness: Harness) -> None:
        """A commit takes a result and a state of the inline limit each, under the longest key and run id."""
        client, other = Client(harness), Client(harness)
        size = client.backend.limits.inline
        result, state = os.urandom(size), os.urandom(size)
        key, run = "k" * 1024, "😀" * 256
        client.commit(client.grant(key, run=run), result, progress=progress(1, state, run=run))
        assert other.record(key).result == payload(result)
        loaded = other.load(run)
        assert loaded is not None
        assert loaded.state == payload(state)

    @clause("LIMIT-2")
    def test_limit_2_chunk_limit(self, harness: Harness) -> None:
        """Several chunks of the chunk limit each are taken."""
        client = Client(harness)
        chunks = [os.urandom(client.backend.limits.chunk) for _ in range(3)]
        blob = nonce()
        client.backend.put_chunks(blob, chunks, now=BASE)
        assert list(client.backend.get_chunks(blob)) == chunks

    @clause("LIMIT-3")
    def test_limit_3_largest_payload(self, harness: Harness) -> None:
        """64 MiB in chunks are taken, and come back in order."""
        client, other = Client(harness), Client(harness)
        size = client.backend.limits.chunk
        data, blob = os.urandom(PAYLOAD_BYTES_MAX), nonce()
        client.backend.put_chunks(blob, [data[at : at + size] for at in range(0, len(data), size)], now=BASE)
        client.backend.commit(client.grant(lease=100 * LEASE), result=Payload(b"header", blob), now=BASE)
        same = b"".join(other.backend.get_chunks(blob)) == data
        assert same, "all bytes in order"
        assert client.delete(client.record())
