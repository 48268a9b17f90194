"""The backend's statements and migrations, read from the ``.sql`` files beside this module."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["migrations", "statements"]


@cache
def statements() -> dict[str, str]:
    """The statements of ``statements.sql``, by name."""
    text = files("durastore_sqlite").joinpath("statements.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def migrations() -> list[tuple[int, str]]:
    """The migrations, in order: number and script."""
    folder = files("durastore_sqlite").joinpath("migrations")
    found = [
        (int(file.name[:4]), file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)
