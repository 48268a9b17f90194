"""A disk that is really full: a small file system of its own under SQLite's file, a PostgreSQL tablespace, a MySQL database."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import durastore
from durastore.errors import DurastoreError, StoreUnavailable
from tests.conformance.broken import Wrapper

from .conftest import Own, in_namespace
from .ways import LEASE, Outage, run

pytestmark = pytest.mark.timeout(120)
STEPS, VICTIM = 4, 2
MEGABYTES = 48
"""InnoDB grows by several megabytes at a time."""
VALUE = random.Random(1).randbytes(150_000).hex()
"""Larger than what is free within the pages that a store has already, and hardly to be compressed below that."""


class Small(NamedTuple):
    """A store on a file system of `MEGABYTES`."""

    url: str
    folder: Path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Somebody else's file takes all that is left."""
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        try:
            yield
        finally:
            filler.unlink()


@contextmanager
def _mounted(folder: Path, user: str | None = None) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=700", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"not run: no small file system can be mounted ({done.stderr.strip()})")
    if user is not None:
        shutil.chown(folder, user)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def _sqlite(_: Own, folder: Path) -> Iterator[Small]:
    with _mounted(folder / "small") as mounted:
        yield Small(f"sqlite:///{mounted}/jobs.db", mounted)


@contextmanager
def _postgresql(own: Own, _: Path) -> Iterator[Small]:
    server = own("postgresql")
    with _mounted(server.site.folder / "small", server.site.user) as mounted:
        run(server.url, f"CREATE TABLESPACE small LOCATION '{mounted}'", _DEFAULT.format("= small"))
        try:
            with durastore.open(f"{server.url}?schema=small", create=True):
                pass
            run(server.url, _DEFAULT.format("= DEFAULT"))
            yield Small(in_namespace(f"{server.url}?schema=small"), mounted)
        finally:
            run(
                server.url, _DEFAULT.format("= DEFAULT"), "DROP SCHEMA IF EXISTS small CASCADE", "DROP TABLESPACE small"
            )


_DEFAULT = "ALTER ROLE CURRENT_USER SET default_tablespace {}"


@contextmanager
def _mysql(own: Own, _: Path) -> Iterator[Small]:
    server = own("mysql")
    run(server.url, "CREATE DATABASE small")
    try:
        with _mounted(server.site.data / "small", server.site.user) as mounted:
            yield Small(in_namespace(f"{server.url.rpartition('/')[0]}/small"), mounted)
            run(server.url, *(f"DROP TABLE small.{name}" for name in _tables(mounted)))
    finally:
        run(server.url, "DROP DATABASE small")


def _tables(folder: Path) -> list[str]:
    return [file.stem for file in folder.glob("*.ibd")]


STORES: dict[str, Callable[[Own, Path], Any]] = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql}


@pytest.fixture(params=STORES)
def small(request: pytest.FixtureRequest, own: Own, tmp_path: Path) -> Iterator[Small]:
    """A store, set up, on a disk that can be filled."""
    with ExitStack() as stack:
        made: Small = stack.enter_context(STORES[request.param](own, tmp_path))
        with durastore.open(made.url, create=True):
            pass
        yield made


class Refused(Wrapper):
    """A backend that keeps what its store refused with."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self.refusals: list[DurastoreError] = []

    def classify(self, error: Exception) -> DurastoreError | None:
        found: DurastoreError | None = self._backend.classify(error)
        if found is not None:
            self.refusals.append(found)
        return found


def test_goes_on_by_itself(small: Small) -> None:
    """What is refused is tried again until there is room; the effect, which nobody may repeat, ran once."""
    goes_on(small)


def goes_on(small: Small, wrap: Callable[[Any], Any] = Wrapper) -> None:
    """A run whose store, behind a wrapper, gets no room for a while."""
    outage, calls = Outage(small.full), list[int]()

    def step(item: int) -> str:
        calls.append(item)
        if item == VICTIM:
            outage.begin()
        return f"{item}{VALUE}"

    with outage, durastore.open(small.url) as store:
        store.backend = seen = Refused(wrap(store.backend))
        summary = durastore.run_agent(range(STEPS), store.checkpoint("run", lease=LEASE, in_doubt="halt"), step)
        outage.wait()
        assert (summary.executed, calls) == (STEPS, list(range(STEPS)))
        assert {record.result for record in store.records()} == {f"{item}{VALUE}" for item in range(STEPS)}
    assert {type(refusal) for refusal in seen.refusals} == {StoreUnavailable}


def test_gives_up_at_its_deadline(small: Small) -> None:
    """One clear line; what was committed is read meanwhile, and is there afterwards."""
    with durastore.open(small.url) as store:
        ckpt = store.checkpoint("run", lease=LEASE, wait=30)
        ckpt.run_once("before", lambda: VALUE)
        store.deadlines = dict.fromkeys(("claim", "commit", "put_chunks", "abandon"), 0.3)
        with small.full():
            with pytest.raises(StoreUnavailable, match=r"did not take a") as raised:
                ckpt.run_once("during", lambda: VALUE)
            assert ckpt.run_once("before", lambda: "again") == (VALUE, "skipped")
        said = str(raised.value)
        assert "disk" in said
        assert "\n" not in said
        assert ckpt.run_once("during", lambda: VALUE).value == VALUE
        assert ckpt.run_once("before", lambda: "again") == (VALUE, "skipped")
