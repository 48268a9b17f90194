"""The store as users hold it: one concrete type over any backend. Retries, payloads, housekeeping and listings live here."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from durastore import keys, payload, rules, urls
from durastore.clock import MICROSECONDS, Clock
from durastore.codec import Codec, EncryptingCodec, JSONCodec
from durastore.contract import Backend, Finding, Grant, Page, Payload, RecordState, StoredRecord, Swept
from durastore.errors import ConfigError, DurastoreError, InDoubt, StoreUnavailable
from durastore.keeper import Keeper, Leases
from durastore.stats import Stats
from durastore.telemetry import Telemetry, telemetry, tell
from durastore.terms import InDoubtPolicy, Terms
from durastore.views import Progress, Record, progress_view, record_view

if TYPE_CHECKING:
    from types import TracebackType

    from tenacity import RetryCallState

    from durastore.checkpoint import Checkpoint

__all__ = ["Store", "new_nonce", "open"]

T = TypeVar("T")
DEADLINES = {"commit": 60.0, "transact": 60.0}
"""Seconds that a verb is tried again on transient errors. Commit's is the longest: losing one costs a re-run of its effect."""
DEADLINE = 10.0
"""Seconds for every other verb."""
_FIRST_PAUSE = 0.01
"""Seconds, at most, before the second try; later pauses double, up to one second."""
CLOCK_SKEW_MAX = 5.0
"""Seconds between this machine's clock and the store's that `check` lets pass."""
TELL_AFTER = 1.0
"""Seconds of trying again after which it is logged: a conflict with a neighbour is over sooner."""
_MISSING: Any = object()


def open(url: str | None = None, *, codec: Codec | None = None, **options: Any) -> Store:  # noqa: A001  durastore.open
    """Open the store that a URL names, or the environment variable ``DURASTORE_URL``.

    `options` are those of the URL, as keywords. A SQLite file that is missing is created; the cloud stores need `setup` once,
    or ``create=True``. Without `codec`, values are JSON, or encrypted JSON when ``DURASTORE_ENCRYPTION_KEYS`` holds
    comma-separated Fernet keys (the first encrypts).

    Raises `ConfigError` for no URL, an unknown scheme or option, or a missing extra; `StoreUnavailable` and `SchemaError` when
    there is something to set up and it fails.
    """
    target = url or os.environ.get("DURASTORE_URL")
    if not target:
        raise ConfigError("no store: pass a URL to durastore.open(), or set DURASTORE_URL, e.g. to sqlite:///agent.db")
    parsed = urls.parse(target, options)
    store = Store(urls.connect(parsed), codec=codec, url=str(parsed))
    if parsed.create or (parsed.create is None and store.backend.creates_itself):
        try:
            store.setup()
        except BaseException:
            store.close()
            raise
    return store


