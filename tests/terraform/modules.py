"""What the modules' sources say of themselves, and the tables of their READMEs.

``python -m tests.terraform.modules`` writes the tables anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "MODULES", "Block", "blocks", "readme_with_tables", "refusals"]

FOLDER = Path(__file__).parents[2] / "terraform"
MODULES = sorted(path.name for path in FOLDER.iterdir() if (path / "variables.tf").exists())
_BLOCK = re.compile(r'^(?P<kind>variable|output) "(?P<name>\w+)" \{\n(?P<body>.*?)^\}', re.MULTILINE | re.DOTALL)
_ARGUMENT = r"^  {} += (?P<value>.*?)(?=^  \w|^\s*$|\Z)"
_REFUSAL = re.compile(r'^    error_message = "(.*)"$', re.MULTILINE)
_TABLES = re.compile(r"(?<=<!-- tables -->\n).*?(?=<!-- end of tables -->)", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A variable or an output, as it is written."""

    name: str
    body: str

    def argument(self, name: str) -> str | None:
        """An argument's expression in one line; None where there is none."""
        found = re.search(_ARGUMENT.format(name), self.body, re.MULTILINE | re.DOTALL)
        if not found:
            return None
        lines = [" ".join(line.split()) for line in found["value"].strip().splitlines()]
        return ", ".join(lines).replace("({,", "({").replace(", })", " })").replace("({ ,", "({")

    @property
    def description(self) -> str:
        return (self.argument("description") or "").strip('"')


def blocks(module: str, kind: str) -> list[Block]:
    """The variables or the outputs of a module, in the order of the file."""
    text = (FOLDER / module / f"{kind}s.tf").read_text()
    return [Block(found["name"], found["body"]) for found in _BLOCK.finditer(text) if found["kind"] == kind]


def refusals(module: str) -> list[str]:
    """What the validations of a module's variables say."""
    return [message for variable in blocks(module, "variable") for message in _REFUSAL.findall(variable.body)]


def readme_with_tables(module: str) -> str:
    """The module's README as it should be."""
    return _TABLES.sub(lambda _: "\n".join(_tables(module)), (FOLDER / module / "README.md").read_text())


def _tables(module: str) -> Iterator[str]:
    yield from ("| input | what | type | default |", "|---|---|---|---|")
    for variable in blocks(module, "variable"):
        default = variable.argument("default")
        kind = variable.argument("type")
        yield f"| `{variable.name}` | {variable.description} | `{kind}` | {f'`{default}`' if default else 'required'} |"
    yield from ("", "| output | what |", "|---|---|")
    for output in blocks(module, "output"):
        yield f"| `{output.name}` | {output.description} |"
    yield ""


if __name__ == "__main__":
    for each in MODULES:
        (FOLDER / each / "README.md").write_text(readme_with_tables(each))
