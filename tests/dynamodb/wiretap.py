"""What a client sends, watched and disturbed at botocore's ``before-send`` event: one call for each HTTP request."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from io import BytesIO
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

Action = Callable[[], object]
LOST = {"closed": ConnectionClosedError, "timeout": ReadTimeoutError}
"""Ways to lose an answer, as botocore names them."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One HTTP request."""

    operation: str
    body: dict[str, Any]
    date: str
    """``X-Amz-Date``: when it was signed."""


@dataclass(slots=True)
class Wiretap:
    """Records requests in order; loses answers, refuses requests, and moves the store's clock. Thread-safe."""

    sent: list[Sent] = field(default_factory=list)
    shift: float = 0.0
    """Seconds by which the store's ``Date`` is ahead of this machine's clock. The store has no other clock."""
    stands_at: float | None = None
    """Seconds since the epoch at which the store's clock stands still, before `shift`; None: it goes."""
    endpoint: str = ""
    only: str = ""
    """Disturb requests of this operation alone."""
    _plans: deque[tuple[str, Any]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _session: Any = None

    def attach(self, client: Any) -> Wiretap:
        """Watch this client."""
        self._session = client._endpoint.http_session
        self.endpoint = client.meta.endpoint_url
        client.meta.events.register("before-send.dynamodb", self._send)
        return self

    def taken(self) -> list[str]:
        """The operations since the last look, one for each HTTP request."""
        return [sent.operation for sent in self.requests()]

    def requests(self) -> list[Sent]:
        """The requests since the last look."""
        with self._lock:
            sent, self.sent = self.sent, []
        return sent

    def lose(self, times: int = 1, how: str = "closed") -> None:
        """The next requests are applied, and their answers do not arrive."""
        self._plans.extend([("lose", how)] * times)

    def refuse(self, code: str, status: int = 400, times: int = 1, **more: Any) -> None:
        """The next requests are not sent, and answered with an error."""
        self._plans.extend([("refuse", (code, status, more))] * times)

    def drop(self, times: int = 1, how: str = "closed") -> None:
        """The next requests do not arrive."""
        self._plans.extend([("drop", how)] * times)

    def before(self, action: Action) -> None:
        """Do something between the next request's decision and its arrival."""
        self._plans.append(("before", action))

    def let_through(self, times: int = 1) -> None:
        """The next requests are not disturbed; what was planned after this is for those that follow."""
        self._plans.extend([("pass", None)] * times)

    @property
    def idle(self) -> bool:
        """Whether all that was planned has happened."""
        return not self._plans

    @property
    def pending(self) -> int:
        """How much of what was planned has not happened."""
        return len(self._plans)

    def _send(self, request: Any, **_: Any) -> Any:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        body = json.loads(request.body or b"{}")
        with self._lock:
            self.sent.append(Sent(operation, body, request.headers["X-Amz-Date"].decode()))
            plan = self._plans.popleft() if self._plans and self.only in ("", operation) else ("pass", None)
        return self._follow(request, *plan)

    def _follow(self, request: Any, what: str, detail: Any) -> Any:
        if what == "refuse":
            return self._refusal(request, *detail)
        if what == "before":
            detail()
        if what != "drop":
            answer = self._shifted(self._session.send(request))
        if what in ("lose", "drop"):
            raise LOST[detail](endpoint_url=self.endpoint)
        return answer

    def _shifted(self, answer: Any) -> Any:
        date = parsedate_to_datetime(answer.headers["Date"]).timestamp() if self.stands_at is None else self.stands_at
        del answer.headers["Date"]
        answer.headers["Date"] = formatdate(date + self.shift, usegmt=True)
        return answer

    def _refusal(self, request: Any, code: str, status: int, more: dict[str, Any]) -> AWSResponse:
        import time

        body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "by the test", **more}
        headers: Any = {"Date": formatdate(time.time() + self.shift, usegmt=True)}
        return AWSResponse(request.url, status, headers, _Body(json.dumps(body).encode()))


class _Body(BytesIO):
    """What urllib3's answer is to botocore."""

    def stream(self, **_: Any) -> Any:
        yield self.read()
