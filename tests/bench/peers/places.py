"""Where everybody is measured: a folder, a database or tables of this run alone, which are gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import durastore
from durastore import emulators
from durastore.bench.floors import new_table

from .peer import Place
from .tables import client_of, drop

SERVERS = {"sqlite": "sqlite", "postgresql": "postgresql", "dynamodb": "dynamodb"}
"""Which of `durastore.emulators.NAMES` each store is measured on. Not moto: it copies all tables for each transaction, so that a
transaction costs more with each item that anybody has written."""


@contextmanager
def place(store: str) -> Iterator[Place]:
    """Start a server if it takes one, and make a store of durastore's in it.

    Raises `EmulatorNotRun` when there is no such server on this machine.
    """
    with emulators.start(SERVERS[store]) as server, tempfile.TemporaryDirectory(prefix="durastore-peers-") as name:
        folder, table = Path(name), new_table()
        with _STORES[store](server.url, folder, table) as url:
            durastore.open(url, create=True).close()
            yield Place(url, folder, table, server.version)


@contextmanager
def _sqlite(_url: str, folder: Path, _table: str) -> Iterator[str]:
    yield f"sqlite:///{folder / 'durastore.db'}"


@contextmanager
def _postgresql(url: str, _folder: Path, name: str) -> Iterator[str]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def _dynamodb(url: str, _folder: Path, table: str) -> Iterator[str]:
    try:
        yield urlunsplit(urlsplit(url)._replace(netloc=f"{table}-store"))
    finally:
        with client_of(url) as client:
            drop(client, f"{table}-store")


_STORES = {"sqlite": _sqlite, "postgresql": _postgresql, "dynamodb": _dynamodb}
