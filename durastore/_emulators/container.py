"""A container through testcontainers, held by a process that is supervised like any other server.

``python -m durastore._emulators.container hold SPEC`` runs it until it is told to end, ``… remove NAME [VOLUME]`` removes what a
killed holder left. The data lie in a volume, so that they survive `kill` and `restart`.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from durastore._emulators import dynamodb, firestore, mysql, postgresql
from durastore._emulators.recipe import HOST, Recipe, Site

__all__ = ["IMAGES", "Image", "recipe", "trouble"]

POLL = 0.5
PULL_MAX = 600.0
"""Seconds until it serves, pulling its image included."""
_THIS = (sys.executable, "-m", "durastore._emulators.container")


@dataclass(frozen=True, slots=True)
class Image:
    """What to run, and where the store's URL finds it."""

    image: str
    port: int
    url: Callable[[int], str]
    probe: Callable[[str], str]
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    data: str = ""
    """Where it keeps its data; "": in memory."""


IMAGES = {
    "postgresql": Image(
        "postgres:17",
        5432,
        lambda port: f"postgresql://durastore:durastore@{HOST}:{port}/durastore",
        postgresql.probe,
        {"POSTGRES_USER": "durastore", "POSTGRES_PASSWORD": "durastore"},
        data="/var/lib/postgresql/data",
    ),
    "mysql": Image(
        "mysql:8.4",
        3306,
        lambda port: f"mysql://root:durastore@{HOST}:{port}/durastore",
        mysql.probe,
        {"MYSQL_ROOT_PASSWORD": "durastore", "MYSQL_DATABASE": "durastore"},
        data="/var/lib/mysql",
    ),
    "firestore": Image(
        "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators",
        8080,
        lambda port: firestore.url_of(f"{HOST}:{port}"),
        lambda url: firestore.probe(url, "Firestore emulator of google-cloud-cli:emulators"),
        command="gcloud emulators firestore start --host-port=0.0.0.0:8080",
    ),
    "dynamodb": Image(
        "amazon/dynamodb-local:2.5.2",
        8000,
        lambda port: dynamodb.url_of(f"http://{HOST}:{port}"),
        lambda url: dynamodb.probe(url, "DynamoDB Local 2.5.2"),
        command="-jar DynamoDBLocal.jar -inMemory -sharedDb",
    ),
}


@functools.cache
def trouble() -> str | None:
    """Why there is no Docker; None when there is. Asks the daemon, which takes 0.2 s."""
    if os.environ.get("DURASTORE_EMULATORS") == "local":
        return "$DURASTORE_EMULATORS says local"
    try:
        from testcontainers.core.docker_client import DockerClient

        DockerClient().client.ping()
    except ImportError as exc:
        return f"testcontainers is not installed ({exc})"
    except Exception as exc:  # noqa: BLE001  docker's own, requests' and the operating system's
        return f"no Docker: {exc}"
    return None


def recipe(name: str) -> Recipe:
    """The recipe for the store's image."""
    image = IMAGES[name]
    return Recipe(
        what=f"{image.image} in Docker",
        command=lambda site: [*_THIS, "hold", _spec(image, site)],
        url=lambda site: image.url(site.port),
        probe=image.probe,
        after=lambda site: [*_THIS, "remove", _name(site)],
        cleanup=lambda site: [*_THIS, "remove", _name(site), _volume(site)] if image.data else [],
        keeps=bool(image.data),
        start_max=PULL_MAX,
        how="docker",
    )


def _name(site: Site) -> str:
    return site.folder.name


def _volume(site: Site) -> str:
    return f"{site.folder.name}-data"


def _spec(image: Image, site: Site) -> str:
    volume = [_volume(site), image.data] if image.data else None
    return json.dumps([image.image, _name(site), image.port, site.port, dict(image.environment), image.command, volume])


def hold(spec: str) -> None:
    """Run a container until SIGTERM, or until it ends by itself; its log goes to stdout."""
    signal.signal(signal.SIGTERM, _stop)
    container = _made(*json.loads(spec))
    try:
        container.start()
        wrapped = container.get_wrapped_container()
        while wrapped.status in {"created", "running"}:
            time.sleep(POLL)
            wrapped.reload()
        for part in container.get_logs():
            sys.stdout.buffer.write(part)
    finally:
        with suppress(Exception):
            container.stop()


def _stop(*_: object) -> None:
    raise SystemExit(0)


def _made(
    image: str,
    name: str,
    inner: int,
    outer: int,
    environment: Mapping[str, str],
    command: str,
    volume: Sequence[str] | None,
) -> Any:
    from testcontainers.core.container import DockerContainer

    made = DockerContainer(image).with_name(name)
    made.ports[f"{inner}/tcp"] = (HOST, outer)  # type: ignore[assignment]  # docker takes the address too
    for variable, value in environment.items():
        made.with_env(variable, value)
    if command:
        made.with_command(command)
    if volume:
        made.with_volume_mapping(volume[0], volume[1], "rw")
    return made


def remove(name: str, volume: str = "") -> None:
    """Remove a container and its volume, if they are there."""
    from docker.errors import NotFound  # type: ignore[import-untyped]  # docker brings no types
    from testcontainers.core.docker_client import DockerClient

    client = DockerClient().client
    with suppress(NotFound):
        client.containers.get(name).remove(force=True)
    if volume:
        with suppress(NotFound):
            client.volumes.get(volume).remove(force=True)


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold(sys.argv[2])
    else:
        remove(*sys.argv[2:])
