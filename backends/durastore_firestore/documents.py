"""How records, runs and chunks stand in Firestore documents.

::

    COLLECTION/n.NAMESPACE/COLLECTION_records/SHA256(key)      one record each
    COLLECTION/n.NAMESPACE/COLLECTION_runs/SHA256(run id)      one run's progress each
    COLLECTION/n.NAMESPACE/COLLECTION_blobs/SHA256(blob)       what is known of one large payload
      …/COLLECTION_chunks/000042                               its chunks

Ids are hashed: keys may hold what ids may not (``/``, ``..``, ``__x__``, 1,500 bytes), and neighbouring keys would make a hot
range. The namespace is a document's path, so that no query needs a filter or an index for it.

**Time.** A document holds *durations*; they count from its `update_time`, which is the server's clock. `lease` and `retain` are
such durations. The first token of a key and a run's first incarnation are the `update_time` of the write that made them: not
stored then, since nobody can know it yet, and stored with every later write. Under a virtual `now`, the field `at` holds
that time and stands in for `update_time`.

A write that changes nothing leaves `update_time` as it was, so each write of a claim carries a random `beat`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from durastore.contract import Payload, StoredProgress, StoredRecord
from durastore.soundness import sound
from durastore_firestore import wire
from durastore_firestore.rpc import ServerClock
from durastore_firestore.wire import Fields, Message, Stamp

__all__ = [
    "Names",
    "Run",
    "beat",
    "expiry",
    "placed_fields",
    "record_fields",
    "record_of",
    "retain_until",
    "run_fields",
    "run_of",
]

TTL_MARGIN = 24 * 3600 * 1_000_000
"""Microseconds that Firestore's own deletion comes after the logical end of retention, since it goes by an estimate."""
_INTEGER_MAX = 2**63 - 1


class Names:
    """Resource names in one namespace of one database."""

    def __init__(self, database: str, collection: str, namespace: str) -> None:
        self.root = f"{database}/documents/{collection}/n.{namespace}"
        self.records = f"{collection}_records"
        self.runs = f"{collection}_runs"
        self.blobs = f"{collection}_blobs"
        self.chunks = f"{collection}_chunks"

    def record(self, key: str) -> str:
        """The document of a key."""
        return f"{self.root}/{self.records}/{_hashed(key)}"

    def run(self, run_id: str) -> str:
        """The document of a run."""
        return f"{self.root}/{self.runs}/{_hashed(run_id)}"

    def blob(self, blob: str) -> str:
        """The document that describes a large payload."""
        return f"{self.root}/{self.blobs}/{_hashed(blob)}"

    def chunk(self, blob: str, index: int) -> str:
        """The document of one chunk."""
        return f"{self.blob(blob)}/{self.chunks}/{index:06}"


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def beat() -> int:
    """A number that makes a write change something."""
    return random.getrandbits(62)


def record_fields(record: StoredRecord, clock: ServerClock, *, now: int | None, fresh: bool = False) -> Fields:
    """The document of a record that is written at `now` (virtual), or at whatever time the server writes it.

    `fresh`: its token is the time of the write.
    """
    fields: dict[str, str | int | bytes | None] = {
        "key": record.key,
        "run_id": record.run_id,
        "state": record.state,
        "attempt": record.attempt,
        "nonce": record.nonce,
        "owner": record.owner,
        "lease": record.lease,
        "incarnation": record.incarnation or None,
        "fingerprint": record.fingerprint,
        "error": record.error,
        "taken_from": record.taken_from,
        "at": now,
        "beat": beat(),
    }
    if not fresh:
        fields |= {"token": record.token, "created": record.created_at}
    if record.result is not None:
        fields |= {"result": record.result.data, "blob": record.result.blob}
    if record.state == "committed" and record.retain_until is not None:
        fields |= expiry(record.retain_until - record.updated_at, clock, now)
    return fields


def placed_fields(record: StoredRecord, clock: ServerClock) -> Fields:
    """The document of a record that stood in another store: `at` holds the time of its last write there."""
    fields = dict(record_fields(record, clock, now=record.updated_at))
    if record.retain_until is not None:
        fields["expire_at"] = Stamp(min(record.retain_until + TTL_MARGIN, wire.STAMP_MAX))
    return fields


def expiry(retain: int | None, clock: ServerClock, now: int | None) -> dict[str, int | None]:
    """The fields that end a record's retention: exact (`retain`), for `sweep`'s query, and for Firestore's TTL policy."""
    if retain is None:
        return {"retain": None, "sweep_after": None, "expire_at": None}
    written = clock.estimate() if now is None else now
    after = min(written + retain, _INTEGER_MAX)
    return {
        "retain": retain,
        "sweep_after": after,
        "expire_at": Stamp(min(after + TTL_MARGIN, wire.STAMP_MAX)) if now is None else None,
    }


@sound
def record_of(document: Message) -> StoredRecord:
    """The record that a document holds."""
    version = wire.micros(document.update_time)
    fields = wire.values(document)
    at = fields.get("at", version)
    token = fields.get("token", at)
    lease = fields.get("lease")
    claimed = fields["state"] == "claimed"
    return StoredRecord(
        key=fields["key"],
        run_id=fields["run_id"],
        state=fields["state"],
        token=token,
        attempt=fields["attempt"],
        nonce=fields["nonce"],
        owner=fields["owner"],
        lease=lease,
        expires_at=at + lease if claimed and lease is not None else None,
        incarnation=fields.get("incarnation", 0),
        fingerprint=fields.get("fingerprint"),
        error=fields.get("error"),
        result=_payload(fields, "result"),
        retain_until=retain_until(fields, version),
        taken_from=fields.get("taken_from"),
        created_at=fields.get("created", token),
        updated_at=at,
        version=version,
    )


def retain_until(fields: Mapping[str, Any], version: int) -> int | None:
    """When a committed record counts as absent; None for never."""
    if fields["state"] != "committed" or "retain" not in fields:
        return None
    return int(fields.get("at", version)) + int(fields["retain"])


def _payload(fields: Mapping[str, Any], name: str) -> Payload | None:
    return Payload(fields[name], fields.get("blob")) if name in fields else None


@dataclass(frozen=True, slots=True)
class Run:
    """A run's progress, and the version of the document that holds it; None for a document that is not there."""

    progress: StoredProgress
    version: int | None


def run_fields(progress: StoredProgress, *, now: int | None, drawn: bool = False, saved: int | None = None) -> Fields:
    """The document of a run. `drawn`: its incarnation is the time of the write. `saved`: when step and state were, if earlier."""
    fields: dict[str, str | int | bytes | bool | None] = {
        "run_id": progress.run_id,
        "step": progress.step,
        "incarnation": None if drawn else progress.incarnation or None,
        "drawn": drawn or None,
        "saved": saved,
        "at": now,
    }
    if progress.state is not None:
        fields |= {"state": progress.state.data, "blob": progress.state.blob}
    return fields


def run_of(document: Message) -> Run:
    """The run that a document holds."""
    return Run(_progress_of(document), wire.micros(document.update_time))


@sound
def _progress_of(document: Message) -> StoredProgress:
    fields = wire.values(document)
    at = fields.get("at", wire.micros(document.update_time))
    incarnation = at if "drawn" in fields else fields.get("incarnation", 0)
    return StoredProgress(
        fields["run_id"], fields["step"], _payload(fields, "state"), incarnation, fields.get("saved", at)
    )
