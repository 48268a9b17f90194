"""One command: started, watched, its output captured and passed on, stopped when its claim is lost."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from durastore.claims import Claim
from durastore.cli.guarding import Guard
from durastore.cli.results import Result
from durastore.cli.stopping import Child, Stopper
from durastore.errors import ClaimLost
from durastore.payload import PAYLOAD_BYTES_MAX

__all__ = ["Ended", "Sink", "run"]

Sink = Callable[[bytes], None]
TICK = 0.1
"""Seconds between two looks at the claim and at what does not wake us."""
DRAIN_SECONDS = 1.0
"""How long output is awaited after the command has ended, when a process of its own still holds the pipe."""
GRACE_SECONDS = 10.0
"""From asking a command to stop to killing it."""
_CHUNK = 65536


class Ended:
    """How a command ended."""

    def __init__(self, result: Result, signum: int | None, asked: int | None) -> None:
        self.result = result
        self.signum = signum
        """The signal that killed it, None when it returned by itself."""
        self.asked = asked
        """The signal that durastore passed on, None when it was left alone."""


def run(
    argv: Sequence[str | bytes],
    *,
    claim: Claim,
    env: Mapping[str, str],
    stop: Stopper,
    guard: Guard,
    stdin: bytes | None = None,
    sinks: tuple[Sink | None, Sink | None] = (None, None),
) -> Ended:
    """Run a command to its end. `stdin` None lets it read ours; `sinks` get its output and errors as they come.

    Raises `OSError` when it cannot be started, `ClaimLost` when its claim was lost: then it was stopped.
    """
    group = stdin is not None or not _reads_terminal()
    process = subprocess.Popen(  # noqa: S603  running what the user says is the point
        argv,
        bufsize=0,
        env=env,
        stdin=None if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=group,
    )
    child = Child(process, group=group)
    with stop.watching(child), guard.watching(child), process:
        try:
            return _Watch(child, claim, sinks).until_end(stdin)
        except BaseException:
            child.send(signal.SIGKILL)
            raise


def _reads_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False


class _Watch:
    def __init__(self, child: Child, claim: Claim, sinks: tuple[Sink | None, Sink | None]) -> None:
        self._child = child
        self._claim = claim
        self._sinks = sinks
        self._kept: tuple[list[bytes], list[bytes]] = ([], [])
        self._room = PAYLOAD_BYTES_MAX + 1
        """Bytes still to be kept; one more than fits, so that too much is found to be too much."""
        self._killed_at = float("inf")
        self._lost = False

    def until_end(self, stdin: bytes | None) -> Ended:
        with selectors.DefaultSelector() as selector:
            self._register(selector, stdin)
            self._pump(selector)
        code = self._child.process.wait()
        if self._lost:
            raise ClaimLost(
                f"the claim of key {self._claim.key!r} was lost while its command ran: somebody else has it by now. "
                f"The command was stopped, nothing of it was stored"
            )
        out, err = (b"".join(kept) for kept in self._kept)
        result = Result(code if code >= 0 else 128 - code, out, err)
        return Ended(result, -code if code < 0 else None, self._child.asked)

    def _register(self, selector: selectors.BaseSelector, stdin: bytes | None) -> None:
        process = self._child.process
        for stream, index in ((process.stdout, 0), (process.stderr, 1)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, index)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, memoryview(stdin or b""))

    def _pump(self, selector: selectors.BaseSelector) -> None:
        process = self._child.process
        ended_at: float | None = None
        while selector.get_map() or process.poll() is None:
            for key, _ in self._ready(selector):
                self._move(selector, key)
            self._look_at_claim()
            if ended_at is None and process.poll() is not None:
                ended_at = time.monotonic()
            if ended_at is not None and time.monotonic() - ended_at > DRAIN_SECONDS:
                return

    def _ready(self, selector: selectors.BaseSelector) -> Sequence[tuple[selectors.SelectorKey, int]]:
        if selector.get_map():
            return selector.select(TICK)
        with suppress(subprocess.TimeoutExpired):
            self._child.process.wait(TICK)
        return []

    def _move(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        stream = key.fileobj
        assert not isinstance(stream, int)
        if isinstance(key.data, memoryview):
            self._feed(selector, stream, key.data)  # type: ignore[arg-type]  # it is the pipe registered above
            return
        data = os.read(key.fd, _CHUNK)
        if not data:
            selector.unregister(stream)
            return
        self._keep(key.data, data)
        sink = self._sinks[key.data]
        if sink is not None:
            sink(data)

    def _keep(self, index: int, data: bytes) -> None:
        if self._room > 0:
            self._kept[index].append(data[: self._room])
            self._room -= len(data)

    def _feed(self, selector: selectors.BaseSelector, stream: IO[bytes], left: memoryview) -> None:
        try:
            left = left[os.write(stream.fileno(), left[:_CHUNK]) :] if left else left
        except BlockingIOError:
            return
        except BrokenPipeError:
            left = left[:0]
        if left:
            selector.modify(stream, selectors.EVENT_WRITE, left)
        else:
            selector.unregister(stream)
            stream.close()

    def _look_at_claim(self) -> None:
        now = time.monotonic()
        if self._claim.lost.is_set() and not self._lost:
            self._lost = True
            self._child.send(signal.SIGTERM)
            self._killed_at = now + GRACE_SECONDS
        elif now > self._killed_at:
            self._child.send(signal.SIGKILL)
            self._killed_at = float("inf")
