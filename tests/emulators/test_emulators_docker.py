"""Where Docker is, servers come from it: the real testcontainers and docker client against a daemon that is not."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from durastore import emulators
from durastore._emulators import container

from .fakedocker import FakeDocker

pytest.importorskip("testcontainers", reason="not run: testcontainers is not installed")


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDocker]:
    daemon = FakeDocker()
    monkeypatch.setenv("DOCKER_HOST", daemon.address)
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    monkeypatch.delenv("DURASTORE_EMULATORS", raising=False)
    for name in ("FIRESTORE_EMULATOR_HOST", "DURASTORE_FIRESTORE_URL"):
        monkeypatch.delenv(name, raising=False)
    container.trouble.cache_clear()
    yield daemon
    container.trouble.cache_clear()
    daemon.stop()


def test_docker_comes_before_a_local_process(docker: FakeDocker) -> None:
    """Availability names the image, and nothing has been started to find out."""
    found = emulators.available("mysql")
    assert found == emulators.Available("docker", "mysql:8.4 in Docker")
    assert docker.created == []


def test_local_only_by_environment(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    """$DURASTORE_EMULATORS=local leaves Docker alone."""
    monkeypatch.setenv("DURASTORE_EMULATORS", "local")
    found = emulators.available("postgresql-system"), emulators.available("postgresql")
    assert all(one.how == "local" for one in found if one)
    assert docker.asked == []


def test_a_container_from_start_to_end(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One container on loopback; killed and restarted it is another one on the same volume and port; in the end none is left."""
    image = dataclasses.replace(container.IMAGES["firestore"], data="/data")
    monkeypatch.setitem(container.IMAGES, "firestore", image)
    with emulators.start("firestore") as server:
        assert server.how == "docker"
        url = server.url
        server.kill()
        assert docker.names == {}
        server.restart()
        assert server.url == url
        assert len(docker.names) == len(docker.volumes) == 1
    assert docker.names == {}
    assert docker.volumes == set()
    first, second = docker.created
    assert first["Image"] == image.image
    assert first["Cmd"][:4] == ["gcloud", "emulators", "firestore", "start"]
    assert first["HostConfig"]["Binds"] == second["HostConfig"]["Binds"]


def test_a_container_that_ends_by_itself_is_an_error(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that refuses is reported with what it said, not waited for until a deadline."""
    monkeypatch.setattr(docker, "_create", lambda *_: (500, {"message": "no space left on device"}))
    before = time.monotonic()
    with pytest.raises(emulators.EmulatorError, match=r"(?s)no space left on device.*its log: ") as info:
        emulators.start("firestore")
    Path(str(info.value).split("its log: ")[1]).unlink()
    assert time.monotonic() - before < container.PULL_MAX / 2


def test_no_docker_is_a_reason_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that nobody answers for is why a local process is taken."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.delenv("DURASTORE_EMULATORS", raising=False)
    container.trouble.cache_clear()
    try:
        assert str(container.trouble()).startswith("no Docker: ")
    finally:
        container.trouble.cache_clear()


def test_the_container_goes_with_a_killed_owner(docker: FakeDocker) -> None:
    """The process that asked for it is killed: container and volume are removed by the supervisor."""
    import subprocess
    import sys

    code = "from durastore import emulators; s = emulators.start('firestore'); print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asked:
        assert asked.stdout.readline() == "up\n"
        assert len(docker.names) == 1
        asked.send_signal(signal.SIGKILL)
    give_up = time.monotonic() + 30
    while docker.names and time.monotonic() < give_up:
        time.sleep(0.02)
    assert docker.names == {}
