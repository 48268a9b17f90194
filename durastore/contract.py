"""The contract between durastore and a store: what every backend must do, and what it need not.

A backend is an object with the methods of :class:`Backend`. Times are integers in **microseconds**; durations too.
Each method is atomic and linearizable per key, and `commit` is atomic over all that it writes. The clauses are
numbered (``CLAIM-3``); the conformance tests carry the same numbers.

:mod:`durastore.rules` is this contract as pure functions. A store that reads, decides and writes under a lock (or
under a precondition) calls them; a store that says the rules in its own statements is held to them by the tests.

Obligations on every method
---------------------------
TIME-1    The store's clock decides, never the client's. ``now`` (microseconds), when given, replaces the clock:
          for deterministic tests only.
RETRY-1   Every method may be called again with the same arguments after an answer was lost, and recognises its own
          earlier success by nonce.
ERROR-1   A backend raises what its driver raises. `Backend.classify` says what that means; the store wraps it once.
KEY-1     Keys and run ids are compared byte for byte, in UTF-8: case, trailing blanks and NFC/NFD all count.
SPACE-1   A backend sees the records, runs and chunks of its own namespace alone.
RETAIN-1  Retention is logical: a record past it is absent at once, for every verb, swept or not.

Limits and values
-----------------
LIMIT-1   Keys and run ids of 1 to 1,024 bytes of UTF-8, any characters but NUL and lone surrogates.
LIMIT-2   `Limits` is honest: a commit takes a result and a state of `inline` bytes each, `put_chunks` chunks of `chunk` bytes.
LIMIT-3   A payload of 64 MiB fits in chunks, and comes back in order.
VALUE-1   Results, states and chunks come back byte for byte: empty ones, NUL and what is no UTF-8 too.
VALUE-2   Through the codec, a value comes back equal, of the same type and in the same order, on the first call as on a replay.
VALUE-3   A value too large for a record comes back whole; with a chunk missing or damaged it is a `PayloadError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from durastore.errors import DurastoreError

__all__ = [
    "Answer",
    "Backend",
    "ClaimRequest",
    "Committed",
    "Finding",
    "Grant",
    "Granted",
    "Held",
    "Limits",
    "Page",
    "Payload",
    "RecordState",
    "StoredProgress",
    "StoredRecord",
    "Swept",
    "TookOver",
]

RecordState = Literal["claimed", "in_doubt", "abandoned", "committed"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a store takes in one piece, in bytes. Larger payloads are cut into chunks by the shared code."""

    inline: int
    """The largest `Payload.data` that may stand in a record or a run."""
    chunk: int
    """The largest chunk that `Backend.put_chunks` takes."""


@dataclass(frozen=True, slots=True)
class Payload:
    """An encoded value. Opaque to backends: they keep `data` byte for byte, and `blob` so that `sweep` can follow it."""

    data: bytes
    blob: str | None = None
    """The id of the chunks that hold the value, when it does not fit inline."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Who asks for which key, and on what terms."""

    key: str
    run_id: str
    owner: str
    """For people: host, process and a random part. Never compared."""
    nonce: str
    """Names the grant that this request asks for; never used for another one."""
    lease: int
    """Microseconds. 0 is a lease that has expired already."""
    takeover: bool = True
    """Whether an expired or in-doubt claim may be granted, or is reported as `Held(in_doubt=True)`."""
    fingerprint: str | None = None
    incarnation: int = 0
    """The run's incarnation number (`Backend.incarnate`), 0 without supersede."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant of one key. Its holder proves itself by `nonce` in every later write."""

    key: str
    run_id: str
    owner: str
    nonce: str
    token: int
    attempt: int
    lease: int
    version: Any = field(default=None, compare=False)
    """Whatever the backend needs to write conditionally (an update time, a revision). Opaque to everybody else."""


