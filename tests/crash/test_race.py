"""Many processes on few keys; holders whose interpreter is busy; forks with claims in hand."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

import durastore
from tests.crash.killing import Outside, ended, forked


def test_eight_processes_few_keys(tmp_path: Path) -> None:
    """Eight processes ask for the same keys: each effect happens once, everybody gets its result, nobody sees an error."""
    url, outside = f"sqlite:///{tmp_path}/store.db", Outside(tmp_path / "outside")
    keys = [f"key-{number}" for number in range(6)]

    def work(number: int) -> None:
        with durastore.open(url) as store:
            ckpt = store.checkpoint(f"worker-{number}", wait=120)

            def effect() -> list[int]:
                outside.deliver(durastore.current().key)
                return [number]

            results = {key: ckpt.run_once(key, effect).value for key in keys[number % 6 :] + keys[: number % 6]}
            (tmp_path / f"results-{number}").write_text(json.dumps(results))

    children = [forked(lambda number=number: work(number)) for number in range(8)]
    assert [ended(child) for child in children] == [0] * 8
    assert outside.count() == dict.fromkeys(keys, 1)
    results = [json.loads((tmp_path / f"results-{number}").read_text()) for number in range(8)]
    assert all(sorted(result.items()) == sorted(results[0].items()) for result in results)


def test_busy_interpreter(tmp_path: Path) -> None:
    """Threads that never wait do not starve the keeper: a busy holder's lease is renewed, and nobody else runs its effect."""
    with durastore.open(f"sqlite:///{tmp_path}/store.db") as store:
        ckpt = store.checkpoint("run", lease=2.0)
        stop = threading.Event()

        def hog() -> None:
            while not stop.is_set():
                sum(range(1000))

        def effect() -> str:
            first = store.record("key")
            renewed = threading.Event()
            while not renewed.is_set():  # busy as well, until the keeper has come through twice
                if store.backend.read(["key"])[0].expires_at > first._stored.expires_at + 1_000_000:
                    renewed.set()
            return "done"

        hogs = [threading.Thread(target=hog) for _ in range(4)]
        for thread in hogs:
            thread.start()
        try:
            assert ckpt.run_once("key", effect) == ("done", "executed")
        finally:
            stop.set()
            for thread in hogs:
                thread.join()
        assert store.stats.lost == 0


def test_fork_inside_an_effect(tmp_path: Path) -> None:
    """A child that leaves the effect it was forked in holds nothing: it is refused, and the parent commits."""
    with durastore.open(f"sqlite:///{tmp_path}/store.db") as store:
        ckpt = store.checkpoint("run")
        children: list[int] = []

        def effect() -> str:
            child = os.fork()
            children.append(child)
            return "parent" if child else "child"

        try:
            outcome = ckpt.run_once("key", effect)
        except durastore.ClaimLost:
            os._exit(7 if children == [0] and durastore.current() is None else 1)
        if children == [0]:
            os._exit(1)
        assert ended(children[0]) == 7
        assert outcome == ("parent", "executed")


def test_child_renews_nothing(tmp_path: Path) -> None:
    """A forked child does not keep its parent's claims alive, and runs keys of its own."""
    with durastore.open(f"sqlite:///{tmp_path}/store.db") as store:
        ckpt = store.checkpoint("run", lease=0.6)

        def effect() -> str:
            child = forked(lambda: _child(store, ckpt))
            assert ended(child) == 0
            return "parent"

        assert ckpt.run_once("key", effect).value == "parent"
        assert store.record("child").result == "child"


def _child(store: durastore.Store, ckpt: durastore.Checkpoint) -> None:
    assert durastore.current() is None
    assert store.keeper._due == {}
    assert ckpt.run_once("child", lambda: "child").status == "executed"
    with pytest.raises(durastore.AwaitTimeout):
        ckpt.run_once("key", lambda: "child", wait=0)
