"""Telemetry: what programs that use OpenTelemetry, or log with fields, learn of a store; and that it can do no harm."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import durastore
import durastore.telemetry
from durastore import Found, InDoubt, Unknown
from durastore.telemetry import Telemetry
from tests.unit.virtual import Scripted, VirtualClock, virtual


class Watched:
    """A store in virtual time whose telemetry is kept in memory."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        self.store, self.backend, self.clock = virtual()
        self.reader = InMemoryMetricReader()
        self.exporter = exporter or InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(
            MeterProvider([self.reader]).get_meter("durastore"), self.tracers.get_tracer("durastore")
        )
        self.store.telemetry = self.telemetry

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def value(self, name: str, **attributes: str) -> Any:
        found = [
            point
            for point in self.metrics().get(name, [])
            if attributes.items() <= {key.rpartition(".")[2]: value for key, value in point.attributes.items()}.items()
        ]
        assert len(found) <= 1, found
        return found[0].value if found else None

    def spans(self) -> list[ReadableSpan]:
        assert self.telemetry.flush(10)
        assert isinstance(self.exporter, InMemorySpanExporter)
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture(autouse=True)
def _warned_not_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durastore.telemetry, "_warned", False)


def vanish(store: durastore.Store, key: str = "k", lease: float = 10.0) -> None:
    """Claim a key as somebody who is never seen again."""
    backend = store.backend
    asked = durastore.contract.ClaimRequest(
        key, "run", "ghost", "n", int(lease * 1e6), takeover=True, fingerprint=None, incarnation=0
    )
    assert isinstance(backend.claim(asked, now=store.clock.now()), durastore.contract.Granted)


def test_counts(watched: Watched) -> None:
    """The metrics are the numbers of `Store.stats`."""
    ckpt = watched.store.checkpoint("run")
    ckpt.run_once("a", lambda: 1)
    ckpt.run_once("a", lambda: 1)
    ckpt.run_once("a", lambda: 1)
    vanish(watched.store, "b")
    watched.clock.sleep(11)
    ckpt.run_once("b", lambda: 2, in_doubt=lambda _claim: Found(7))
    stats = watched.store.stats
    assert (stats.executed, stats.skipped, stats.recovered, stats.taken_over) == (1, 2, 1, 1)
    for status in ("executed", "skipped", "recovered"):
        assert watched.value("durastore.outcomes", status=status) == getattr(stats, status)
    assert watched.value("durastore.takeovers") == 1
    assert watched.value("durastore.claims.lost") is None


def test_replayed_steps_are_counted(watched: Watched) -> None:
    """Also those that a resume skips in batches."""
    ckpt = watched.store.checkpoint("run")
    durastore.run_agent(list(range(50)), ckpt, str)
    ckpt.reset()
    durastore.run_agent(list(range(50)), ckpt, str)
    assert watched.value("durastore.outcomes", status="skipped") == watched.store.stats.skipped == 50


def test_lost_claims(watched: Watched) -> None:
    """A claim that somebody took over while the effect ran."""
    ckpt = watched.store.checkpoint("run", lease=10)

    def slow() -> None:
        watched.clock.sleep(11)
        vanish(watched.store)

    with pytest.raises(durastore.ClaimLost):
        ckpt.run_once("k", slow)
    assert watched.value("durastore.claims.lost") == watched.store.stats.lost == 1
    [span] = watched.spans()
    assert span.attributes["error.type"] == "ClaimLost"
    assert span.status.status_code is StatusCode.ERROR


def halted(ckpt: durastore.Checkpoint) -> None:
    ckpt.run_once("k", lambda: 1, in_doubt="halt")


def unknown(ckpt: durastore.Checkpoint) -> None:
    ckpt.run_once("k", lambda: 1, in_doubt=lambda _claim: Unknown())


@pytest.mark.parametrize("call", [halted, unknown])
def test_in_doubt_keys(watched: Watched, call: Callable[[durastore.Checkpoint], None]) -> None:
    """Each call that stops at a key in doubt counts once, under every policy."""
    vanish(watched.store)
    watched.clock.sleep(11)
    ckpt = watched.store.checkpoint("run")
    for times in (1, 2):
        with pytest.raises(InDoubt):
            call(ckpt)
        assert watched.value("durastore.in_doubt") == watched.store.stats.in_doubt == ckpt.stats.in_doubt == times


