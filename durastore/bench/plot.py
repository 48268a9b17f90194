"""Plots as SVG, by hand: a few lines, bars and words need no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from durastore.bench.experiment import Trial

__all__ = ["bars", "curves"]

_COLOURS = ("#0b6e4f", "#c8553d", "#3b5b92", "#8a6d3b", "#6b4e71")
_GREY = "#777"
_FONT = "font-family='system-ui, sans-serif' font-size='12'"


def curves(found: Sequence[Trial], advised: int) -> str:
    """What saving every n steps costs in the experiment, the plain loop beside durastore; both axes logarithmic."""
    width, height, left, top, bottom = 640, 340, 60, 40, 290
    chosen = [trial for trial in found if trial.saved_every]
    xs = [math.log(trial.saved_every) for trial in chosen]
    ys = [math.log10(max(trial.total, 0.1)) for trial in chosen]
    low, high = math.floor(min(ys)), math.ceil(max(ys))

    def across(every: float) -> float:
        return left + (math.log(every) - min(xs)) / ((max(xs) - min(xs)) or 1) * (width - left - 130)

    def down(total: float) -> float:
        return bottom - (math.log10(max(total, 0.1)) - low) / ((high - low) or 1) * (bottom - top)

    parts = [
        _text(left, 20, f"{found[0].steps:,} steps, killed in mid-run: saving and catching up, milliseconds", bold=True)
    ]
    for power in range(low, high + 1):
        parts += [
            _line(left, down(10**power), width - 130, down(10**power)),
            _text(left - 8, down(10**power) + 4, f"{10**power:g}", "end"),
        ]
    for every in sorted({trial.saved_every for trial in chosen}):
        parts.append(_text(across(every), bottom + 18, str(every), "middle"))
    parts.append(_text((left + width - 130) / 2, bottom + 38, "steps between two saves", "middle"))
    for colour, mode, name in zip(_COLOURS, ("durastore", "progress"), ("durastore", "progress only"), strict=False):
        points = [(across(trial.saved_every), down(trial.total)) for trial in chosen if trial.mode == mode]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        parts += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>" for x, y in points]
        parts.append(_text(points[-1][0] + 8, points[-1][1] + 4, name, colour=colour))
    if min(xs) <= math.log(advised) <= max(xs):
        x = across(advised)
        parts += [
            f"<line x1='{x:.1f}' y1='{top}' x2='{x:.1f}' y2='{bottom}' stroke='{_GREY}' stroke-dasharray='4 3'/>",
            _text(x + 4, top + 10, f"Young/Daly: {advised}", colour=_GREY),
        ]
    return _page(width, height, parts)


def bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str) -> str:
    """Groups of horizontal bars, each with its name and number."""
    width, left, room, y = 760, 270, 380, 44
    longest = max(value for _, rows in groups for _, value in rows)
    parts = [_text(12, 22, title, bold=True)]
    for colour, (heading, rows) in zip(_COLOURS * len(groups), groups, strict=False):
        parts.append(_text(12, y + 12, heading, colour=colour, bold=True))
        y += 20
        for name, value in rows:
            length = value / longest * room
            parts += [
                _text(left - 8, y + 12, name, "end"),
                f"<rect x='{left}' y='{y + 2}' width='{max(length, 1):.1f}' height='13' fill='{colour}'/>",
                _text(left + length + 6, y + 13, f"{value:.2f} {unit}"),
            ]
            y += 18
        y += 8
    return _page(width, y + 4, parts)


def _page(width: int, height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' {_FONT}>\n"
        f"<rect width='100%' height='100%' fill='white'/>\n{body}\n</svg>\n"
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='#ddd'/>"


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#222", *, bold: bool = False) -> str:
    weight = " font-weight='600'" if bold else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{colour}'{weight}>{escape(words)}</text>"
