"""How many round trips a verb takes: on a network of 1 ms, that is what it costs."""

from __future__ import annotations

import durastore
from durastore.conformance.proxy import Proxy
from durastore.contract import Committed, Held

from .requests import RESULT, granted, progress, request

WARM = 3
"""Calls after which a connection is there and statements are prepared."""


def _warm(store: durastore.Store) -> None:
    for number in range(WARM):
        grant = granted(store.backend.claim(request(f"warm-{number}")))
        then = granted(store.backend.commit(grant, result=RESULT, progress=progress(0), then=request(f"next-{number}")))
        store.backend.commit(then, result=RESULT)


def test_hot_path(watched: durastore.Store, proxy: Proxy) -> None:
    """A claim that is granted, a commit alone and a commit with progress and next claim: one round trip each."""
    _warm(watched)
    backend = watched.backend
    with proxy.counted() as count:
        grant = granted(backend.claim(request("a")))
        assert count() == 1
        grant = granted(backend.commit(grant, result=RESULT, progress=progress(1), then=request("b")))
        assert count() == 2
        backend.commit(grant, result=RESULT)
        assert count() == 3


def test_looking(watched: durastore.Store, proxy: Proxy) -> None:
    """The answers "committed" and "held" take one round trip, and so do loading and saving progress."""
    _warm(watched)
    backend = watched.backend
    granted(backend.claim(request("held")))
    backend.save(progress(1))
    backend.load("run")
    with proxy.counted() as count:
        assert isinstance(backend.claim(request("warm-0")), Committed)
        assert count() == 1
        assert isinstance(backend.claim(request("held")), Held)
        assert count() == 2
        backend.save(progress(2))
        assert count() == 3
        assert backend.load("run") is not None
        assert count() == 4


def test_takeover(watched: durastore.Store, proxy: Proxy, kind: str) -> None:
    """One statement on PostgreSQL; on MySQL a look, the row's lock with the time, and the write with its commit."""
    _warm(watched)
    granted(watched.backend.claim(request("lapsed", lease=0)))
    with proxy.counted() as count:
        granted(watched.backend.claim(request("lapsed")))
        assert count() == {"postgresql": 1, "mysql": 3}[kind]


def test_run_once(watched: durastore.Store, proxy: Proxy) -> None:
    """An executed step takes two round trips, a replayed one takes one."""
    ckpt = watched.checkpoint("run")
    for number in range(WARM):
        ckpt.run_once(f"warm-{number}", lambda: 1)
    with proxy.counted() as count:
        assert ckpt.run_once("key", lambda: 1).status == "executed"
        assert count() == 2
        assert ckpt.run_once("key", lambda: 1).status == "skipped"
        assert count() == 3


def test_run_agent(watched: durastore.Store, proxy: Proxy) -> None:
    """A step of a sequential run takes one round trip, its progress included."""
    durastore.run_agent(range(10), watched.checkpoint("warm"), lambda item: item)
    with proxy.counted() as few:
        durastore.run_agent(range(10), watched.checkpoint("few"), lambda item: item)
        first = few()
    with proxy.counted() as more:
        durastore.run_agent(range(30), watched.checkpoint("more"), lambda item: item)
        assert more() - first == 20
