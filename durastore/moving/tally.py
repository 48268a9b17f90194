"""Counts of what became of the things that were moved, and why some were refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from durastore.moving.things import DIGEST_BITS

__all__ = ["Refusal", "Report", "Tally"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that was not moved."""

    name: str
    """``key 'charge:order-17'`` or ``run 'invoices'``."""
    reason: str


@dataclass(slots=True)
class Tally:
    """Counts. A thing is one of `placed` and `same`, or was refused: `conflicts`, `damaged`."""

    keys: int = 0
    """Keys that were looked at."""
    runs: int = 0
    placed: int = 0
    """Things that are new at the destination; in a dry run, that would be."""
    same: int = 0
    """Things that were there already, exactly so."""
    conflicts: int = 0
    """Keys and runs that the destination knows otherwise."""
    damaged: int = 0
    """Things whose payload cannot be read, or does not fit."""
    bytes: int = 0
    """Bytes of payloads, as they travel."""
    total: int = field(default=0, repr=False)
    """The sum of the digests of all that was looked at and could be read."""

    @property
    def digest(self) -> str:
        """The digest of all things together."""
        return f"{self.total:064x}"

    @property
    def refused(self) -> int:
        """Things that were not moved."""
        return self.conflicts + self.damaged

    def add(self, other: Tally) -> None:
        """Add the counts of another part of the move."""
        for name in ("keys", "runs", "placed", "same", "conflicts", "damaged", "bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.add_digest(other.total)

    def add_digest(self, digest: int) -> None:
        """Add one thing's digest."""
        self.total = (self.total + digest) % (1 << DIGEST_BITS)

    def as_json(self) -> dict[str, Any]:
        """For the journal and for programs."""
        fields = asdict(self)
        del fields["total"]
        return {**fields, "digest": self.digest}

    @classmethod
    def of_json(cls, fields: dict[str, Any]) -> Tally:
        """What `as_json` wrote."""
        return cls(
            **{name: value for name, value in fields.items() if name != "digest"}, total=int(fields["digest"], 16)
        )


Report = Callable[[Tally, Refusal | None], None]
"""Called after each portion with the counts so far, and at once for each thing that is refused."""
