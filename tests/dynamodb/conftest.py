"""ministack for this folder's tests, and ways to watch and disturb what goes over the wire."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

import durastore
from durastore import urls
from durastore_dynamodb import DynamoDBBackend, connect
from durastore_dynamodb.clock import StoreClock

from .requests import TABLE, on_table
from .wiretap import Wiretap

Another = Callable[[], DynamoDBBackend]


@pytest.fixture(scope="session")
def table_url(dynamodb_url: str) -> str:
    """A table that is set up."""
    url = on_table(dynamodb_url, TABLE)
    with durastore.open(url) as store:
        store.setup()
    return url


@pytest.fixture
def url(table_url: str) -> str:
    """A namespace of its own for each test."""
    return f"{table_url}&namespace=t-{uuid.uuid4().hex}"


@pytest.fixture
def backend(url: str) -> Iterator[DynamoDBBackend]:
    opened = connect(urls.parse(url))
    yield opened
    opened.close()


@pytest.fixture
def tap(backend: DynamoDBBackend) -> Wiretap:
    """What `backend` and `store` send."""
    return Wiretap().attach(backend.client)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stamp grows old on its way, however slow this machine is: for tests that count requests."""
    monkeypatch.setattr(StoreClock, "is_off", lambda *_, **__: False)


@pytest.fixture
def store(backend: DynamoDBBackend) -> Iterator[durastore.Store]:
    with durastore.Store(backend) as opened:
        yield opened


@pytest.fixture
def another(url: str) -> Iterator[Another]:
    """Further clients on the same contents."""
    opened: list[DynamoDBBackend] = []

    def make() -> DynamoDBBackend:
        opened.append(connect(urls.parse(url)))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
