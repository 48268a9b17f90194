"""Large payloads: limits of documents and commits, and which chunks the sweep may take."""

from __future__ import annotations

import os
from collections.abc import Callable

import durastore
from durastore.contract import Payload, StoredProgress
from durastore.rules import ORPHAN_AGE
from durastore_firestore import FirestoreBackend, wire

from .requests import RESULT, granted, request
from .wiretap import Wiretap

NOW = 2_000_000_000_000_000
MINUTE = 60_000_000
CHUNKS = [b"one", b"two"]


def blob(name: str) -> Payload:
    return Payload(b"header", name)


def test_the_largest_payload(store: durastore.Store, tap: Wiretap) -> None:
    """64 MiB come back byte for byte; no commit exceeds what the emulator takes, let alone Firestore."""
    half = os.urandom(12 * 1024 * 1024).hex()
    ckpt = store.checkpoint("run")
    assert ckpt.run_once("key", lambda: half).value == half
    commits = [sent for sent in tap.requests if hasattr(sent, "writes")]
    assert max(sent.ByteSize() for sent in commits) < 4 * 1024 * 1024
    assert ckpt.run_once("key", lambda: "never") == (half, "skipped")


def test_inline_and_progress_fit_one_commit(store: durastore.Store, tap: Wiretap) -> None:
    """A result and a state that are as large as fits inline land in one RPC."""
    text = os.urandom(125_000).hex()
    ckpt = store.checkpoint("run")
    ckpt.load()
    tap.taken()
    ckpt.run_once("key", lambda: text, progress=(1, text))
    assert tap.taken() == ["Commit", "Commit"]
    assert ckpt.load() == (1, text)


def test_chunks_written_long_ago_are_kept_while_pointed_to(backend: FirestoreBackend) -> None:
    """However old, chunks of a record and of a run stay; a day after they are let go of nobody's mind, orphans go."""
    for name in ("result", "state", "orphan"):
        backend.put_chunks(name, CHUNKS, now=NOW)
    grant = granted(backend.claim(request("key"), now=NOW))
    backend.commit(grant, result=blob("result"), progress=StoredProgress("run", 1, blob("state")), now=NOW)
    assert backend.sweep(now=NOW + ORPHAN_AGE - 1).chunks == 0
    assert backend.sweep(now=NOW + ORPHAN_AGE).chunks == 1
    assert backend.sweep(now=NOW + 9 * ORPHAN_AGE).chunks == 0
    assert [backend.get_chunks(name) for name in ("result", "state", "orphan")] == [CHUNKS, CHUNKS, []]


def test_the_sweep_reads_no_chunks_that_are_in_use(backend: FirestoreBackend) -> None:
    """What is pointed to is not even a candidate, so a sweep costs what there is to remove."""
    for number in range(5):
        backend.put_chunks(f"b{number}", CHUNKS, now=NOW)
        grant = granted(backend.claim(request(f"key-{number}"), now=NOW))
        backend.commit(grant, result=blob(f"b{number}"), now=NOW)
    assert candidates(backend) == []
    backend.put_chunks("loose", CHUNKS, now=NOW)
    assert candidates(backend) == ["loose"]


def candidates(backend: FirestoreBackend) -> list[str]:
    from durastore_firestore.listing import Query

    query = Query(backend._space.names.blobs).where("check_at", ">=", wire.Stamp(0)).build()
    found = backend._space.rpc.query(backend._space.names.root, query).documents.values()
    return [document.fields["blob"].string_value for document in found]


def test_replaced_state_is_let_go(backend: FirestoreBackend) -> None:
    """The chunks of a state that a later save replaced are orphans; those of the later one are not."""
    for name in ("first", "second"):
        backend.put_chunks(name, CHUNKS, now=NOW)
    backend.load("run")
    backend.save(StoredProgress("run", 1, blob("first")), now=NOW)
    backend.save(StoredProgress("run", 2, blob("second")), now=NOW)
    assert backend.sweep(now=NOW + ORPHAN_AGE).chunks == 1
    assert [backend.get_chunks(name) for name in ("first", "second")] == [[], CHUNKS]


def test_chunks_go_with_their_record(backend: FirestoreBackend) -> None:
    """Deleting or sweeping a record takes its chunks along at once."""
    for name, retain in (("forgotten", None), ("expired", MINUTE)):
        backend.put_chunks(name, CHUNKS, now=NOW)
        backend.commit(granted(backend.claim(request(name), now=NOW)), result=blob(name), retain=retain, now=NOW)
    (seen,) = backend.read(["forgotten"], now=NOW)
    assert seen is not None
    assert backend.delete(seen, now=NOW)
    assert backend.get_chunks("forgotten") == []
    assert backend.sweep(now=NOW + MINUTE).records == 1
    assert backend.get_chunks("expired") == []


def test_chunks_of_a_record_that_firestore_deleted_itself(backend: FirestoreBackend) -> None:
    """The TTL policy knows no chunks; the sweep looks at them when their record's retention is over."""
    backend.put_chunks("blob", CHUNKS, now=NOW)
    backend.commit(granted(backend.claim(request("key"), now=NOW)), result=blob("blob"), retain=MINUTE, now=NOW)
    backend._space.rpc.commit([wire.delete(backend._space.names.record("key"))])
    assert backend.sweep(now=NOW + MINUTE - 1).chunks == 0
    assert backend.sweep(now=NOW + ORPHAN_AGE).chunks == 1
    assert backend.get_chunks("blob") == []


def test_a_commit_under_way_wins_over_the_sweep(
    backend: FirestoreBackend, another: Callable[[], FirestoreBackend], tap: Wiretap
) -> None:
    """Chunks that are pointed to between the sweep's look and its deletion stay."""
    backend.put_chunks("blob", CHUNKS, now=NOW)
    rival = another()
    grant = granted(rival.claim(request("key"), now=NOW))
    tap.before_commit(lambda: rival.commit(grant, result=blob("blob"), now=NOW) and None)
    assert backend.sweep(now=NOW + 2 * ORPHAN_AGE).chunks == 0
    assert backend.get_chunks("blob") == CHUNKS


def test_many_candidates_in_small_steps(backend: FirestoreBackend) -> None:
    """A sweep in steps of two ends, although some candidates are in use or not yet due."""
    for number in range(7):
        backend.put_chunks(f"b{number}", CHUNKS, now=NOW + (ORPHAN_AGE if number % 3 == 0 else 0))
    grant = granted(backend.claim(request("key"), now=NOW))
    backend.commit(grant, result=blob("b1"), now=NOW)
    backend.put_chunks("b1", CHUNKS, now=NOW)  # a copy of the request that arrives late
    removed, more = 0, True
    while more:
        step = backend.sweep(limit=2, now=NOW + ORPHAN_AGE)
        removed, more = removed + step.chunks, step.more
    assert removed == 3
    assert backend.get_chunks("b1") == CHUNKS
    assert RESULT.blob is None
