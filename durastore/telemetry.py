"""What a store tells: OpenTelemetry metrics and spans, and log records with fields.

Metrics and spans go through OpenTelemetry's API package alone (extra ``otel``), from the moment that the program itself has
imported it, as whoever sets up an SDK does; until then nothing is imported and nothing is paid. Names, units and ``error.type``
follow the semantic conventions (https://opentelemetry.io/docs/specs/semconv/database/ and …/general/naming/).

=================================  =============  ==========================================================================
metric                             unit           what
=================================  =============  ==========================================================================
``durastore.outcomes``             {outcome}      how calls ended, by ``durastore.status``: executed, skipped, awaited, recovered
``durastore.takeovers``            {claim}        grants over a claim whose holder was gone or raised
``durastore.claims.lost``          {claim}        claims of ours that somebody else has by now
``durastore.in_doubt``             {key}          keys left in doubt, or stopped at because they were
``db.client.operation.duration``   s              a call of the store with its retries, by ``db.operation.name``
``durastore.claims.held``          {claim}        live claims of this process, now
``durastore.lease.age``            s              since the oldest of their leases was granted or renewed, now
=================================  =============  ==========================================================================

Spans: ``durastore.run`` around `run_agent`, and ``durastore.step`` from the moment an effect (or probe) begins until its claim
ends in a commit or is given back; spans of the effect's own are its children. They bear the key, run id, attempt and token. No
payload and no error text of the store's is in a span, a metric or a log record, and no URL with its password.

Whatever an SDK or exporter raises is dropped, with one warning for the process. Spans are ended in a thread of their own, behind
a bounded queue: an exporter that hangs holds up nothing but that thread, and spans that find the queue full are dropped.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.trace import Span, Tracer

    from durastore.keeper import Leases
    from durastore.store import Store

__all__ = ["Telemetry", "Trace", "telemetry", "tell"]

SPANS_MAX = 2048
"""Ended spans that wait for the thread that exports them, as many as OpenTelemetry's batch processor keeps."""
DRAIN_SECONDS = 1.0
"""How long the end of the process waits for them."""
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
"""Seconds; the convention's for ``db.client.operation.duration``."""
SYSTEMS = {"dynamodb": "aws.dynamodb", "firestore": "gcp.firestore"}
"""``db.system.name`` by scheme, where it is not the scheme."""
COUNTED = {
    "taken_over": ("durastore.takeovers", "{claim}", "Grants over a claim whose holder was gone or raised."),
    "lost": ("durastore.claims.lost", "{claim}", "Claims that somebody else has by now."),
    "in_doubt": ("durastore.in_doubt", "{key}", "Keys left in doubt, or stopped at because they were."),
}


P = ParamSpec("P")
R = TypeVar("R")


def _harmless(function: Callable[P, R]) -> Callable[P, R | None]:
    """Telemetry that fails is no failure of the run: it is said once, and passed over."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001  whatever an SDK raises
            _warn(exc)
            return None

    return guarded


class Telemetry:
    """The instruments, on a meter and a tracer. No method raises, and none waits for an exporter."""

    def __init__(self, meter: Meter, tracer: Tracer) -> None:
        self._tracer = tracer
        self._ending = _Ending()
        self._stores: weakref.WeakSet[Store] = weakref.WeakSet()
        self._outcomes = meter.create_counter("durastore.outcomes", "{outcome}", "How calls ended.")
        self._counters = {name: meter.create_counter(*about) for name, about in COUNTED.items()}
        self._durations = meter.create_histogram(
            "db.client.operation.duration",
            "s",
            "A call of the store, with its retries.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        meter.create_observable_up_down_counter(
            "durastore.claims.held", [self._held], "{claim}", "Live claims of this process."
        )
        meter.create_observable_gauge(
            "durastore.lease.age", [self._ages], "s", "Since the oldest lease held was granted or renewed."
        )

    def watch(self, store: Store) -> None:
        """Report a store's leases while it lives."""
        self._stores.add(store)

    @_harmless
    def count(self, store: Store, name: str, times: int) -> None:
        """Count an event under its name in `durastore.stats`."""
        counter = self._counters.get(name)
        if counter is None:
            self._outcomes.add(times, {**_about(store), "durastore.status": name})
        else:
            counter.add(times, _about(store))

    @_harmless
    def took(self, store: Store, verb: str, seconds: float, error: BaseException | None) -> None:
        """A call of the store is over."""
        about = {**_about(store), "db.operation.name": verb}
        if error is not None:
            about["error.type"] = type(error).__qualname__
        self._durations.record(seconds, about)

    @contextmanager
    def run(self, run_id: str) -> Iterator[None]:
        """The span of a whole run, around its steps."""
        span = self.begin("durastore.run", {"durastore.run_id": run_id})
        token = self.enter(span)
        try:
            yield
        finally:
            self.leave(token)
            self.end(span, sys.exc_info()[1])

    @_harmless
    def begin(self, name: str, attributes: dict[str, str | int]) -> Span:
        """Start a span."""
        return self._tracer.start_span(name, attributes=attributes)

    @_harmless
    def enter(self, span: Span | None) -> Any:
        """Make a span the current one. Returns what `leave` takes."""
        if span is None:
            return None
        from opentelemetry import context, trace

        return context.attach(trace.set_span_in_context(span))

    @_harmless
    def leave(self, token: Any) -> None:
        """Make the span before it the current one."""
        if token is not None:
            from opentelemetry import context

            context.detach(token)

    @_harmless
    def end(self, span: Span | None, error: BaseException | None) -> None:
        """A span is over, now; with the type of what was raised, if something was."""
        if span is None or not span.is_recording():
            return
        if error is not None:
            from opentelemetry.trace import StatusCode

            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR)
        self._ending.put(span)

    def flush(self, seconds: float = DRAIN_SECONDS) -> bool:
        """Wait until the spans that have ended so far were handed to their processors, for some seconds at most."""
        return self._ending.drain(seconds)

    def _held(self, _options: CallbackOptions) -> Iterable[Observation]:
        return self._observe(lambda leases: leases.held, sum)

    def _ages(self, _options: CallbackOptions) -> Iterable[Observation]:
        return self._observe(lambda leases: leases.oldest, max)

    def _observe(
        self, value: Callable[[Leases], float], together: Callable[[list[float]], float]
    ) -> Iterable[Observation]:
        """One observation for all stores of a kind: two with the same attributes would hide each other."""
        from opentelemetry.metrics import Observation

        found: dict[str, list[float]] = {}
        for store in list(self._stores):
            found.setdefault(store.backend.scheme, []).append(value(store.leases()))
        return [Observation(together(values), {"db.system.name": _system(scheme)}) for scheme, values in found.items()]


