"""What is moved: a record or a run without its payload, and the payload's body; and digests that do not depend on the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TypeAlias

from durastore import rules
from durastore.contract import StoredProgress, StoredRecord
from durastore.payload import Body

__all__ = ["DIGEST_BITS", "MovedRecord", "MovedRun", "Thing", "as_moved", "digest", "plain"]

DIGEST_BITS = 256
_PIECE = 1024 * 1024
"""Bytes that are decompressed at a time."""


@dataclass(frozen=True, slots=True)
class MovedRecord:
    """A key as it is moved. `record` has no result; its state is that by now, and never ``claimed``."""

    record: StoredRecord
    body: Body | None

    @property
    def name(self) -> str:
        """For messages."""
        return f"key {self.record.key!r}"


@dataclass(frozen=True, slots=True)
class MovedRun:
    """A run as it is moved. `run` has no state."""

    run: StoredProgress
    body: Body | None

    @property
    def name(self) -> str:
        """For messages."""
        return f"run {self.run.run_id!r}"


Thing: TypeAlias = MovedRecord | MovedRun


def as_moved(record: StoredRecord, now: int) -> StoredRecord:
    """A record as it can stand in any store. A claim that has lapsed is in doubt: leases go by the clock of their own store.

    An error's text keeps what every store takes: NUL and lone surrogates as escapes.
    """
    error = record.error
    if error is not None:
        error = error.replace("\0", "\\x00").encode(errors="backslashreplace").decode()
    state = rules.state_at(record, now)
    return replace(record, state=state, error=error, expires_at=None, result=None, version=None)


def digest(thing: Thing) -> int:
    """A number of 256 bits for all that is moved of one thing. Sums of it (modulo 2**256) stand for sets of things.

    The multiset hash AdHash of Bellare and Micciancio (1997): it does not depend on the order of listings. It finds losses and
    damage; whoever can choose values could construct two sets with the same sum.
    """
    fields = json.dumps(plain(thing), sort_keys=True, separators=(",", ":"))
    return int.from_bytes(sha256(f"{fields}\n{body_digest(thing.body)}".encode()).digest(), "big")


def plain(thing: Thing) -> dict[str, str | int | None]:
    """The fields of a thing but its payload, in the order of the export."""
    if isinstance(thing, MovedRun):
        fields = asdict(thing.run)
        del fields["state"]
    else:
        fields = asdict(thing.record)
        for name in ("expires_at", "result", "version"):
            del fields[name]
    return fields


def body_digest(body: Body | None) -> str:
    """The digest of a payload: of its codec and its bytes before compression, which depends on a store's limits."""
    if body is None:
        return "none"
    total = sha256(f"{body.codec}\n".encode())
    for piece in _unzipped(body.data) if body.zipped else (body.data,):
        total.update(piece)
    return total.hexdigest()


def _unzipped(data: bytes) -> Iterator[bytes]:
    """The decompressed bytes, a piece at a time; for damaged ones, what there is and then the bytes as they stand."""
    import zlib

    stream = zlib.decompressobj()
    left = data
    try:
        while left and not stream.eof:
            yield stream.decompress(left, _PIECE)
            left = stream.unconsumed_tail
    except zlib.error:
        yield data
