"""What the suite found on one store, clause by clause. Knows nothing of pytest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from durastore.conformance.catalogue import group_of

__all__ = ["ClauseResult", "Report", "Status"]

Status = Literal["pass", "fail", "not run"]
FORMAT = 1


@dataclass(frozen=True, slots=True)
class ClauseResult:
    """One clause: whether all its tests passed, and if not, why."""

    clause: str
    text: str
    status: Status
    reason: str = ""
    """What failed first, or why it was not run."""
    tests: int = 0
    overridden: Sequence[str] = ()
    """Why a test of the suite was replaced by another, as its author declared."""


@dataclass(frozen=True, slots=True)
class Report:
    """Conformant means: every clause passed, and nothing stood in the suite's way."""

    suite: str
    about: Mapping[str, str]
    """The store, its URL without password, and versions."""
    clauses: Sequence[ClauseResult]
    problems: Sequence[str] = ()
    """What makes the report void, whatever the clauses say: nothing collected, an undeclared override, …"""
    notes: Sequence[str] = ()
    """What a reader should know, such as races that ran with threads."""
    seconds: float = 0.0
    format: int = field(default=FORMAT)

    @property
    def conformant(self) -> bool:
        """Whether this report may be shown to others."""
        return bool(self.clauses) and not self.problems and all(result.status == "pass" for result in self.clauses)

    @property
    def exit_code(self) -> int:
        """0 when conformant, else 1."""
        return 0 if self.conformant else 1

    @property
    def store(self) -> str:
        """The kind of store, as its URL names it."""
        return self.about.get("store", "unknown store")

    def count(self, status: Status) -> int:
        """How many clauses have a status."""
        return sum(result.status == status for result in self.clauses)

    def groups(self) -> Mapping[str, list[ClauseResult]]:
        """The results by clause group, in the contract's order."""
        found: dict[str, list[ClauseResult]] = {}
        for result in self.clauses:
            found.setdefault(group_of(result.clause), []).append(result)
        return found

    def to_json(self) -> str:
        """The report for programs; `from_json` reads it."""
        return json.dumps({"conformant": self.conformant, **asdict(self)}, indent=2) + "\n"

    def to_text(self) -> str:
        """The report for a terminal: control characters are escaped."""
        from durastore.conformance.rendering import text

        return text(self)

    def to_markdown(self) -> str:
        """The report for a page: markup in names and failure texts is escaped."""
        from durastore.conformance.rendering import markdown

        return markdown(self)

    @classmethod
    def from_json(cls, source: str) -> Report:
        """A report as `to_json` wrote it. Whether it is conformant is judged anew. Raises `ValueError` for anything else."""
        loaded = json.loads(source)
        if not isinstance(loaded, dict) or loaded.get("format") != FORMAT:
            raise ValueError(f"not a conformance report of format {FORMAT}")
        return cls(**(_without(loaded, "conformant", "clauses") | {"clauses": _results(loaded["clauses"])}))


def _results(loaded: Sequence[Mapping[str, Any]]) -> tuple[ClauseResult, ...]:
    return tuple(ClauseResult(**result) for result in loaded)


def _without(loaded: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in loaded.items() if name not in names}
