"""A proxy between a client and its store that knows where a request ends, and can lose it, its answer, or the connection.

It runs on loopback in a thread of its own. What it disturbs is one request at a time: the one that a test names
(`Proxy.inject`), or whatever a program draws (`Proxy.draw`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from durastore.conformance.framing import Framing
from durastore.conformance.routes import Route, route_of

__all__ = ["FAULTS", "Fault", "Proxy"]

Fault = Literal["drop", "lose", "reset", "refuse", "throttle", "deny", "delay"]
FAULTS: tuple[Fault, ...] = ("drop", "lose", "reset", "refuse", "throttle", "deny", "delay")
"""The request never arrives; its answer does not; half its answer does; the store says "unavailable"; it says "too much"; it
says "you have no right to that", which no trying again mends; the request is late."""
DELAY_SECONDS = 0.05
_CHUNK = 65536
_START_SECONDS_MAX = 10.0
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: a closed connection is reset."""


class Proxy:
    """Listens in front of the server of a route. A context manager."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.draw: Callable[[], Fault | None] = lambda: None
        """Asked for each request for which nothing was injected."""
        self.injected: Counter[str] = Counter()
        """Faults that took effect, by kind."""
        self.requests = 0
        self._plans: deque[tuple[int, Fault]] = deque()
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._down = False
        self._loop = asyncio.new_event_loop()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._serving = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="durastore-proxy", daemon=True)
        self._thread.start()
        assert self._serving.wait(_START_SECONDS_MAX), "the proxy listens"

    @classmethod
    def before(cls, url: str) -> Proxy:
        """In front of the server of a URL. Raises `ValueError` when there is no way between (TLS, no network)."""
        route = route_of(url)
        if route is None:
            raise ValueError("there is nothing to stand in front of")
        return cls(route)

    def through(self, url: str) -> str:
        """The URL of the same store, by way of this proxy."""
        return self.route.through(url, self._listener.getsockname()[1])

    def inject(self, fault: Fault, *, after: int = 0, times: int = 1) -> None:
        """Disturb the next requests, but for the first `after`."""
        with self._lock:
            self._plans.extend([(after, fault), *[(0, fault)] * (times - 1)])

    def lose_answers(self, number: int = 1, *, after: int = 0) -> None:
        """`inject` what is asked for most."""
        self.inject("lose", after=after, times=number)

    def lost_all(self) -> bool:
        """Whether all that was injected has found its request."""
        return not self._plans

    def calm(self) -> None:
        """Forget what was injected and has not happened."""
        with self._lock:
            self._plans.clear()

    @contextmanager
    def counted(self) -> Iterator[Callable[[], int]]:
        """How many requests were sent since the beginning of the block."""
        before = self.requests
        yield lambda: self.requests - before

    def sever(self) -> None:
        """Cut every connection, idle or not, as a server does that kills them."""
        self._on_loop(self._cut_all)

    def _cut_all(self) -> None:
        for link in list(self._links):
            link.cut()

    @contextmanager
    def out_of_reach(self) -> Iterator[None]:
        """The store does not answer: connections are cut, and new ones are refused."""
        self._down = True
        self.sever()
        try:
            yield
        finally:
            self._down = False

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._on_loop(self._loop.stop)
        self._thread.join(_START_SECONDS_MAX)

    def _on_loop(self, work: Callable[[], object]) -> None:
        done = threading.Event()

        def call() -> None:
            work()
            done.set()

        with suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(call)
            done.wait(_START_SECONDS_MAX)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, sock=self._listener))
        self._serving.set()
        self._loop.run_forever()
        server.close()
        self._cut_all()
        if pending := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(pending, timeout=_START_SECONDS_MAX))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._down:
                raise ConnectionRefusedError
            there = await asyncio.open_connection(self.route.host, self.route.port)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), there, self.route.framing())
        self._links.add(link)
        try:
            await asyncio.gather(link.forth(), link.back())
        finally:
            link.cut()
            self._links.discard(link)

    def next_fault(self) -> Fault | None:
        """What becomes of the request that is whole now."""
        with self._lock:
            self.requests += 1
            if not self._plans:
                return self.draw()
            after, fault = self._plans[0]
            if after:
                self._plans[0] = (after - 1, fault)
                return None
            self._plans.popleft()
            return fault


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One client's connection, and its counterpart to the server."""

    def __init__(self, proxy: Proxy, client: Ends, server: Ends, framing: Framing) -> None:
        self._proxy, self._framing = proxy, framing
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._losing: dict[int, Fault] = {}

    def cut(self) -> None:
        """Both halves, at once."""
        self._to_client.transport.abort()
        self._to_server.transport.abort()

    async def forth(self) -> None:
        """From the client to the server, until either ends."""
        with suppress(OSError):
            while data := await self._from_client.read(_CHUNK):
                for piece in self._framing.sent(data):
                    if piece.reply:
                        self._to_client.write(piece.reply)
                    elif not await self._request(piece.data, piece.stream):
                        return self.cut()
                await self._to_server.drain()
        return self.cut()

    async def _request(self, data: bytes, stream: int | None) -> bool:
        """Pass a request on, or what its fault makes of it. False: the connection ends."""
        fault = None if stream is None else self._proxy.next_fault()
        if fault is None or stream is None:
            self._to_server.write(data)
            return True
        if fault in ("lose", "reset"):
            self._losing[stream] = fault
            self._to_server.write(data)
            return True
        self._proxy.injected[fault] += 1
        if fault == "drop":
            return False
        if fault == "delay":
            await asyncio.sleep(DELAY_SECONDS)
            self._to_server.write(data)
            return True
        return await self._refuse(fault, stream)

    async def _refuse(self, fault: Fault, stream: int) -> bool:
        told, asked = self._framing.refusal(fault, stream)
        self._to_server.write(asked)
        self._to_client.write(told)
        await self._to_client.drain()
        if self._framing.ends_on_refusal:
            self._to_client.close()  # what was said arrives first
            await self._to_client.wait_closed()
        return not self._framing.ends_on_refusal

    async def back(self) -> None:
        """From the server to the client, until either ends."""
        with suppress(OSError):
            while data := await self._from_server.read(_CHUNK):
                for piece in self._framing.answered(data):
                    fault = None if piece.stream is None else self._losing.pop(piece.stream, None)
                    if fault is not None:
                        self._proxy.injected[fault] += 1
                        return await self._lose(piece.data, fault)
                    self._to_client.write(piece.data)
                await self._to_client.drain()
        return self.cut()

    async def _lose(self, answer: bytes, fault: Fault) -> None:
        if fault == "reset":
            self._to_client.write(answer[: len(answer) // 2])
            await self._to_client.drain()
            self._to_client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.cut()