def test_an_effect_that_raises_leaves_its_key_in_doubt(watched: Watched) -> None:
    """Unless in_doubt='rerun' says that it may simply run again."""
    ckpt = watched.store.checkpoint("run")
    for policy, count in (("rerun", 0), ("halt", 1)):
        with pytest.raises(ZeroDivisionError):
            ckpt.run_once(policy, lambda: 1 / 0, in_doubt=policy)
        assert watched.store.stats.in_doubt == count


def test_calls_of_the_store(watched: Watched) -> None:
    """Count and duration by verb, with what went wrong."""
    ckpt = watched.store.checkpoint("run")

    def took(verb: str) -> None:
        watched.clock.sleep({"claim": 0.25, "commit": 0.75}.get(verb, 0.0))

    watched.backend.before = took
    ckpt.run_once("k", lambda: 1)
    calls = watched.store.stats.calls
    assert (calls["claim"].count, calls["claim"].errors, calls["claim"].seconds) == (1, 0, 0.25)
    assert (calls["commit"].count, calls["commit"].longest) == (1, 0.75)
    [point] = [
        point
        for point in watched.metrics()["db.client.operation.duration"]
        if point.attributes["db.operation.name"] == "commit"
    ]
    assert (point.count, point.sum, tuple(point.explicit_bounds)) == (1, 0.75, durastore.telemetry.BUCKETS)
    assert point.attributes == {"db.system.name": "memory", "db.operation.name": "commit"}


def test_calls_that_fail(watched: Watched) -> None:
    """A store out of reach: one call with its retries, its error, and one line in the log when it goes on for a second."""
    watched.store.deadlines["claim"] = 5.0

    def fail(verb: str) -> None:
        if verb == "claim":
            raise ConnectionError("no route")

    watched.backend.before = fail
    with pytest.raises(durastore.StoreUnavailable):
        watched.store.checkpoint("run").run_once("k", lambda: 1)
    calls = watched.store.stats.calls["claim"]
    assert (calls.count, calls.errors) == (1, 1)
    assert calls.seconds > 1
    [point] = watched.metrics()["db.client.operation.duration"]
    assert point.attributes["error.type"] == "StoreUnavailable"


def test_renewals_are_calls_too(watched: Watched) -> None:
    """The keeper's renewals, which are no call of a checkpoint."""
    with watched.store.checkpoint("run", lease=9).claim("k"):
        watched.clock.sleep(4)
        watched.store.keeper.tick()
    assert watched.store.stats.calls["renew"].count == 1


def test_leases(watched: Watched) -> None:
    """How many claims are held, and how old the oldest lease is: since its grant, then since its renewal."""
    assert watched.store.leases() == (0, 0.0)
    with watched.store.checkpoint("run", lease=9).claim("k"):
        watched.clock.sleep(4)
        assert watched.store.leases() == (1, 4.0)
        assert watched.value("durastore.claims.held") == 1
        assert watched.value("durastore.lease.age") == 4.0
        watched.store.keeper.tick()
        watched.clock.sleep(1)
        assert watched.store.leases() == (1, 1.0)
    assert watched.store.leases() == (0, 0.0)
    assert watched.value("durastore.claims.held") == 0


def test_leases_of_several_stores_are_one_number(watched: Watched) -> None:
    """Two stores of a kind bear the same attributes: together, not one hiding the other."""
    other, _, clock = virtual()
    other.telemetry = watched.telemetry
    with watched.store.checkpoint("run").claim("a"), other.checkpoint("run").claim("b"):
        clock.sleep(3)
        assert watched.value("durastore.claims.held") == 2
        assert watched.value("durastore.lease.age") == 3.0


