"""Stores to test against: one call starts a server, whatever this machine has, and nothing is left behind.

For each name, in this order: the URL that the environment gives (``DURASTORE_POSTGRESQL_URL`` and so on), Docker, a local
process. Where there is none of these the answer is "not run", with the reason and what to install.
``DURASTORE_REQUIRE=postgresql,dynamodb`` names those for which "not run" is a failure.

    with emulators.start("postgresql") as server:
        store = durastore.open(server.url)

Servers listen on loopback only, on a free port, in a temporary folder. They end with the process that started them, even when
that is killed.
"""

from __future__ import annotations

import os
from typing import Protocol

from durastore._emulators.answers import Available, EmulatorError, EmulatorNotRun, NotRun
from durastore._emulators.catalogue import ENTRIES, WITHOUT_SERVER, given_url, way
from durastore._emulators.catalogue import available as _available
from durastore._emulators.given import GivenServer, no_server
from durastore._emulators.local import LocalServer
from durastore._emulators.recipe import Recipe
from durastore._emulators.supervisor import Process
from durastore.errors import ConfigError

__all__ = [
    "NAMES",
    "Available",
    "EmulatorError",
    "EmulatorNotRun",
    "NotRun",
    "Server",
    "available",
    "required",
    "start",
]

NAMES = (*WITHOUT_SERVER, *ENTRIES)
"""What can be asked for."""


class Server(Protocol):
    """A running store. Also a context manager that stops it."""

    @property
    def name(self) -> str: ...

    @property
    def how(self) -> str:
        """``url``, ``docker`` or ``local``."""
        ...

    @property
    def url(self) -> str:
        """What `durastore.open` takes. The same for as long as the server is there."""
        ...

    @property
    def version(self) -> str:
        """Which program serves, and its version; says so when it stands in for another."""
        ...

    @property
    def keeps_data(self) -> bool:
        """Do the data survive `restart`?"""
        ...

    def stop(self) -> None:
        """Stop it and remove what it wrote. Repeatable. A server of another's is left alone."""
        ...

    def kill(self) -> None:
        """End it by SIGKILL, workers and all. Raises `EmulatorError` for a server that was not started here."""
        ...

    def restart(self) -> None:
        """Start it again on the same port, on its data where `keeps_data`. Raises `EmulatorError` as `kill` does."""
        ...

    def log(self) -> str:
        """What the server wrote."""
        ...

    def __enter__(self) -> Server: ...

    def __exit__(self, *_: object) -> None: ...


def available(name: str) -> Available | NotRun:
    """Can this store be had here, and how? Starts nothing; truthy if so. Raises `ConfigError` for an unknown name."""
    _check(name)
    return _available(name)


def required(name: str) -> bool:
    """Does ``DURASTORE_REQUIRE`` name this store, so that "not run" is a failure?"""
    return name in [part.strip() for part in os.environ.get("DURASTORE_REQUIRE", "").split(",")]


def start(name: str, *, in_front_of: str | None = None, owner: Process | None = None) -> Server:
    """Start a store, and return when it serves.

    It lives until `Server.stop`, at most as long as its `owner`, which is this process unless another is given.
    `in_front_of` is the URL of the PostgreSQL server behind ``pgbouncer``.

    Raises `EmulatorNotRun` when there is none on this machine, `EmulatorError` when it does not start (with the end of its
    log), and `ConfigError` for an unknown name.
    """
    _check(name)
    url = given_url(name)
    if url is not None and in_front_of is None:
        return GivenServer(name, url, _version(name, url))
    if name in WITHOUT_SERVER:
        return no_server(name)
    return launch(name, owner or _this_process(), in_front_of)


def launch(name: str, owner: Process | None, in_front_of: str | None = None) -> LocalServer:
    """Start a server of our own; without an owner it lives on when this process ends."""
    recipe = _recipe(name, in_front_of)
    if isinstance(recipe, NotRun):
        raise EmulatorNotRun(name, recipe)
    try:
        recipe.install()
    except EmulatorError as exc:
        raise EmulatorNotRun(name, NotRun(str(exc), "it needs a package index once")) from exc
    return LocalServer(name, recipe, owner)


def _recipe(name: str, in_front_of: str | None) -> Recipe | NotRun:
    if name != "pgbouncer":
        return way(name)
    from durastore._emulators.postgresql import bouncer

    if in_front_of is None:
        raise ConfigError("pgbouncer stands in front of a PostgreSQL server: give in_front_of=URL")
    return bouncer(in_front_of)


def _version(name: str, url: str) -> str:
    if name in WITHOUT_SERVER:
        return name
    try:
        return ENTRIES[name].probe(url)
    except Exception as exc:
        raise EmulatorError(f"{name}: the server that the environment names does not answer: {exc}") from exc


def _this_process() -> Process:
    found = Process.of(os.getpid())
    assert found is not None, "we are running"
    return found


def _check(name: str) -> None:
    if name not in NAMES:
        raise ConfigError(f"unknown emulator {name!r}; known: {', '.join(NAMES)}")
