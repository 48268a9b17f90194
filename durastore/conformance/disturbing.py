"""Ways to lose a request or its answer: on the wire, with the process that asked, or inside the process.

On the wire (`Proxy`) wherever a client speaks to its store over a network that we can stand in. Where there is none, such as
SQLite's file, or none to look into, such as TLS, the process that asked is killed after the store has written and before it
could tell anyone; another then asks the same. A store that no other process can open loses answers inside this one.
"""

from __future__ import annotations

import base64
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from durastore import urls
from durastore.conformance.client import nonce
from durastore.conformance.environment import inherited
from durastore.conformance.harness import Harness
from durastore.conformance.proxy import Fault, Proxy
from durastore.conformance.surface import surfaced
from durastore.contract import Backend
from durastore.errors import DurastoreError, StoreUnavailable
from durastore.store import Store

__all__ = ["Case", "Way", "disturbed"]

REQUESTS_MAX = 4
"""At how many requests of a call its answer is lost: a verb takes fewer, but for a sweep, which repeats itself."""
_FAULTS: tuple[Fault, ...] = ("drop", "reset", "refuse", "throttle")
PATIENCE = 2.0
"""Seconds that a verb is called again inside this process, where nothing takes long."""
_WEATHER: tuple[Fault, ...] = ("drop", "lose", "lose", "reset", "refuse", "throttle")
SEED = 7
RATE = 1 / 6
"""Of requests that are disturbed in bad weather. To connect and to commit may take eight."""


@dataclass(slots=True)
class Case:
    """One call to be disturbed, in one way, at one of its requests. `key` is a key that no other case uses."""

    way: Way
    kind: str
    request: int
    key: str
    hit: bool = False
    """Whether there was such a request."""

    @property
    def store(self) -> Store:
        """The store that is called; nothing but `call` is disturbed."""
        return self.way.store

    def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Call a verb as the store does for its users: tried again until it is answered."""
        answer, self.hit = self.way.call(self, verb, args, kwargs)
        return answer

    def __repr__(self) -> str:
        return f"{self.kind} at request {self.request + 1}"


class Way(Protocol):
    """A way to disturb calls."""

    store: Store

    def call(self, case: Case, verb: str, args: Sequence[Any], kwargs: Any) -> tuple[Any, bool]:
        """The answer in the end, and whether the call was disturbed."""
        ...

    def cases(self, requests: int = REQUESTS_MAX) -> Iterator[Case]:
        """All cases, each with a key of its own; an answer is lost to so many of a call's requests, one after another."""
        ...

    def bad_weather(self) -> None:
        """From now on requests are disturbed at random."""
        ...

    def out_of_reach(self) -> AbstractContextManager[None]:
        """No request arrives, and no connection is made."""
        ...


@contextmanager
def disturbed(harness: Harness) -> Iterator[Way]:
    """The way that fits the store."""
    with ExitStack() as stack:
        if harness.url is None:
            yield _Inside(harness.open())
            return
        try:
            proxy = stack.enter_context(Proxy.before(harness.url))
        except ValueError:
            yield _Dying(harness.url, harness.open())
            return
        backend = urls.connect(urls.parse(proxy.through(harness.url)))
        yield OnTheWire(proxy, stack.enter_context(surfaced(Store(backend))))


class OnTheWire:
    """By a proxy: the answer to each request of a call, one after another; the rest at the first request."""

    def __init__(self, proxy: Proxy, store: Store) -> None:
        self.proxy, self.store = proxy, store
        store.call("time", store.backend.time)  # connections are there

    def call(self, case: Case, verb: str, args: Sequence[Any], kwargs: Any) -> tuple[Any, bool]:
        self.proxy.inject(case.kind, after=case.request)  # type: ignore[arg-type]  # one of ours
        try:
            answer = self.store.call(verb, getattr(self.store.backend, verb), *args, **kwargs)
            return answer, self.proxy.lost_all()
        finally:
            self.proxy.calm()

    def cases(self, requests: int = REQUESTS_MAX) -> Iterator[Case]:
        for number in range(requests):
            case = Case(self, "lose", number, nonce())
            yield case
            if not case.hit:
                break
        for kind in _FAULTS:
            yield Case(self, kind, 0, nonce())

    def bad_weather(self) -> None:
        drawn = random.Random(SEED)  # noqa: S311  a program, not a secret
        self.proxy.draw = lambda: drawn.choice(_WEATHER) if drawn.random() < RATE else None

    def out_of_reach(self) -> AbstractContextManager[None]:
        return self.proxy.out_of_reach()


