"""A store with one of everything, and what a store looks like whatever its kind."""

from __future__ import annotations

import os
from typing import Any

import durastore
from durastore.codec import EncryptingCodec, JSONCodec
from durastore.conformance.ground import NASTY_KEYS
from durastore.contract import ClaimRequest, Payload, StoredRecord
from durastore.moving.leaving import Departures
from durastore.moving.things import MovedRun, digest, plain
from durastore.payload import lost
from durastore.store import Store, new_nonce

VALUES: tuple[Any, ...] = (
    None,
    0,
    "",
    [],
    {},
    False,
    2**63,
    0.1,
    "\0",
    "\ud800",
    "é😀",
    float("inf"),
    {"b": 1, "a": 2},
)
KEYRING = "1ZJ2xSxqJyFIPuPsTGbTYRyrnDmlxWxvRqFHXqkkgSA="


class Bytes:
    """A codec whose bytes are no text."""

    name = "bytes"

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return data


def opened(url: str, codec: Any = None) -> Store:
    return durastore.open(url, codec=codec or JSONCodec())


def fail() -> Any:
    raise ValueError("the connection\0broke")


def filled(url: str) -> None:
    """Put one of everything into a store."""
    with opened(url) as store:
        _values(store)
        _states(store)
        _claims(store)
        _runs(store)
    with opened(url, EncryptingCodec([KEYRING])) as store:
        store.checkpoint("secret").run_once("encrypted", lambda: {"card": "4242"}, progress=(1, {"secret": True}))
    with opened(url, Bytes()) as store:
        ckpt = store.checkpoint("binary")
        ckpt.run_once("bytes", lambda: bytes(range(256)))
        ckpt.run_once("empty", lambda: b"")
        ckpt.run_once("large bytes", lambda: os.urandom(1_500_000), retain=3600)


def _values(store: Store) -> None:
    ckpt = store.checkpoint("values", supersede=True)
    for number, value in enumerate(VALUES):
        ckpt.run_once(f"value-{number}", lambda value=value: value, fingerprint=number)
    for key in NASTY_KEYS:
        store.checkpoint(key).run_once(key, lambda key=key: key)
    ckpt.run_once("compressed", lambda: "x" * 300_000)
    ckpt.run_once("chunked", lambda: os.urandom(700_000).hex())
    ckpt.run_once("retained", lambda: "for an hour", retain=3600)
    ckpt.run_once("for a moment", lambda: "gone", retain=0)
    ckpt.save_progress(7, {"large": os.urandom(400_000).hex()})


def _states(store: Store) -> None:
    for run, key, in_doubt in (("a", "back", "rerun"), ("b", "doubt", "halt")):
        ckpt = store.checkpoint(run, in_doubt=in_doubt)
        for _ in range(3 if in_doubt == "rerun" else 1):
            try:
                ckpt.run_once(key, fail)
            except ValueError:
                continue
    store.checkpoint("c").run_once("resolved", lambda: 1)
    store.resolve("resolved", result="by hand", force=True)


def _claims(store: Store) -> None:
    """What the checkpoint would not leave behind: a claim that has lapsed, one taken over, a result that was lost."""
    backend = store.backend
    for owner in ("first", "second"):
        backend.claim(ClaimRequest("lapsed", "d", owner, new_nonce(), 0, fingerprint="print"))
    answer = backend.claim(ClaimRequest("lost", "d", "first", new_nonce(), 60_000_000))
    assert isinstance(answer, durastore.contract.Granted)
    backend.commit(answer.grant, result=lost("no JSON"))


def _runs(store: Store) -> None:
    store.checkpoint("only progress").save_progress(3, {"n": [1, 2]})
    store.checkpoint("only drawn", supersede=True)


def contents(store: Store) -> dict[str, Any]:
    """All fields and payload digests by name, which are the same on every store."""
    departures = Departures(store)
    things = [departures.with_body(one) for page in departures.all() for one in page]
    return {thing.name: (plain(thing), digest(thing)) for thing in things}


def steps(store: Store) -> dict[str, int]:
    """How far each run is."""
    departures = Departures(store)
    found = [one.thing for page in departures.all() for one in page]
    return {thing.run.run_id: thing.run.step for thing in found if isinstance(thing, MovedRun)}


def record(key: str, **changes: Any) -> StoredRecord:
    """A committed record, to place."""
    fields: dict[str, Any] = {
        "key": key, "run_id": "r", "state": "committed", "token": 5, "attempt": 1, "nonce": "n1", "owner": "o",
        "lease": 60_000_000, "expires_at": None, "incarnation": 0, "fingerprint": None, "error": None,
        "result": Payload(b"json\n1"), "retain_until": None, "taken_from": None, "created_at": 1, "updated_at": 2,
    }  # fmt: skip
    return StoredRecord(**{**fields, **changes})
