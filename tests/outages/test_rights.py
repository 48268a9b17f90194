"""A right is taken away in mid-run: told at once, by one line that says what to grant; nothing is lost meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import durastore
from durastore.conformance.proxy import Proxy
from durastore.errors import ConfigError
from durastore.store import DEADLINE
from tests.conformance.broken import Wrapper
from tests.conftest import shared

from .conftest import NETWORKED, in_namespace

pytestmark = pytest.mark.timeout(60)
ADVICE = {
    "postgresql": "grant SELECT, INSERT",
    "mysql": "grant SELECT, INSERT",
    "firestore": "roles/datastore.user",
    "dynamodb": "durastore_dynamodb.ACTIONS",
}


@pytest.fixture(params=NETWORKED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def direct(name: str) -> str:
    """The store itself, set up."""
    url = in_namespace(shared(name))
    with durastore.open(url, create=True):
        pass
    return url


@pytest.fixture
def proxy(direct: str) -> Iterator[Proxy]:
    with Proxy.before(direct) as between:
        yield between


class Denied(Wrapper):
    """A backend whose rights end before a verb."""

    def __init__(self, backend: Any, proxy: Proxy, verb: str) -> None:
        super().__init__(backend)
        self._proxy, self._verb = proxy, verb

    def __getattr__(self, name: str) -> Any:
        if name == self._verb:
            self._proxy.draw = lambda: "deny"
        return super().__getattr__(name)


@pytest.mark.parametrize("verb", ["claim", "commit"])
def test_denied(name: str, direct: str, proxy: Proxy, verb: str) -> None:
    """No waiting for the deadline; the effect does not run before the claim, and what ran is asked about, not repeated."""
    denied(name, direct, proxy, verb)


def denied(name: str, direct: str, proxy: Proxy, verb: str, wrap: Callable[[Any], Any] = Wrapper) -> None:
    """A call whose rights end before a verb of the store behind a wrapper."""
    calls: list[str] = []

    def effect() -> str:
        calls.append("ran")
        return "sent"

    def probe(claim: Any) -> Any:
        return durastore.Found("sent") if calls else durastore.NotFound()

    with durastore.open(proxy.through(direct)) as store:
        ckpt = store.checkpoint("run", lease=0.5, in_doubt=probe)
        ckpt.run_once("earlier", lambda: 1)
        store.backend = Denied(wrap(store.backend), proxy, verb)
        began = time.monotonic()
        with pytest.raises(ConfigError) as raised:
            ckpt.run_once("key", effect)
        assert time.monotonic() - began < DEADLINE / 2
        proxy.draw = lambda: None
    assert ADVICE[name] in str(raised.value)
    assert "\n" not in str(raised.value)
    assert calls == (["ran"] if verb == "commit" else [])
    with durastore.open(direct) as store:
        ckpt = store.checkpoint("run", in_doubt=probe, wait=30)
        assert ckpt.run_once("earlier", lambda: 2) == (1, "skipped")
        assert ckpt.run_once("key", effect).value == "sent"
    assert calls == ["ran"]