def test_spans(watched: Watched) -> None:
    """A run, its steps, and what an effect does: one tree. Replayed steps have no span, they are counted."""
    mine = watched.tracers.get_tracer("mine")

    def effect(item: int) -> int:
        with mine.start_as_current_span("call the model"):
            return item

    ckpt = watched.store.checkpoint("run")
    durastore.run_agent([1, 2], ckpt, effect)
    spans = watched.spans()
    assert [span.name for span in spans if span.name != "call the model"] == ["durastore.step"] * 2 + ["durastore.run"]
    steps = [span for span in spans if span.name == "durastore.step"]
    [run] = [span for span in spans if span.name == "durastore.run"]
    inner = [span for span in spans if span.name == "call the model"]
    assert {step.parent.span_id for step in steps} == {run.context.span_id}
    assert [span.parent.span_id for span in inner] == [step.context.span_id for step in steps]
    token = steps[0].attributes["durastore.token"]
    assert steps[0].attributes == {
        "durastore.key": "run:step:0",
        "durastore.run_id": "run",
        "durastore.attempt": 1,
        "durastore.token": token,
    }
    assert run.attributes == {"durastore.run_id": "run"}
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("surface", ["sync", "async"])
def test_spans_side_by_side(watched: Watched, concurrency: int, surface: str) -> None:
    """Steps in threads or tasks are children of their run, and their effects' spans of them."""
    mine = watched.tracers.get_tracer("mine")

    def effect(item: int) -> int:
        with mine.start_as_current_span(str(item)):
            return item

    async def awaited(item: int) -> int:
        return effect(item)

    if surface == "sync":
        durastore.run_agent(range(8), watched.store.checkpoint("run"), effect, concurrency=concurrency)
    else:

        async def run() -> None:
            async with durastore.aio.Store(watched.store) as store:
                ckpt = await store.checkpoint("run")
                await durastore.aio.run_agent(range(8), ckpt, awaited, concurrency=concurrency)

        asyncio.run(run())
    spans = {span.context.span_id: span for span in watched.spans()}
    effects = [span for span in spans.values() if span.name.isdigit()]
    assert sorted(int(span.name) for span in effects) == list(range(8))
    parents = [spans[span.parent.span_id] for span in effects]
    assert {parent.name for parent in parents} == {"durastore.step"}
    assert len({parent.context.span_id for parent in parents}) == 8
    assert {spans[parent.parent.span_id].name for parent in parents} == {"durastore.run"}


def test_a_claim_that_nobody_holds_is_no_cycle(watched: Watched) -> None:
    """What an interrupt tore out of its call is let go at once, and its lease ends: not when garbage is collected."""
    gc.disable()
    try:
        with watched.store.checkpoint("run").claim("k") as claim:
            live = weakref.ref(claim.live)
        del claim
        assert live() is None
    finally:
        gc.enable()


def test_a_probe_and_its_effect_are_one_span(watched: Watched) -> None:
    """One attempt at a key is one span, from its probe to its commit."""
    vanish(watched.store)
    watched.clock.sleep(11)
    seen = []

    def note(_claim: Any = None) -> durastore.NotFound:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return durastore.NotFound()

    watched.store.checkpoint("run").run_once("k", lambda: note() and None, in_doubt=note)
    [span] = watched.spans()
    assert seen == [span.context.span_id] * 2
    assert span.attributes["durastore.attempt"] == 2


@pytest.mark.parametrize("how", ["run_once", "transact", "claim"])
def test_an_effect_that_raises_ends_its_span(watched: Watched, how: str) -> None:
    """With the type of the error; its text, which may hold a secret, stays out."""
    ckpt = watched.store.checkpoint("run")

    def fail(_tx: Any = None) -> None:
        raise ValueError("password=hunter2")

    with pytest.raises(ValueError, match="hunter2"):
        if how == "claim":
            with ckpt.claim("k"):
                fail()
        else:
            getattr(ckpt, how)("k", fail)
    [span] = watched.spans()
    assert span.attributes["error.type"] == "ValueError"
    assert "hunter2" not in span.to_json()


@pytest.mark.parametrize("how", ["run_once", "transact", "claim"])
def test_a_result_is_in_no_span(watched: Watched, how: str) -> None:
    """Payloads stay out of telemetry."""
    ckpt = watched.store.checkpoint("run")
    if how == "claim":
        with ckpt.claim("k") as claim:
            claim.commit("hunter2")
    else:
        getattr(ckpt, how)("k", lambda _tx=None: "hunter2")
    [span] = watched.spans()
    assert span.status.status_code is StatusCode.UNSET
    assert "hunter2" not in span.to_json()


