"""A benchmark leaves nothing on a server: neither keys nor runs, and no table of the raw driver's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

import durastore
from durastore import urls
from durastore.bench import measuring
from durastore.bench.floors import new_table
from tests.conftest import shared


def _postgresql(url: urls.StoreURL) -> list[str]:
    from durastore_cloudsql.targets import target

    with closing(target(url, url.options).connect()) as connection:
        return [name for (name,) in connection.execute("SELECT tablename FROM pg_tables").fetchall()]


def _mysql(url: urls.StoreURL) -> list[str]:
    from durastore_cloudsql.targets import target

    with closing(target(url, url.options).connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        return [name for (name,) in cursor.fetchall()]


def _dynamodb(url: urls.StoreURL) -> list[str]:
    from durastore_dynamodb import target

    client = target.parse(url).client(lambda: None)
    return [name for page in client.get_paginator("list_tables").paginate() for name in page["TableNames"]]


def _firestore(url: urls.StoreURL) -> list[str]:
    from durastore_firestore import target

    found = target.parse(url)
    with closing(found.channel()) as channel:
        return [collection.id for collection in found.client(channel).collections()]


TABLES: dict[str, Callable[[urls.StoreURL], list[str]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "dynamodb": _dynamodb,
    "firestore": _firestore,
}


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_left(name: str, interrupted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after Ctrl-C in mid-measurement."""
    url = shared(name)
    table = new_table()
    monkeypatch.setattr(measuring, "new_table", lambda: table)
    monkeypatch.setattr(measuring, "CONCURRENCY", 2)
    with durastore.open(url, create=True):
        pass
    seen: list[str] = []

    def tell(part: str, _text: str = "") -> None:
        if part == "measuring" and part not in seen:
            assert table in TABLES[name](urls.parse(url))
            seen.append(part)
            if interrupted:
                raise KeyboardInterrupt

    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            measuring.measure(url, steps=25, replayed=20, warm_up=False, tell=tell)
    else:
        report = measuring.measure(url, steps=25, replayed=20, warm_up=False, tell=tell)
        assert {row.samples for row in report.rows} == {25, 1}
    assert seen == ["measuring"]
    assert table not in TABLES[name](urls.parse(url))
    with durastore.open(url, namespace=table[-40:]) as store:
        assert not list(store.records())
        assert not list(store.runs())