class Store:
    """Runs, keys and results in one namespace of one store. Thread-safe; safe on both sides of a fork; a context manager."""

    def __init__(
        self, backend: Backend, *, codec: Codec | None = None, clock: Clock | None = None, url: str | None = None
    ) -> None:
        self.backend = backend
        self.url = url or f"{backend.scheme}://"
        """The URL without its password and options, for messages."""
        self.codec: Codec = codec or _default_codec()
        self.clock = clock or Clock()
        self.keeper = Keeper(self._renew, self.clock)
        self.stats = Stats()
        """Counts over all checkpoints of this store, and its calls by verb, since it was opened."""
        self._telemetry: Telemetry | None = None
        self.deadlines: dict[str, float] = dict(DEADLINES)
        """Seconds by verb for which transient errors are tried again."""
        self.owner = _owner()
        _stores.add(self)

    def leases(self) -> Leases:
        """How many claims this process holds, and the age in seconds of their oldest lease."""
        return self.keeper.leases()

    def checkpoint(
        self,
        run_id: str,
        *,
        lease: float = 60.0,
        wait: float = 30.0,
        in_doubt: InDoubtPolicy = "rerun",
        retain: float | None = None,
        max_attempts: int | None = None,
        supersede: bool = False,
        budget: float | None = None,
    ) -> Checkpoint:
        """One run. Times in seconds.

        `lease`: how long a claim outlives its holder; a live holder renews it. `wait`: how long a call waits for another
        holder. `in_doubt`: ``"rerun"``, ``"halt"`` or a probe ``claim -> Found | NotFound | Unknown``. `retain`: how long a
        result is kept, None for ever. `max_attempts`: grants of one key without a commit before `TooManyAttempts`.
        `supersede`: the platform guarantees one live sandbox for each run, so this one takes over the run's claims at once.
        `budget`: how long one effect's claim is renewed at most, so that a hung effect is found too.

        Raises `InvalidKey` for a bad run id, `ConfigError` for a bad option; with `supersede`, what a store call raises.
        """
        from durastore.checkpoint import Checkpoint

        _ = self.telemetry  # the program may have begun to use it
        terms = Terms(lease, wait, in_doubt, retain, max_attempts, budget)
        incarnation = self.call("incarnate", self.backend.incarnate, keys.checked(run_id, "run id")) if supersede else 0
        return Checkpoint(self, keys.checked(run_id, "run id"), terms, incarnation)

    def record(self, key: str) -> Record | None:
        """The record of a key, None when there is none or its retention is over. Looks only."""
        return self._views([self._read(keys.checked(key))])[0]

    def records(
        self, *, run_id: str | None = None, state: RecordState | None = None, prefix: str = ""
    ) -> Iterator[Record]:
        """The records that match all filters, lazily, in no promised order. Looks only.

        Raises `InvalidKey` at once for a run id or a prefix with which no run's id and no key can be or begin.
        """
        wanted = None if run_id is None else keys.checked(run_id, "run id")
        begins = prefix and keys.checked(prefix, "prefix")
        pages = self._pages("scan", self.backend.scan, run_id=wanted, state=state, prefix=begins)
        return (record for page in pages for record in self._views(page.items) if record is not None)

    def runs(self) -> Iterator[Progress]:
        """The runs that saved progress, lazily, in no promised order. Looks only."""
        for page in self._pages("scan_runs", self.backend.scan_runs):
            yield from (progress_view(run, self.unpack) for run in page.items)

    def resolve(self, key: str, *, result: Any = _MISSING, retry: bool = False, force: bool = False) -> Record:
        """Settle a key in doubt: with `result` it counts as done, with ``retry=True`` the next caller runs it again.

        Its former holder has lost its claim, should it wake. Returns the record as it is now. Raises `InDoubt` for a live
        claim or a committed key unless `force`, `ConfigError` for an unknown key or bad arguments, `PayloadError` for a result
        that cannot be encoded.
        """
        if (result is _MISSING) is not retry:
            raise ConfigError("resolve() takes either result=… or retry=True")
        packed = None if retry else self.pack(result)
        nonce = new_nonce()
        while True:
            seen = self._settleable(key, force=force)
            stored = None if packed is None else packed.payload
            if self.call("resolve", self.backend.resolve, seen, nonce=nonce, result=stored):
                return self.record(key) or _unknown(key)

    def _settleable(self, key: str, *, force: bool) -> StoredRecord:
        seen = self._read(keys.checked(key))
        if seen is None:
            _unknown(key)
        state = rules.state_at(seen, self.time())
        if state in ("claimed", "committed") and not force:
            raise InDoubt(
                f"key {key!r} is {state} ({seen.owner!r}, token {seen.token}), not in doubt; "
                f"{'wait for its lease to lapse' if state == 'claimed' else 'it is done'}, or force it"
            )
        return seen

    def forget(self, key: str, *, force: bool = False) -> bool:
        """Remove a key, so that it counts as never seen; False when it was not there.

        Tokens go on growing all the same. Raises `InDoubt` for a live claim unless `force`.
        """
        while True:
            seen = self._read(keys.checked(key))
            if seen is None:
                return False
            self._refuse_live(seen, force=force)
            if self.call("delete", self.backend.delete, seen):
                return True

    def _refuse_live(self, seen: StoredRecord, *, force: bool) -> None:
        if not force and rules.state_at(seen, self.time()) == "claimed":
            raise InDoubt(
                f"key {seen.key!r} is held by {seen.owner!r}, who is alive; wait for its lease to lapse, or force it"
            )

    def forget_run(self, run_id: str, *, force: bool = False) -> int:
        """Remove a run: its keys, then its progress. Returns how many keys. Raises `InDoubt` for a live claim unless `force`."""
        found = [record.key for record in self.records(run_id=keys.checked(run_id, "run id"))]
        removed = sum(self.forget(key, force=force) for key in found)
        self.call("delete_run", self.backend.delete_run, run_id)
        return removed

    def sweep(self) -> Swept:
        """Remove records past retention and orphaned chunks, in small steps that do not block others. Returns the counts."""
        records = chunks = 0
        while True:
            step = self.call("sweep", self.backend.sweep)
            records, chunks = records + step.records, chunks + step.chunks
            if not step.more:
                return Swept(records, chunks, more=False)

    def setup(self) -> None:
        """Create or migrate what the store needs. Any number of processes may do so at once."""
        self.call("setup", self.backend.setup)

    def check(self) -> Sequence[Finding]:
        """What ``durastore doctor`` shows: reach, latency, clock, rights, schema and settings. Changes nothing."""
        began = self.clock.monotonic()
        try:
            stored = self.call("time", self.backend.time)
            took = self.clock.monotonic() - began
            findings = [Finding("reach", ok=True, detail=f"{self.url} answers in {took * 1000:.1f} ms"), _skew(stored)]
            return [*findings, *self.call("check", self.backend.check)]
        except DurastoreError as exc:
            return [Finding("reach", ok=False, detail=str(exc), advice="check the URL, the network and the rights")]

    def close(self) -> None:
        """Stop renewing and close all connections. Claims still held are left to lapse."""
        self.keeper.close()
        self.backend.close()
        _stores.discard(self)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    # What follows is for checkpoints and the command line.

    @property
    def telemetry(self) -> Telemetry | None:
        """OpenTelemetry's instruments, once the program uses it. Whoever opens a store, a run or a claim looks; calls do not."""
        if self._telemetry is None:
            self.telemetry = telemetry()
        return self._telemetry

    @telemetry.setter
    def telemetry(self, chosen: Telemetry | None) -> None:
        self._telemetry = chosen
        if chosen is not None:
            chosen.watch(self)

    def count(self, name: str, times: int = 1) -> None:
        """Count an event, by its name in `Stats`."""
        self.stats.count(name, times)
        if self._telemetry is not None:
            self._telemetry.count(self, name, times)

    def call(self, verb: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a backend's verb; try again on transient errors until its deadline, and wrap what remains.

        Every verb recognises its own earlier success, so that calling again after a lost answer is right.
        """
        if verb not in _TIMELESS:
            kwargs["now"] = self.clock.now()
        began, failed = self.clock.monotonic(), True
        try:
            answer = function(*args, **kwargs)
            failed = False
        except DurastoreError:
            raise
        except Exception as exc:
            error = self.backend.classify(exc)
            if error is None:
                raise
            if not isinstance(error, StoreUnavailable):
                raise error from exc
            answer = self._call_again(verb, lambda: function(*args, **kwargs))
            failed = False
        finally:
            self._took(verb, began, failed=failed)
        return answer

    def _took(self, verb: str, began: float, *, failed: bool) -> None:
        seconds = self.clock.monotonic() - began
        self.stats.took(verb, seconds, failed=failed)
        if self._telemetry is not None:
            self._telemetry.took(self, verb, seconds, sys.exc_info()[1] if failed else None)

    def _call_again(self, verb: str, function: Callable[[], T]) -> T:
        import random

        from tenacity import Retrying, retry_if_exception_type, wait_random_exponential

        limit = self.deadlines.get(verb, DEADLINE)
        gives_up = self.clock.monotonic() + limit

        def once() -> T:
            try:
                return function()
            except DurastoreError:
                raise
            except Exception as exc:
                error = self.backend.classify(exc)
                if error is None:
                    raise
                raise error from exc

        self.clock.sleep(_FIRST_PAUSE * random.random())  # noqa: S311  jitter
        told = False

        def tell_once(state: RetryCallState) -> None:
            nonlocal told
            if not told and self.clock.monotonic() > gives_up - limit + TELL_AFTER:
                told = True
                error = state.outcome and state.outcome.exception()
                text = "%s does not take a %s, trying again for up to %g s: %s"
                tell("warning", text, self.url, verb, limit, error, verb=verb)

        try:
            return Retrying(
                before_sleep=tell_once,
                retry=retry_if_exception_type(StoreUnavailable),
                wait=wait_random_exponential(multiplier=_FIRST_PAUSE, max=1.0),
                stop=lambda state: self.clock.monotonic() + state.upcoming_sleep > gives_up,
                sleep=self.clock.sleep,
                reraise=True,
            )(once)
        except StoreUnavailable as exc:
            raise StoreUnavailable(f"{self.url} did not take a {verb} within {limit:g} s: {exc}") from exc.__cause__

    def pack(self, value: Any) -> payload.Packed:
        """Encode a value and write its chunks, if it needs any. Raises `PayloadError`."""
        packed = payload.pack(value, self.codec, self.backend.limits, new_nonce)
        if packed.payload.blob is not None:
            self.call("put_chunks", self.backend.put_chunks, packed.payload.blob, packed.chunks)
        return packed

    def unpack(self, stored: Payload) -> Any:
        """Decode a value, reading its chunks if it has any. Raises `PayloadError`."""
        return payload.unpack(stored, self.codec, self._fetch)

    def _fetch(self, blob: str) -> Sequence[bytes]:
        return self.call("get_chunks", self.backend.get_chunks, blob)

    def time(self) -> int:
        """The time that decides, in microseconds: the store's, or the clock's override."""
        now = self.clock.now()
        return self.call("time", self.backend.time) if now is None else now

    def _read(self, key: str) -> StoredRecord | None:
        return self.call("read", self.backend.read, [key])[0]

    def _views(self, stored: Sequence[StoredRecord | None]) -> list[Record | None]:
        if not any(stored):
            return [None for _ in stored]
        now = self.time()
        return [None if record is None else record_view(record, now, self.unpack) for record in stored]

    def _pages(self, verb: str, function: Callable[..., Page[T]], **filters: Any) -> Iterator[Page[T]]:
        cursor: str | None = None
        while True:
            page = self.call(verb, function, cursor=cursor, **filters)
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    def _renew(self, grants: Sequence[Grant]) -> Sequence[Grant | None]:
        """One attempt: the keeper decides when to try again. What the driver raises is said in one line, as by `call`."""
        began, failed = self.clock.monotonic(), True
        try:
            renewed = self.backend.renew(grants, now=self.clock.now())
            failed = False
        except Exception as exc:
            error = self.backend.classify(exc)
            if error is None:
                raise
            raise error from exc
        finally:
            self._took("renew", began, failed=failed)
        return renewed

    def _forked(self) -> None:
        self.keeper.forked()
        self.backend.forked()
        self.stats = Stats()
        self.owner = _owner()


_TIMELESS = frozenset(
    {"load", "delete_run", "scan_runs", "place_run", "get_chunks", "time", "setup", "check"},
)
"""Verbs that take no `now`."""


def new_nonce() -> str:
    """A name that nobody else has."""
    return os.urandom(12).hex()


def _owner() -> str:
    """Who we are, for people: host, process, and a random part."""
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "host")
    return f"{host}:{os.getpid()}:{os.urandom(2).hex()}"


def _default_codec() -> Codec:
    keyring = os.environ.get("DURASTORE_ENCRYPTION_KEYS", "")
    found = [key.strip() for key in keyring.split(",") if key.strip()]
    return EncryptingCodec(found) if found else JSONCodec()


def _unknown(key: str) -> NoReturn:
    raise ConfigError(f"there is no key {key!r} in this store and namespace; `durastore claims` lists what there is")


def _skew(stored: int) -> Finding:
    import time

    skew = time.time() - stored / MICROSECONDS
    return Finding(
        "clock",
        ok=abs(skew) <= CLOCK_SKEW_MAX,
        detail=f"this machine is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the store",
        advice="leases go by the store's clock, so nothing breaks; set this machine's clock all the same",
    )


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store._forked()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