class Hanging(SpanExporter):
    """An exporter that waits until it is let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.exported = 0

    def export(self, spans: Any) -> SpanExportResult:
        assert self.free.wait(60)
        self.exported += len(spans)
        return SpanExportResult.SUCCESS


def test_an_exporter_that_hangs_holds_up_nothing() -> None:
    """The run ends while its first span still hangs, and more spans than can wait are dropped."""
    exporter = Hanging()
    watched = Watched(exporter)
    steps = durastore.telemetry.SPANS_MAX + 50
    try:
        summary = durastore.run_agent(range(steps), watched.store.checkpoint("run"), str)
        assert summary.executed == steps
        assert exporter.exported == 0
        assert not watched.telemetry.flush(0.0)
    finally:
        exporter.free.set()
    assert watched.telemetry.flush(60)
    assert durastore.telemetry.SPANS_MAX <= exporter.exported <= durastore.telemetry.SPANS_MAX + 1


class Broken:
    """A tracer and a meter whose every use raises."""

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_") and not self._at_once:
            return lambda *_, **__: self
        raise RuntimeError(f"no {name} today")


def test_an_sdk_that_raises_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Every use of it fails: the run is as without it, and one warning says so."""
    store, _, _ = virtual()
    store.telemetry = Telemetry(Broken(), Broken())  # type: ignore[arg-type]
    ckpt = store.checkpoint("run")
    with caplog.at_level(logging.WARNING, "durastore"):
        assert durastore.run_agent([1, 2, 3], ckpt, str).executed == 3
        assert ckpt.run_once("k", lambda: 5) == (5, "executed")
        assert ckpt.transact("t", lambda _tx: 6).value == 6
    [record] = caplog.records
    assert "OpenTelemetry failed" in record.getMessage()
    assert store.stats.executed == 5


def test_nothing_is_imported_for_programs_without_it() -> None:
    """OpenTelemetry is installed here, and not imported until the program does."""
    code = """
import sys, durastore
store = durastore.open("memory://")
assert store.checkpoint("r").run_once("k", lambda: 1).value == 1
assert store.telemetry is None and not any(name.startswith("opentelemetry") for name in sys.modules)
from opentelemetry import trace
assert store.checkpoint("r").run_once("l", lambda: 1).value == 1
assert store.telemetry is not None
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_spans_reach_the_exporter_before_the_process_ends() -> None:
    """With the global providers, as an application sets them up."""
    code = """
import durastore
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
durastore.run_agent([1, 2], durastore.open("memory://").checkpoint("r"), str)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"durastore.step"') == 2
    assert done.stdout.count('"durastore.run"') == 1


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "durastore"):
        yield caplog


def test_a_takeover_is_logged_with_fields(watched: Watched, log: pytest.LogCaptureFixture) -> None:
    """Who held the key, and what this claim is, as attributes of the record."""
    vanish(watched.store)
    watched.clock.sleep(11)
    watched.store.checkpoint("run").run_once("k", lambda: "hunter2")
    [record] = log.records
    assert record.getMessage() == "took over key 'k' from 'ghost', who vanished"
    fields = {name: value for name, value in vars(record).items() if name.startswith("durastore.")}
    assert fields.pop("durastore.token") > 1
    assert fields == {"durastore.key": "k", "durastore.run_id": "run", "durastore.attempt": 2}


def test_a_store_that_does_not_answer_is_logged_once(log: pytest.LogCaptureFixture) -> None:
    """After a second, while the call still tries again; without the password of its URL."""
    clock = VirtualClock()
    store = durastore.Store(Scripted(), clock=clock, url="postgresql://me@db/x")
    down_until = clock.monotonic() + 4

    def fail(verb: str) -> None:
        if verb == "commit" and clock.monotonic() < down_until:
            raise ConnectionError("no route")

    store.backend.before = fail
    assert store.checkpoint("run").run_once("k", lambda: 1).status == "executed"
    [record] = log.records
    assert record.levelname == "WARNING"
    assert vars(record)["durastore.verb"] == "commit"
    assert "postgresql://me@db/x does not take a commit" in record.getMessage()


def test_a_claim_found_lost_is_logged(watched: Watched, log: pytest.LogCaptureFixture) -> None:
    """By the keeper, while the effect still runs."""
    with pytest.raises(durastore.ClaimLost), watched.store.checkpoint("run", lease=10).claim("k") as claim:
        watched.clock.sleep(11)
        vanish(watched.store)
        watched.store.keeper.tick()
        assert claim.live.lost.is_set()
        claim.commit(1)
    [record] = log.records
    assert record.getMessage().startswith("lost the claim of key 'k'")
    assert vars(record)["durastore.key"] == "k"
