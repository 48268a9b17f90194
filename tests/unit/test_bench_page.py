"""The README's figures are those that were measured."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from durastore.bench.plot import bars
from tests.bench.page import insert, plots, section

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "measured"


def test_readme() -> None:
    """The section between the markers is made of the files in docs/measured."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert insert(page, section(MEASURED)) == page
    assert insert(page, "other\n") != page
    with pytest.raises(ValueError, match="needs the lines"):
        insert("no markers", "text")


def test_plots() -> None:
    """So are the plots, which are well-formed."""
    for name, plot in plots(MEASURED).items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == plot
        ET.fromstring(plot)


def test_bars_are_to_scale() -> None:
    """Twice the value is twice as long, and names are shown, not obeyed."""
    root = ET.fromstring(bars("title", [("<a>", [("one", 1.0), ("two", 2.0)])], "x"))
    lengths = [float(bar.attrib["width"]) for bar in root.iter() if bar.tag.endswith("rect") and "x" in bar.attrib]
    assert lengths == [190, 380]
    assert "<a>" in "".join(root.itertext())
