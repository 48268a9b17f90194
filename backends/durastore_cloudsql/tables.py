"""The names of durastore's tables: a prefix and, if given, a schema, checked so that nothing else gets into a statement."""

from __future__ import annotations

import re
from dataclasses import dataclass

from durastore.errors import ConfigError

__all__ = ["Tables"]

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,29}")


@dataclass(frozen=True, slots=True)
class Tables:
    """Which tables to use. Raises `ConfigError` for a name that is not 1 to 30 of ``a-z 0-9 _``."""

    prefix: str = "durastore_"
    schema: str | None = None

    def __post_init__(self) -> None:
        for what, name in (("table_prefix", self.prefix), ("schema", self.schema)):
            if name is not None and not _NAME.fullmatch(name):
                raise ConfigError(f"{what} is 1 to 30 of a-z 0-9 _, not beginning with a digit, and not {name!r}")

    def name(self, table: str) -> str:
        """A table's name, with its schema."""
        return f"{'' if self.schema is None else self.schema + '.'}{self.prefix}{table}"

    @property
    def words(self) -> dict[str, str]:
        """The tables by what they are called in the ``.sql`` files; ``…_index`` is a name without the schema, for indexes."""
        names = ("records", "runs", "chunks", "version", "claim", "commit", "done")
        return {name: self.name(name) for name in names} | {f"{name}_index": self.prefix + name for name in names}
