"""The tutorial in CONTRIBUTING.md: its excerpts are those of the backend that the tests install and run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from durastore.conformance import Conformance, instead_of
from durastore.conformance.catalogue import catalogue
from durastore.conformance.suite import required

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "thirdparty"
TUTORIAL = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Write a backend")[2]
OWN = ("class TestFolder", "@instead_of")
"""Blocks that are the reader's own tests, not the backend's."""


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", TUTORIAL, re.DOTALL)
    return [block for block in found if not any(mark in block for mark in OWN)]


@pytest.mark.parametrize("block", [*blocks("python"), *blocks("toml")])
def test_excerpts(block: str) -> None:
    """Each excerpt stands in the project, line by line."""
    sources = [path.read_text(encoding="utf-8") for path in [*PROJECT.rglob("*.py"), PROJECT / "pyproject.toml"]]
    assert any(block in source for source in sources), block


def test_there_are_excerpts() -> None:
    """The search above finds something."""
    assert len(blocks("python")) >= 6
    assert len(blocks("toml")) == 2


def test_figures() -> None:
    """The number of clauses that the tutorial shows is that of today."""
    count = len(catalogue())
    assert f"{count} pass, 0 fail, 0 not run of {count} clauses" in TUTORIAL


def test_override_as_shown() -> None:
    """The override of the tutorial is accepted; without its mark it is refused."""

    class Mine(Conformance):
        @instead_of("SETUP-1", reason="tables are created by our platform team")
        def test_setup_1_setup_at_once(self, harness: object) -> None: ...

    assert "test_setup_1_setup_at_once" in required()
    assert issubclass(Mine, Conformance)
    with pytest.raises(TypeError, match="instead_of"):
        type("Bare", (Conformance,), {"test_setup_1_setup_at_once": lambda self, harness: None})