@dataclass(frozen=True, slots=True)
class TookOver:
    """What a grant replaced: a claim whose holder is gone or raised, so that its effect is in doubt."""

    owner: str
    token: int
    attempt: int
    error: str | None
    """What the earlier attempt raised, None when it just vanished."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The key is ours. `took_over` is set when an earlier attempt is in doubt, so that the caller can look first."""

    grant: Grant
    took_over: TookOver | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The key is done; this is its result."""

    result: Payload
    token: int


@dataclass(frozen=True, slots=True)
class Held:
    """The key is not to be had now: another claim lives, or (`in_doubt`) the caller may not take it over."""

    owner: str
    run_id: str
    lease_left: int | None
    """Microseconds; 0 when the lease has lapsed, None for a record without a lease (live until resolved)."""
    attempt: int
    error: str | None
    in_doubt: bool


Answer = Granted | Committed | Held


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as the store keeps it. `state` is what was written; see `rules.state_at` for what it means by now."""

    key: str
    run_id: str
    state: RecordState
    token: int
    attempt: int
    nonce: str
    owner: str
    lease: int | None
    expires_at: int | None
    """When the claim's lease lapses; None outside `claimed`, or for a record without a lease (live, never free)."""
    incarnation: int
    fingerprint: str | None
    error: str | None
    result: Payload | None
    retain_until: int | None
    """When a committed record counts as absent; None for never."""
    taken_from: str | None
    """The owner whose in-doubt claim this grant replaced; None for a grant of a free key."""
    created_at: int
    updated_at: int
    version: Any = field(default=None, compare=False)
    """As in `Grant`."""


