"""The four RPCs that the backend uses, with a timeout on each, and the server's clock read off every answer.

Nothing is retried here: a verb is repeated as a whole by the store, which recognises its own earlier success. The official client
would retry a `Commit` whose answer was lost for a minute, and fail its own condition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from durastore_firestore import wire
from durastore_firestore.forks import GATE
from durastore_firestore.target import Target
from durastore_firestore.wire import Message

__all__ = ["Rpc", "Seen", "ServerClock", "is_stale"]

_SERVICE = "/google.firestore.v1.Firestore/"
_LARGE = 6
"""How many times longer an RPC that moves megabytes may take."""
_FEW = 10
"""Documents whose bytes are read within the time for a small RPC."""
_WRITES_MAX = 500
"""Writes in one BatchWrite."""
_STALE = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
    }
)
_left_alone: list[grpc.Channel] = []
"""The parent's channels, in a forked child: neither used nor closed, nor closed by the garbage collector."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one read answered: documents by name (absent ones are left out), and the server's time, in microseconds."""

    documents: dict[str, Message]
    read_time: int


def is_stale(error: grpc.RpcError) -> bool:
    """Whether a commit failed because a document is not as it was, or somebody else was writing it."""
    return error.code() in _STALE


class ServerClock:
    """An estimate of the server's time from its last answer. Nothing that must be right depends on it."""

    def __init__(self) -> None:
        self._seen = (0, 0, 0)

    def observe(self, server: int) -> None:
        """Note the time of an answer."""
        self._seen = (server, _monotonic(), _wall())

    def estimate(self) -> int:
        """Microseconds. The wall clock counts too, since a frozen sandbox's monotonic clock stands still."""
        server, monotonic, wall = self._seen
        if not server:
            return _wall()
        return server + max(_monotonic() - monotonic, _wall() - wall, 0)


def _monotonic() -> int:
    return time.monotonic_ns() // 1000


def _wall() -> int:
    return time.time_ns() // 1000


class _Calls:
    """The RPCs of one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.commit = _method(channel.unary_unary, "Commit", wire.CommitRequest, wire.CommitResponse)
        self.batch = _method(channel.unary_unary, "BatchWrite", wire.BatchWriteRequest, wire.BatchWriteResponse)
        self.get = _method(
            channel.unary_stream, "BatchGetDocuments", wire.BatchGetDocumentsRequest, wire.BatchGetDocumentsResponse
        )
        self.query = _method(channel.unary_stream, "RunQuery", wire.RunQueryRequest, wire.RunQueryResponse)


def _method(kind: Callable[..., Any], name: str, request: Any, response: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = kind(
        _SERVICE + name, request_serializer=request.SerializeToString, response_deserializer=response.FromString
    )
    return made


class Rpc:
    """Calls to one database, over one channel that all threads share."""

    def __init__(self, target: Target, interceptors: Sequence[Any] = ()) -> None:
        self.target = target
        self.clock = ServerClock()
        self._interceptors = interceptors
        self._metadata = target.metadata
        self._lock = threading.Lock()
        self._opened: _Calls | None = None

    @property
    def channel(self) -> grpc.Channel:
        """The channel, opened at its first use."""
        return self._calls.channel

    @property
    def _calls(self) -> _Calls:
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = self._open()
        return self._opened

    def _open(self) -> _Calls:
        channel = self.target.channel()
        return _Calls(grpc.intercept_channel(channel, *self._interceptors) if self._interceptors else channel)

    def commit(self, writes: Sequence[Message], *, large: bool = False) -> list[int]:
        """All writes or none. Answers each document's update time, and its commit time for a deletion."""
        request = wire.CommitRequest(database=self.target.path, writes=writes)
        with GATE:
            answer = self._calls.commit(request, timeout=self._timeout(large), metadata=self._metadata)
        committed = wire.micros(answer.commit_time)
        self.clock.observe(committed)
        return [wire.micros(result.update_time) or committed for result in answer.write_results]

    def each(self, writes: Sequence[Message]) -> list[int | None]:
        """Each write on its own, in one round trip for up to 500; answers their update times, None where it did not land."""
        times: list[int | None] = []
        for start in range(0, len(writes), _WRITES_MAX):
            request = wire.BatchWriteRequest(database=self.target.path, writes=writes[start : start + _WRITES_MAX])
            with GATE:
                answer = self._calls.batch(request, timeout=self._timeout(large=False), metadata=self._metadata)
            times += [
                None if status.code else wire.micros(result.update_time)
                for status, result in zip(answer.status, answer.write_results, strict=True)
            ]
        return times

    def attempt(self, writes: Sequence[Message]) -> list[int] | None:
        """Commit; None, and nothing written, when a condition does not hold."""
        try:
            return self.commit(writes)
        except grpc.RpcError as error:
            if not is_stale(error):
                raise
            return None

    def get(self, names: Iterable[str]) -> Seen:
        """These documents, strongly consistent, as of one time."""
        documents = list(dict.fromkeys(names))
        request = wire.BatchGetDocumentsRequest(database=self.target.path, documents=documents)
        timeout = self._timeout(len(documents) > _FEW)
        with GATE:
            answers = list(self._calls.get(request, timeout=timeout, metadata=self._metadata))
        found = {answer.found.name: answer.found for answer in answers if answer.HasField("found")}
        return self._seen(found, answers)

    def query(self, parent: str, query: Message, *, large: bool = False) -> Seen:
        """The documents below `parent` that match, in the query's order."""
        request = wire.RunQueryRequest(parent=parent, structured_query=query)
        with GATE:
            answers = list(self._calls.query(request, timeout=self._timeout(large), metadata=self._metadata))
        found = {answer.document.name: answer.document for answer in answers if answer.HasField("document")}
        return self._seen(found, answers)

    def _seen(self, found: dict[str, Message], answers: Sequence[Message]) -> Seen:
        read_time = max(wire.micros(answer.read_time) for answer in answers)
        self.clock.observe(read_time)
        return Seen(found, read_time)

    def _timeout(self, large: bool) -> float:
        return self.target.timeout * (_LARGE if large else 1)

    def forked(self) -> None:
        """In a forked child: leave the parent's channel alone; the next call opens one of our own."""
        if self._opened is not None:
            _left_alone.append(self._opened.channel)
        self._opened = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the channel."""
        if self._opened is not None:
            self._opened.channel.close()
