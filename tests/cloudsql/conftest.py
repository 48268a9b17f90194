"""Real servers for this folder's tests: PostgreSQL, MySQL (or MariaDB in its place), and PgBouncer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

import durastore
from durastore import emulators, urls
from durastore.conformance.proxy import Proxy

Servers = Callable[[str], emulators.Server]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Starts a server once for all tests; "not run" with the reason where this machine has none."""
    with ExitStack() as running:

        @cache
        def start(name: str) -> emulators.Server:
            front = {"in_front_of": start("postgresql").url} if name == "pgbouncer" else {}
            return running.enter_context(emulators.start(name, **front))

        def get(name: str) -> emulators.Server:
            try:
                return start(name)
            except emulators.EmulatorNotRun as exc:
                if emulators.required(name):
                    pytest.fail(str(exc))
                pytest.skip(f"not run: {exc}")

        yield get


@pytest.fixture(params=["postgresql", "mysql"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs on both servers."""
    return str(request.param)


@pytest.fixture
def server(servers: Servers, kind: str) -> emulators.Server:
    return servers(kind)


@pytest.fixture
def url(server: emulators.Server) -> str:
    """A store of the test's own, set up."""
    return _set_up(server.url)


@pytest.fixture
def postgresql(servers: Servers) -> str:
    return _set_up(servers("postgresql").url)


@pytest.fixture
def mysql(servers: Servers) -> str:
    return _set_up(servers("mysql").url)


def _set_up(url: str) -> str:
    with durastore.open(url, create=True):
        pass
    return f"{url}?namespace=t-{uuid.uuid4().hex}"


@pytest.fixture
def backend(url: str) -> Iterator[Any]:
    opened = urls.connect(urls.parse(url))
    yield opened
    opened.close()


@pytest.fixture
def store(url: str) -> Iterator[durastore.Store]:
    with durastore.open(url) as opened:
        yield opened


@pytest.fixture
def proxy(server: emulators.Server) -> Iterator[Proxy]:
    """Between the client and the server: counts round trips, and loses answers."""
    with Proxy.before(server.url) as between:
        yield between


@pytest.fixture
def watched(url: str, proxy: Proxy) -> Iterator[durastore.Store]:
    """A store whose traffic goes through `proxy`."""
    with durastore.open(proxy.through(url)) as opened:
        yield opened
