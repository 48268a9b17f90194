"""Steps: what a protocol asks of whoever runs it, so that threads and event loops share one protocol.

A protocol is a generator that yields steps (something to do that may block) and is sent what came of them, or has the exception
thrown in. :func:`drive` runs one in a thread; `durastore.aio` has the driver for event loops.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from durastore.claims import Claim, under
from durastore.clock import Clock

__all__ = ["Effect", "Inline", "Pause", "Step", "Steps", "drive"]

T = TypeVar("T")


class Pause:
    """A step: wait for some seconds."""

    __slots__ = ("clock", "seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds

    def __call__(self) -> None:
        self.clock.sleep(self.seconds)


class Effect:
    """A step: run the user's code under its claim."""

    __slots__ = ("claim", "function")

    def __init__(self, claim: Claim, function: Callable[[], Any]) -> None:
        self.claim = claim
        self.function = function

    def __call__(self) -> Any:
        return under(self.claim, self.function)


class Inline:
    """A step: user code that is no side effect (the next input, a callback); run where the caller runs."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def __call__(self) -> Any:
        return self.function()


Step: TypeAlias = Callable[[], Any]
"""`Effect`, `Inline` and `Pause` are what they say; any other callable is a call of the store, which may block."""
Steps: TypeAlias = Generator[Step, Any, T]


def drive(steps: Steps[T]) -> T:
    """Run the protocol in this thread."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(value) if error is None else steps.throw(error)
            value = error = None
            try:
                value = step()
            except BaseException as exc:  # noqa: BLE001  the protocol decides, also about interrupts
                error = exc
        except StopIteration as stop:
            result: T = stop.value
            return result
        except BaseException as exc:
            import inspect

            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:  # raised by the protocol itself
                raise
            error = exc  # an interrupt between two steps
