"""Each store with each way to be gone that it has."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import durastore
from durastore import emulators
from durastore._emulators.supervisor import Process
from durastore.conformance.proxy import Proxy
from tests.conftest import shared

from .ways import Way, crowded, cut, killed, locked, read_only, refusing, run

Own = Callable[[str], Any]
NETWORKED = ("postgresql", "mysql", "firestore", "dynamodb")
WAYS = [
    ("sqlite", "locked"),
    *((store, way) for store in NETWORKED for way in ("cut", "throttled")),
    *((store, way) for store in ("postgresql", "mysql") for way in ("killed", "read-only", "crowded")),
]
"""The emulators of Firestore and DynamoDB keep nothing when they are killed, so that for those two a cut line stands for it."""


class Ground(NamedTuple):
    """A store and a way to lose it. `direct` goes round what is disturbed."""

    url: str
    direct: str
    way: Way


@pytest.fixture(scope="module")
def own() -> Iterator[Own]:
    """Servers of these tests' own, for they are going to fall."""
    with ExitStack() as running:

        @cache
        def start(name: str) -> emulators.Server:
            return running.enter_context(emulators.launch(name, Process.of(os.getpid())))

        def get(name: str) -> emulators.Server:
            try:
                return start(name)
            except emulators.EmulatorNotRun as exc:
                pytest.fail(str(exc)) if emulators.required(name) else pytest.skip(f"not run: {exc}")

        yield get


@pytest.fixture(params=WAYS, ids="-".join)
def ground(request: pytest.FixtureRequest, tmp_path: Path, own: Own) -> Iterator[Ground]:
    """An empty store, set up."""
    store, way = request.param
    with ExitStack() as stack:
        made = _ground(store, way, tmp_path, own, stack)
        with durastore.open(made.direct, create=True):
            pass
        yield made


def _ground(store: str, way: str, folder: Path, own: Own, stack: ExitStack) -> Ground:
    if store == "sqlite":
        return in_file(folder)
    if way in ("killed", "read-only", "crowded"):
        server = own(store)
        url = in_namespace(server.url)
        if way == "killed":
            return Ground(url, url, killed(server))
        if way == "crowded":
            return Ground(url, url, crowded(server))
        return Ground(plain_user(url), url, read_only(server))
    direct = in_namespace(shared(store))
    proxy = stack.enter_context(Proxy.before(direct))
    return Ground(proxy.through(direct), direct, cut(proxy) if way == "cut" else refusing(proxy, "throttle"))


def in_file(folder: Path) -> Ground:
    """SQLite, which itself would wait for longer than the outage lasts: here the store has to."""
    url = f"sqlite:///{folder}/jobs.db?busy_timeout=0.05"
    return Ground(url, url, locked(folder / "jobs.db"))


def in_namespace(url: str) -> str:
    """The same store, a namespace of a test's own."""
    return f"{url}{'&' if '?' in url else '?'}namespace=t-{uuid.uuid4().hex}"


def plain_user(url: str) -> str:
    """The URL of a user whom a read-only server binds: MySQL's exempts its administrators."""
    if not url.startswith("mysql"):
        return url
    name = f"u{uuid.uuid4().hex[:12]}"
    run(
        url,
        f"CREATE USER {name}@'%' IDENTIFIED BY 'plain'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON durastore.* TO {name}@'%'",
    )
    return url.replace("durastore:durastore@", f"{name}:plain@")
