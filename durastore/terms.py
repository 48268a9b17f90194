"""How a key is run, what a probe answers, and what a caller gets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, Union

from durastore.claims import Claim
from durastore.errors import ConfigError
from durastore.shapes import Shape

__all__ = ["Found", "InDoubtPolicy", "NotFound", "Outcome", "Probe", "Status", "Terms", "Unknown"]

R = TypeVar("R")
Status: TypeAlias = Literal["executed", "skipped", "awaited", "recovered"]


@dataclass(frozen=True, slots=True)
class Found:
    """A probe's answer: the effect has happened, and this is its result."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """A probe's answer: the effect has not happened and will not; it may run now."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A probe's answer: the far side cannot tell, so nothing may run."""


Probe: TypeAlias = Callable[[Claim], Any]
InDoubtPolicy: TypeAlias = Union[Literal["rerun", "halt"], Probe]  # noqa: UP007  evaluated on 3.10


if TYPE_CHECKING or sys.version_info >= (3, 11):

    class Outcome(NamedTuple, Generic[R]):
        """What became of a key: its decoded value, and how this call came by it."""

        value: R
        status: Status

else:  # Python 3.10 has no generic named tuples; subscripting is for type checkers alone

    class Outcome(NamedTuple):
        """What became of a key: its decoded value, and how this call came by it."""

        value: Any
        status: Status

        @classmethod
        def __class_getitem__(cls, _item):  # noqa: ANN001, ANN206
            return cls


@dataclass(frozen=True, slots=True)
class Terms:
    """How a key is run; see `Store.checkpoint`. Times in seconds."""

    lease: float = 60.0
    wait: float = 30.0
    in_doubt: InDoubtPolicy = "rerun"
    retain: float | None = None
    max_attempts: int | None = None
    budget: float | None = None
    returns: Shape | None = None
    """What results are decoded into; None leaves them as the codec has them."""

    def __post_init__(self) -> None:
        for name in ("lease", "wait", "retain", "budget"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"{name} is a number of seconds, 0 or more, not {value!r}")
        if self.in_doubt not in ("rerun", "halt") and not callable(self.in_doubt):
            raise ConfigError(f"in_doubt is 'rerun', 'halt' or a probe to call, not {self.in_doubt!r}")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ConfigError(f"max_attempts is 1 or more, not {self.max_attempts!r}")
