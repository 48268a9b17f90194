"""Every store and server that can be asked for by name, and the way to it: a URL, Docker, a local process, or none."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from durastore._emulators import container, dynamodb, firestore, mysql, postgresql
from durastore._emulators.answers import Available, NotRun
from durastore._emulators.recipe import Recipe

__all__ = ["ENTRIES", "Entry", "available", "given_url", "way"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name."""

    local: Callable[[], Recipe | NotRun]
    probe: Callable[[str], str]


def _bouncer_unplaced() -> Recipe | NotRun:
    """Is there one at all? `durastore.emulators.start` places it in front of a server."""
    return postgresql.bouncer("postgresql://")


ENTRIES = {
    "postgresql": Entry(postgresql.wheel_or_system, postgresql.probe),
    "postgresql-system": Entry(postgresql.system, postgresql.probe),
    "pgbouncer": Entry(_bouncer_unplaced, postgresql.probe),
    "mysql": Entry(mysql.recipe, mysql.probe),
    "firestore": Entry(firestore.recipe, firestore.probe),
    "dynamodb": Entry(dynamodb.ministack, dynamodb.probe),
    "dynamodb-moto": Entry(dynamodb.moto, dynamodb.probe),
}
WITHOUT_SERVER = ("memory", "sqlite")


def variable(name: str) -> str:
    """The environment variable that holds a store's URL."""
    return f"DURASTORE_{name.upper().replace('-', '_')}_URL"


def given_url(name: str) -> str | None:
    """The URL that the environment gives for a name."""
    host = os.environ.get("FIRESTORE_EMULATOR_HOST") if name == "firestore" else None
    return os.environ.get(variable(name)) or (firestore.url_of(host) if host else None)


def way(name: str) -> Recipe | NotRun:
    """How a server is started here: by Docker if it can be, else as a process."""
    if name not in container.IMAGES:  # it stands for a particular local program
        return ENTRIES[name].local()
    trouble = container.trouble()
    if trouble is None:
        return container.recipe(name)
    found = ENTRIES[name].local()
    return NotRun(f"{found.reason}, and {trouble}", found.hint) if isinstance(found, NotRun) else found


def available(name: str) -> Available | NotRun:
    """Can it be had, and how? Starts nothing."""
    if given_url(name):
        return Available("url", f"what ${variable(name)} names")
    if name in WITHOUT_SERVER:
        return Available("local", name)
    found = way(name)
    return found if isinstance(found, NotRun) else Available(found.how, found.what)
