"""The official emulator for this folder's tests, and ways to watch and disturb what goes over the wire."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import durastore
from durastore import urls
from durastore_firestore import FirestoreBackend
from durastore_firestore.target import parse

from .wiretap import Wiretap

JAR = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
START_MAX = 60.0
"""Seconds for the emulator to say that it runs."""


def _jar() -> Path | None:
    given = os.environ.get("FIRESTORE_EMULATOR_JAR")
    roots = [os.environ.get("CLOUDSDK_ROOT"), "/usr/lib/google-cloud-sdk", Path("~/google-cloud-sdk").expanduser()]
    candidates = [Path(given)] if given else [Path(root) / JAR for root in roots if root]
    return next((path for path in candidates if path.exists()), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``HOST:PORT`` of an emulator: the one of the environment, else one of our own."""
    given = os.environ.get("FIRESTORE_EMULATOR_HOST")
    if given:
        yield given
        return
    jar = _jar()
    if jar is None:
        message = "no Firestore emulator: set FIRESTORE_EMULATOR_HOST, or install the gcloud component cloud-firestore-emulator"
        if "firestore" in os.environ.get("DURASTORE_REQUIRE", ""):
            pytest.fail(message)
        pytest.skip(f"not run: {message}")
    log = tmp_path_factory.mktemp("emulator") / "log"
    port = _free_port()
    memory = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = ["java", *memory, "-cp", str(jar), MAIN, "--host=127.0.0.1", f"--port={port}"]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            _wait(process, log)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + START_MAX
    while "is now running" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.05)


@pytest.fixture
def url(emulator: str) -> str:
    """A store of its own for each test."""
    return f"firestore://demo-durastore/(default)?emulator_host={emulator}&namespace=t-{uuid.uuid4().hex}"


@pytest.fixture
def tap() -> Wiretap:
    """What `backend` and `store` send."""
    return Wiretap()


@pytest.fixture
def backend(url: str, tap: Wiretap) -> Iterator[FirestoreBackend]:
    opened = FirestoreBackend(parse(urls.parse(url)), interceptors=[tap])
    yield opened
    opened.close()


@pytest.fixture
def store(backend: FirestoreBackend) -> Iterator[durastore.Store]:
    with durastore.Store(backend) as opened:
        yield opened


@pytest.fixture
def another(url: str) -> Iterator[Callable[[], FirestoreBackend]]:
    """Further clients on the same contents."""
    opened: list[FirestoreBackend] = []

    def make() -> FirestoreBackend:
        opened.append(FirestoreBackend(parse(urls.parse(url))))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
