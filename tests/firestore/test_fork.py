"""Both sides of a fork go on, with connections of their own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

import durastore

from .requests import RESULT, granted, request

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="not run: there is no fork on this system")
CHILD_MAX = 30.0
"""Seconds after which a child counts as hung."""


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked child; its exit status, -1 when it hung."""
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException as exc:
            os.write(2, f"child: {exc!r}\n".encode())
            os._exit(1)
    give_up = time.monotonic() + CHILD_MAX
    while time.monotonic() < give_up:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -1


def test_child_and_parent(url: str) -> None:
    """The child opens a channel of its own; the parent's goes on working, and its claim is still its own."""
    with durastore.open(url) as store:
        grant = granted(store.backend.claim(request("key")))
        assert in_child(lambda: store.checkpoint("run").run_once("child", lambda: 1) and None) == 0
        store.backend.commit(grant, result=RESULT)
        assert store.checkpoint("run").run_once("child", lambda: 2) == (1, "skipped")


def test_forks_while_other_threads_are_in_calls(url: str) -> None:
    """The fork handlers of gRPC give up then, and the child hangs or aborts; the gate lets no call be under way."""
    with durastore.open(url) as store:
        stopped = threading.Event()

        def busy() -> None:
            while not stopped.is_set():
                store.backend.load("run")

        threads = [threading.Thread(target=busy) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            assert [in_child(lambda: store.backend.load("run") and None) for _ in range(15)] == [0] * 15
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
        store.backend.load("run")