class _Inside:
    """Inside this process: the store has answered, or was not asked, and the caller hears of a broken connection."""

    kinds: Sequence[str] = ("lose", "drop")

    def __init__(self, backend: Backend) -> None:
        self._breaking = _Breaking(backend)
        store = Store(self._breaking)
        store.deadlines = dict.fromkeys(("claim", "renew", "commit", "transact", "save"), PATIENCE)
        self.store = surfaced(store)

    def call(self, case: Case, verb: str, args: Sequence[Any], kwargs: Any) -> tuple[Any, bool]:
        self._breaking.planned.append(case.kind)
        answer = self.store.call(verb, getattr(self.store.backend, verb), *args, **kwargs)
        return answer, not self._breaking.planned

    def cases(self, requests: int = REQUESTS_MAX) -> Iterator[Case]:  # noqa: ARG002  as on the wire
        for kind in self.kinds:
            yield Case(self, kind, 0, nonce())

    def bad_weather(self) -> None:
        drawn = random.Random(SEED)  # noqa: S311  a program, not a secret
        self._breaking.draw = lambda: drawn.choice(("drop", "lose")) if drawn.random() < RATE else ""

    @contextmanager
    def out_of_reach(self) -> Iterator[None]:
        self._breaking.draw = lambda: "drop"
        try:
            yield
        finally:
            self._breaking.draw = lambda: ""


class _Dying(_Inside):
    """By SIGKILL of the process that asked, between the store's write and its answer."""

    kinds = ("dies",)

    def __init__(self, url: str, backend: Backend) -> None:
        super().__init__(backend)
        self._url = url

    def call(self, case: Case, verb: str, args: Sequence[Any], kwargs: Any) -> tuple[Any, bool]:  # noqa: ARG002  as its parent
        _die_after(self._url, verb, args, kwargs)
        return self.store.call(verb, getattr(self.store.backend, verb), *args, **kwargs), True


def _die_after(url: str, verb: str, args: Sequence[Any], kwargs: Any) -> None:
    line = base64.b64encode(pickle.dumps((url, verb, args, kwargs)))
    command = [sys.executable, "-m", "durastore.conformance.disturbing"]
    done = subprocess.run(command, input=line, env=inherited(), check=False, capture_output=True)  # noqa: S603  ourselves
    assert done.returncode == -signal.SIGKILL, f"the process dies after {verb}: {done.stderr.decode()[-500:]}"


class _Lost(Exception):
    pass


class _Breaking:
    """A backend whose caller does not always hear the answer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.planned: list[str] = []
        self.draw: Callable[[], str] = lambda: ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found) or name in ("close", "forked"):
            return found

        def verb(*args: Any, **kwargs: Any) -> Any:
            kind = self.planned.pop() if self.planned else self.draw()
            answer = None if kind == "drop" else found(*args, **kwargs)
            if kind:
                raise _Lost("the connection broke")
            return answer

        return verb

    def classify(self, error: Exception) -> DurastoreError | None:
        """A broken connection passes."""
        return StoreUnavailable(str(error)) if isinstance(error, _Lost) else self._backend.classify(error)


def main() -> None:
    """Call one verb, and be killed before anybody hears its answer."""
    import os

    url, verb, args, kwargs = pickle.loads(base64.b64decode(sys.stdin.buffer.read()))  # noqa: S301  written by our parent
    getattr(urls.connect(urls.parse(url)), verb)(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