def _system(scheme: str) -> str:
    return SYSTEMS.get(scheme, scheme)


def _about(store: Store) -> dict[str, str]:
    return {"db.system.name": _system(store.backend.scheme)}


class Trace:
    """One attempt's span: entered around its effect, ended with its claim."""

    __slots__ = ("_fields", "_span", "_telemetry", "_token")

    def __init__(self, owner: Telemetry, fields: dict[str, str | int]) -> None:
        self._telemetry = owner
        self._fields = fields  # not the claim: a cycle would keep one alive that nobody holds any more
        self._span: Span | None = None
        self._token: Any = None

    def __enter__(self) -> None:
        if self._span is None:  # else a probe's or an earlier try's
            about = {f"durastore.{name}": value for name, value in self._fields.items()}
            self._span = self._telemetry.begin("durastore.step", about)
        self._token = self._telemetry.enter(self._span)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        self._telemetry.leave(token)

    def end(self, error: BaseException | None) -> None:
        """The claim was committed, given back or lost."""
        span, self._span = self._span, None
        self._telemetry.end(span, error)


class _Ending:
    """The thread in which spans are ended, as of the moment when they were put here."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._queue: queue.Queue[tuple[Span, int] | threading.Event] = queue.Queue(SPANS_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, span: Span) -> None:
        """End a span, unless too many wait."""
        if self._thread is None:
            self._start()
        with suppress(queue.Full):
            self._queue.put_nowait((span, time.time_ns()))

    def drain(self, seconds: float) -> bool:
        """Wait until what is queued was ended."""
        if self._thread is None:
            return True
        reached = threading.Event()
        with suppress(queue.Full):
            self._queue.put(reached, timeout=seconds)
            return reached.wait(seconds)
        return False

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="durastore-spans", daemon=True)
                self._thread.start()
                atexit.register(self.drain, DRAIN_SECONDS)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            _end(*item)


@_harmless
def _end(span: Span, ended: int) -> None:
    span.end(ended)


_warned = False


def _warn(error: Exception) -> None:
    global _warned  # noqa: PLW0603
    if not _warned:
        _warned = True
        tell("warning", "OpenTelemetry failed, and the run goes on: %s: %s", type(error).__name__, error)


@_harmless
def _instruments() -> Telemetry:
    from opentelemetry import metrics, trace

    return Telemetry(metrics.get_meter("durastore"), trace.get_tracer("durastore"))


_telemetry: Telemetry | None = None


def telemetry() -> Telemetry | None:
    """The process's instruments on OpenTelemetry's global providers; None while the program does not use OpenTelemetry."""
    global _telemetry  # noqa: PLW0603
    if _telemetry is None and "opentelemetry.trace" in sys.modules:
        _telemetry = _instruments()
    return _telemetry


def tell(level: Literal["info", "warning"], message: str, *arguments: object, **fields: object) -> None:
    """Log to ``durastore``, with `fields` as ``durastore.…`` attributes of the record, for loggers that write fields."""
    import logging

    extra = {f"durastore.{name}": value for name, value in fields.items()}
    getattr(logging.getLogger("durastore"), level)(message, *arguments, extra=extra)
