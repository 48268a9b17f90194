"""A gRPC interceptor that records every RPC, and loses answers or refuses calls when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc


class Refused(grpc.RpcError, grpc.Call):  # type: ignore[misc]  # grpc.Call is abstract in its stubs alone
    """What a caller gets instead of an answer."""

    def __init__(self, code: grpc.StatusCode, details: str = "by the test") -> None:
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


class Wiretap(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]  # untyped bases
    """Records the names of the RPCs, in order. Thread-safe."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.requests: list[Any] = []
        self._lost: list[grpc.StatusCode] = []
        self._refused: list[grpc.StatusCode] = []
        self._before: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def taken(self) -> list[str]:
        """The RPCs since the last look."""
        with self._lock:
            calls, self.calls = self.calls, []
            self.requests = []
        return calls

    def lose(self, code: grpc.StatusCode, times: int = 1) -> None:
        """The next writes are applied, and answered with an error."""
        self._lost += [code] * times

    def refuse(self, code: grpc.StatusCode, times: int = 1) -> None:
        """The next writes are not sent, and answered with an error."""
        self._refused += [code] * times

    def before_commit(self, action: Callable[[], None]) -> None:
        """Do something between the next commit's decision and its arrival."""
        self._before.append(action)

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self._note(details, request)
        if self._before:
            self._before.pop(0)()
        if self._refused:
            raise Refused(self._refused.pop(0))
        call = continuation(details, request)
        if self._lost:
            call.result()
            raise Refused(self._lost.pop(0), "the answer was lost")
        return call

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        self._note(details, request)
        return continuation(details, request)

    def _note(self, details: Any, request: Any) -> None:
        name = details.method.rpartition("/")[2]
        with self._lock:
            self.calls.append(name)
            self.requests.append(request)
