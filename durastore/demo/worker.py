"""A worker: one process that does steps until it is done, or is killed where its schedule says.

At that point it says so on standard output and waits; its parent then sends it SIGKILL. Everything else that it says there is the
number of effects that it began.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import durastore
from durastore.demo import rows
from durastore.demo.schedule import Kill, Point
from durastore.demo.world import ask, deliver

__all__ = ["MODES", "SAVE_EVERY", "Job", "Mode", "sources"]

Mode = Literal["naive", "progress", "rerun", "probe", "transact"]
MODES: tuple[Mode, ...] = ("naive", "progress", "rerun", "probe", "transact")
SAVE_EVERY = 10
"""Steps between two saves of the progress, in every mode that saves it: cheap, and what a restart redoes without keys."""
_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__", "lib2to3"}


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker is told."""

    mode: Mode
    url: str
    run: str
    port: int
    limit: int
    kill: tuple[int, Point] | None


def sources(limit: int) -> list[Path]:
    """The Python files of this interpreter's standard library, in order, without its tests; at most `limit`."""
    found: list[Path] = []
    for folder, inner, names in os.walk(Path(hashlib.__file__).parent):
        inner[:] = [name for name in inner if name not in _SKIPPED]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found)[:limit]


class Worker:
    """Does the steps of a job in its mode."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._kill = None if job.kill is None else Kill(*job.kill)
        self._begun = 0
        self._files = sources(job.limit)
        self._root = Path(hashlib.__file__).parent

    def run(self) -> None:
        """Do all that is left."""
        if self._job.mode == "naive":
            self._loop(0, lambda _step: None)
            return
        with durastore.open(self._job.url) as store:
            if self._job.mode == "progress":
                self._progress_only(store)
            else:
                self._durably(store)

    def reach(self, point: Point) -> None:
        """Die here, if the schedule says so."""
        if self._kill is not None and (self._begun, point) == (self._kill.effect, self._kill.point):
            print(json.dumps({"begun": self._begun, "at": point}), flush=True)  # noqa: T201  to the parent
            sys.stdin.read()  # until the parent's SIGKILL

    def _loop(self, start: int, save: Callable[[int], Any]) -> None:
        """Steps without keys."""
        for step, path in enumerate(self._files[start:], start):
            self._post(path, self._key(path))
            self.reach("done")
            save(step + 1)
            self.reach("stored")

    def _progress_only(self, store: durastore.Store) -> None:
        ckpt = store.checkpoint(self._job.run)

        def save(step: int) -> None:
            if step % SAVE_EVERY == 0 or step == len(self._files):
                ckpt.save_progress(step, {"processed": step})

        self._loop(ckpt.load().step, save)

    def _durably(self, store: durastore.Store) -> None:
        """Steps under keys. One worker lives at a time, so that each takes over its predecessor's claims at once."""
        policy: Any = self._probe if self._job.mode == "probe" else "rerun"
        ckpt = store.checkpoint(self._job.run, in_doubt=policy, supersede=True)
        store.backend = _Killable(store.backend, self.reach)
        if self._job.mode == "transact":
            self._transact(store, ckpt)
            return
        durastore.run_agent(
            self._files,
            ckpt,
            lambda path: self._post(path, durastore.current().key),  # type: ignore[union-attr]  # inside an effect
            key=self._key,
            save_every=SAVE_EVERY,
        )

    def _transact(self, store: durastore.Store, ckpt: durastore.Checkpoint) -> None:
        for step, path in enumerate(self._files[ckpt.load().step :], ckpt.load().step):
            last = (step + 1) % SAVE_EVERY == 0 or step + 1 == len(self._files)
            progress = (step + 1, {"processed": step + 1}) if last else None
            key = self._key(path)
            ckpt.transact(key, partial(self._insert, store, path, key), progress=progress)

    def _probe(self, claim: durastore.Claim) -> Any:
        found = ask(self._job.port, claim.key)
        return (
            durastore.NotFound() if found is None else durastore.Found({"received": claim.key, "lines": found["lines"]})
        )

    def _key(self, path: Path) -> str:
        return f"{self._job.run}:{path.relative_to(self._root)}"

    def _post(self, path: Path, key: str) -> dict[str, Any]:
        self._begin()
        answer = deliver(self._job.port, {"key": key, **_measured(path)})
        self.reach("sent")
        return answer

    def _insert(self, store: durastore.Store, path: Path, key: str, tx: Any) -> dict[str, Any]:
        self._begin()
        claim = durastore.current()
        assert claim is not None
        rows.write(store, tx, self._job.run, key, claim.token)
        self.reach("sent")
        return {"received": key, **_measured(path)}

    def _begin(self) -> None:
        self._begun += 1
        self.reach("begun")

    def finish(self) -> None:
        """Say how many effects were begun in all."""
        print(json.dumps({"begun": self._begun}), flush=True)  # noqa: T201  to the parent


class _Killable:
    """A backend that may die before or after a commit."""

    def __init__(self, backend: Any, reach: Callable[[Point], None]) -> None:
        self._backend = backend
        self._reach = reach

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        self._reach("done")
        answer = self._backend.commit(*args, **kwargs)
        self._reach("stored")
        return answer

    def transact(self, grant: Any, effect: Callable[[Any], Any], **kwargs: Any) -> Any:
        def inner(tx: Any) -> Any:
            result = effect(tx)
            self._reach("done")
            return result

        answer = self._backend.transact(grant, inner, **kwargs)
        self._reach("stored")
        return answer


def _measured(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"lines": data.count(b"\n"), "digest": hashlib.sha256(data).hexdigest()}


def encode(job: Job) -> str:
    """A job as one line."""
    return json.dumps(asdict(job))


def main(lines: Iterator[str]) -> None:
    """Do the job on the first line."""
    worker = Worker(Job(**json.loads(next(lines))))
    worker.run()
    worker.finish()


if __name__ == "__main__":
    main(iter(sys.stdin.readline, ""))
