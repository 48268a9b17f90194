"""SQL in files of its own: named statements and numbered migrations beside a backend's code.

A statement stands below a line ``-- name: NAME``, up to the next such line. ``{word}`` in it is replaced, so that a table's name
or a fragment that several statements share is written once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

__all__ = ["migrations", "split", "statements"]


def statements(package: str, file: str, words: Mapping[str, str] | None = None) -> dict[str, str]:
    """The statements of a package's file, by name, with ``{word}`` replaced."""
    text = files(package).joinpath(file).read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    found = zip(parts[::2], parts[1::2], strict=True)
    return {name: body.strip() if words is None else body.strip().format_map(words) for name, body in found}


def migrations(package: str, folder: str, words: Mapping[str, str] | None = None) -> list[tuple[int, str]]:
    """The migrations of a package's folder, in order: number (the first four digits of its name) and script."""
    scripts = [file for file in files(package).joinpath(folder).iterdir() if file.name.endswith(".sql")]
    texts = sorted((int(script.name[:4]), script.read_text(encoding="utf-8")) for script in scripts)
    return [(number, text if words is None else text.format_map(words)) for number, text in texts]


def split(script: str) -> list[str]:
    """The single statements of a script whose statements end with a line that ends with a semicolon."""
    parts = re.split(r";[ \t]*(?:\n|$)", re.sub(r"^--.*\n", "", script, flags=re.MULTILINE))
    return [part.strip() for part in parts if part.strip()]
