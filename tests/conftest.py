"""Servers for all tests: one of each for the whole session, however many workers it has, started when the first test asks.

A test that needs one to itself, to kill it or to restart it, starts it: ``with emulators.start("postgresql") as server``.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from durastore import emulators
from durastore._emulators.catalogue import given_url
from durastore._emulators.registry import Registry
from durastore._emulators.supervisor import Process

PLACE = Path(tempfile.gettempdir())
SESSION = "DURASTORE_TEST_SESSION"
"""``PID FOLDER``: the process with which the session's servers end, and where they are registered. Workers inherit it."""


def pytest_configure() -> None:
    _hear_signals()
    if SESSION not in os.environ:
        os.environ[SESSION] = f"{os.getpid()} {PLACE / f'durastore-session-{os.getpid()}'}"


def _hear_signals() -> None:
    """As a terminal starts a command. Whoever runs the tests in the background may ignore signals, and that is inherited."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_unconfigure() -> None:
    owner, folder = _session()
    if owner == os.getpid() and folder.exists():
        Registry(folder).down()
        shutil.rmtree(folder, ignore_errors=True)
    for stale in PLACE.glob("durastore-session-*"):  # of a session that was killed; its servers went with it
        if not _alive(stale):
            shutil.rmtree(stale, ignore_errors=True)


def _alive(folder: Path) -> bool:
    pid = folder.name.rpartition("-")[2]
    return not pid.isdigit() or Process.of(int(pid)) is not None


def _session() -> tuple[int, Path]:
    pid, _, folder = os.environ[SESSION].partition(" ")
    return int(pid), Path(folder)


def shared(name: str) -> str:
    """The URL of the session's server. Without one the test is skipped as "not run", or fails where it is required."""
    given = given_url(name)
    if given:
        return given
    owner, folder = _session()
    try:
        return Registry(folder).up(name, Process.of(owner)).url
    except emulators.EmulatorNotRun as exc:
        if emulators.required(name):
            pytest.fail(f"{exc} (and DURASTORE_REQUIRE names it)", pytrace=False)
        pytest.skip(f"not run: {name}: {exc.why}")


@pytest.fixture(scope="session")
def postgresql_url() -> str:
    return shared("postgresql")


@pytest.fixture(scope="session")
def postgresql_system_url() -> str:
    """The PostgreSQL of the system, another version than the wheel's."""
    return shared("postgresql-system")


@pytest.fixture(scope="session")
def pgbouncer_url() -> str:
    """A pooler in transaction mode in front of `postgresql_url`, with 4 connections."""
    return shared("pgbouncer")


@pytest.fixture(scope="session")
def mysql_url() -> str:
    return shared("mysql")


@pytest.fixture(scope="session")
def firestore_url() -> str:
    return shared("firestore")


@pytest.fixture(scope="session")
def dynamodb_url() -> str:
    return shared("dynamodb")


@pytest.fixture(scope="session")
def dynamodb_moto_url() -> str:
    """A second opinion: another implementation of DynamoDB."""
    return shared("dynamodb-moto")
