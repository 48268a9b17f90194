"""Text that others wrote, made safe to show: no terminal escape, newline or bidirectional trick survives."""

from __future__ import annotations

__all__ = ["visible"]


def visible(text: str) -> str:
    """The text with everything that is not plainly visible written as an escape."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