@dataclass(frozen=True, slots=True)
class StoredProgress:
    """A run's map. `state` None means that none was saved."""

    run_id: str
    step: int
    state: Payload | None
    incarnation: int = 0
    updated_at: int = 0


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a listing; `cursor` None means that it was the last."""

    items: Sequence[T]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Swept:
    """What one call of `Backend.sweep` removed, and whether there may be more."""

    records: int
    chunks: int
    """Payloads whose chunks were orphaned, not single chunks."""
    more: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `check`: what was looked at, whether it is well, and what to do if not."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


class Backend(Protocol):
    """A store. Safe to use from many threads at once.

    Not guaranteed: any order of listings; that a listing is a snapshot.
    """

    scheme: str
    """The URL scheme, for messages."""
    limits: Limits
    creates_itself: bool
    """Whether `open` may call `setup` unasked, since an absent store is an empty one (memory, a SQLite file)."""

    def claim(self, request: ClaimRequest, *, now: int | None = None) -> Answer:
        """Ask for a key.

        Guarantees
        ----------
        CLAIM-1   Absent, abandoned, or committed but past retention: granted, with `attempt` + 1 (1 when absent or past
                  retention).
        CLAIM-2   Committed: `Committed` with the result. Nothing is written.
        CLAIM-3   A live claim of another nonce: `Held`. Nothing is written.
        CLAIM-4   An expired or in-doubt claim: granted with `took_over` when `takeover`, else `Held(in_doubt=True)` and
                  nothing is written. A claim is expired when now >= its grant or last renewal + lease.
        CLAIM-5   A nonce is granted at most once. While its claim stands, the same nonce is granted again, unchanged and
                  with the same `took_over` (a retry whose first answer was lost); once it was committed it gets
                  `Committed`, once it was given back or left in doubt `Held`.
        CLAIM-6   Both fingerprints given and different: `FingerprintMismatch`, nothing written, when the record is
                  committed, live, expired or in doubt. An abandoned record takes the new fingerprint (None leaves none).
                  A grant over an expired or in-doubt claim keeps the stored fingerprint when the request has none.
        CLAIM-7   A takeover re-checks in the same atomic write what it read: a commit made in between is never overwritten.
        CLAIM-8   `lease` 0 is an expired lease. A claim stored without a lease is live, not free.
        CLAIM-9   The first token of an absent key is the store's time in microseconds; each later grant has last + 1.
        CLAIM-10  A live claim of the same run and a lower incarnation counts as expired (CLAIM-4); one of an equal or
                  higher incarnation, or of another run, does not.

        Raises: `FingerprintMismatch`; what the driver raises.
        Not guaranteed: fairness among those who wait.
        """
        ...

    def renew(self, grants: Sequence[Grant], *, now: int | None = None) -> Sequence[Grant | None]:
        """Extend each claim to now + its lease; answers in the same order, None for a claim that is lost.

        Guarantees
        ----------
        RENEW-1   Matches the nonce, nothing else: a lapsed claim that nobody replaced is renewed.
        RENEW-2   A replaced, abandoned, in-doubt, resolved or forgotten claim: None, and nothing changes.
        RENEW-3   A claim that its own nonce has committed: the grant, and nothing changes.

        Raises: what the driver raises; then none, some or all of the claims were renewed.
        """
        ...

    def commit(
        self,
        grant: Grant,
        *,
        result: Payload,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        then: ClaimRequest | None = None,
        now: int | None = None,
    ) -> Granted | None:
        """Store the result and the committed mark, the run's progress and the next claim, in one atomic write.

        Returns the grant of `then`, or None: no `then`, or its key was not free (ask with `claim` to hear why).

        Guarantees
        ----------
        COMMIT-1  Matches the nonce, nothing else: a lapsed claim that nobody replaced is committed.
        COMMIT-2  Replaced, abandoned, in doubt, resolved or forgotten: `ClaimLost`, and nothing changes: not the result,
                  not the progress, not the new holder's claim, and `then` is not claimed.
        COMMIT-3  Repeated by the same nonce: a success that changes neither record nor progress; `then` is answered.
        COMMIT-4  Result and progress land together or not at all, except that a lower step leaves the progress alone.
        COMMIT-5  `then` is claimed in the same operation by the rules of `claim`. If it is not free, or its fingerprint
                  differs, the commit lands alone.
        COMMIT-6  With `retain`, the record counts as absent from now + retain on (RETAIN-1).

        Raises: `ClaimLost`; what the driver raises.
        """
        ...

    def transact(
        self,
        grant: Grant,
        effect: Callable[[Any], Payload],
        *,
        retain: int | None = None,
        progress: StoredProgress | None = None,
        now: int | None = None,
    ) -> Payload:
        """Call ``effect(tx)`` with the store's own transaction and commit what it wrote together with the mark.

        Returns the payload that was committed.

        Guarantees
        ----------
        TRANSACT-1  All that `effect` wrote through `tx`, the result and the progress land together, or none of it does.
        TRANSACT-2  `effect` raised: its exception is passed on, nothing was written, the claim stands.
        TRANSACT-3  The claim was lost: `ClaimLost`, and nothing that `effect` wrote remains.
        TRANSACT-4  Repeated by the same nonce after a commit: the effect is not called again, and the stored payload is
                    returned.

        Raises: `ClaimLost`; what `effect` raises; what the driver raises.
        Not guaranteed: that `effect` is called once. A retried transaction calls it again.
        """
        ...

    def abandon(self, grant: Grant, *, error: str | None, in_doubt: bool, now: int | None = None) -> bool:
        """Give the claim back; `in_doubt` when its effect may have happened. False: it is no longer ours.

        Guarantees
        ----------
        ABANDON-1  Matches the nonce, nothing else. Never deletes: the token survives.
        ABANDON-2  Replaced, committed, resolved or forgotten: False, and nothing changes.
        ABANDON-3  Repeated by the same nonce: True, and nothing changes.
        ABANDON-4  `error` is kept for those who come later (`Held.error`, `TookOver.error`, the record).

        Raises: what the driver raises.
        """
        ...

    def load(self, run_id: str) -> StoredProgress | None:
        """The run's progress, None for a run that is not known.

        PROGRESS-4  Strongly consistent: what any client saved is seen at once.
        """
        ...

    def save(self, progress: StoredProgress, *, now: int | None = None) -> StoredProgress:
        """Save a run's progress; returns what is stored now. `progress.incarnation` is ignored.

        Guarantees
        ----------
        PROGRESS-1  A lower step than the stored one changes nothing.
        PROGRESS-2  An equal step replaces the state; a higher one replaces both.
        PROGRESS-3  Step and state always belong together.
        """
        ...

    def incarnate(self, run_id: str, *, now: int | None = None) -> int:
        """Draw the run's next incarnation number, in one atomic write: last + 1, or the store's time when there is none.

        INCARNATION-1  No two calls get the same number, and numbers of a run only grow, also across `delete_run`.
        INCARNATION-2  Step and state are left alone.
        """
        ...

    def delete_run(self, run_id: str) -> bool:
        """Remove the run's progress; False when there was none.

        PROGRESS-5  The run counts as new afterwards; its records stay.
        """
        ...

    def read(self, keys: Sequence[str], *, now: int | None = None) -> Sequence[StoredRecord | None]:
        """The records of these keys.

        READ-1  In order, None where absent or past retention; any number of keys, also one twice. Strongly consistent.
        """
        ...

    def scan(
        self,
        *,
        run_id: str | None = None,
        state: RecordState | None = None,
        prefix: str = "",
        cursor: str | None = None,
        limit: int = 100,
        now: int | None = None,
    ) -> Page[StoredRecord]:
        """One page of the records that match all filters.

        Guarantees
        ----------
        SCAN-1  Each record that matched throughout the listing is seen exactly once.
        SCAN-2  `state` is the state by now (`rules.state_at`): an expired claim is `in_doubt`, not `claimed`. Records past
                retention are not listed.
        SCAN-3  Looking changes nothing. A page holds at most `limit` records, and may hold fewer before the last.

        Not guaranteed: order; on stores with eventually consistent indexes, the newest writes.
        """
        ...

    def scan_runs(self, *, cursor: str | None = None, limit: int = 100) -> Page[StoredProgress]:
        """One page of the runs.

        SCAN-4  Each run with progress or an incarnation is seen exactly once; pages as in `scan`.
        """
        ...

    def resolve(
        self,
        seen: StoredRecord,
        *,
        nonce: str,
        result: Payload | None,
        retain: int | None = None,
        now: int | None = None,
    ) -> bool:
        """Settle a record that is in doubt: commit `result`, or with None give it back for another attempt.

        RESOLVE-1  Acts only if nonce and state (by now) are still those of `seen`; else False, and nothing changes.
        RESOLVE-2  The record takes the new `nonce`, so that its former holder, should it wake, has lost its claim. Token,
                   attempt and fingerprint stay.
        RESOLVE-3  Repeated with the same new nonce: True, and nothing changes.
        """
        ...

    def delete(self, seen: StoredRecord, *, now: int | None = None) -> bool:
        """Remove a record and its chunks; False when nothing was removed.

        FORGET-1  Acts only if nonce and state (by now) are still those of `seen`.
        """
        ...

    def place(self, records: Sequence[StoredRecord], *, now: int | None = None) -> Sequence[StoredRecord]:
        """Put records where their keys are absent, as they stood in another store; what is stored now, in the same order.

        None of them is `claimed`: a lease means nothing to another store's clock. Their keys differ.

        Guarantees
        ----------
        PLACE-1   An absent key gets the record as it is given: token, attempt, nonce, incarnation, fingerprint, error, result,
                  the end of its retention and its times. Verbs then treat it as one of their own.
        PLACE-2   A key that has a record keeps it, whatever it is; the answer shows it. One past retention counts as absent,
                  unless its token is as high as the given one or higher: tokens never fall.

        Raises: what the driver raises; then none, some or all of the records were placed.
        """
        ...

    def place_run(self, run: StoredProgress) -> StoredProgress:
        """Put a run where it is not known, as it stood in another store; what is stored now.

        PLACE-3   An unknown run gets step, state, incarnation and time as they are given; a known one is left alone.
        """
        ...

    def put_chunks(self, blob: str, chunks: Sequence[bytes], *, now: int | None = None) -> None:
        """Write the chunks of a payload under a fresh id, before anything points to them.

        CHUNK-1  Durable on return, and the same when written again.

        Inside `transact`, on the same thread, the chunks belong to the transaction where the store's own does so.
        """
        ...

    def get_chunks(self, blob: str) -> Sequence[bytes]:
        """The chunks of a payload.

        CHUNK-2  In order; those that are missing are left out (the shared code finds that out).
        """
        ...

    def sweep(self, *, limit: int = 500, now: int | None = None) -> Swept:
        """Remove up to `limit` records past retention, and orphaned chunks. Call until not `more`.

        SWEEP-1  Only records past retention are removed: never a claim, never a record in doubt or given back.
        SWEEP-2  Chunks that no record and no run points to are removed a day after they were written, not before.
        """
        ...

    def time(self) -> int:
        """The store's clock, microseconds since the epoch (to its own resolution)."""
        ...

    def setup(self) -> None:
        """Create what is missing and migrate what is old.

        SETUP-1  Any number of processes may call it at once, on an empty store and on one in use, which keeps its contents.
        """
        ...

    def check(self) -> Sequence[Finding]:
        """Look at rights, schema and settings, for `durastore doctor`. Changes nothing, and raises what the driver does."""
        ...

    def classify(self, error: Exception) -> DurastoreError | None:
        """What a driver's exception means: `StoreUnavailable` (the call is tried again until its deadline), `SchemaError`,
        `ConfigError` or `PayloadError` (final); None for what is not the store's (passed on as it is).

        The message is one line and holds no password.
        """
        ...

    def forked(self) -> None:
        """Called in a forked child: drop connections and locks of the parent without closing them."""
        ...

    def close(self) -> None:
        """Close all connections, of all threads. A closed backend is not used again."""
        ...
