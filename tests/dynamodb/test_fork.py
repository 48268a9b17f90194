"""Both sides of a fork go on, with connections of their own."""

from __future__ import annotations

import os
import threading

import pytest

import durastore
from tests.firestore.test_fork import in_child

from .requests import RESULT, granted, request

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="not run: there is no fork on this system")


def test_child_and_parent(url: str) -> None:
    """The child connects anew; the parent's connections go on, and its claim is still its own."""
    with durastore.open(url) as store:
        grant = granted(store.backend.claim(request("key")))
        parents = store.backend

        def child() -> None:
            assert store.checkpoint("run").run_once("child", lambda: 1).value == 1
            assert parents is store.backend

        assert in_child(child) == 0
        store.backend.commit(grant, result=RESULT)
        assert store.checkpoint("run").run_once("child", lambda: 2) == (1, "skipped")


def test_forks_while_other_threads_are_in_calls(url: str) -> None:
    """Connections and locks in use at the fork are the parent's: no child hangs, no answer goes to the wrong side."""
    with durastore.open(url) as store:
        stopped = threading.Event()

        def load() -> None:
            store.backend.load("run")

        def busy() -> None:
            while not stopped.is_set():
                store.backend.load("run")

        threads = [threading.Thread(target=busy) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            assert [in_child(load) for _ in range(5)] == [0] * 5
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
        store.backend.load("run")
