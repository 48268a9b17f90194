"""When workers are killed. Drawn from a seed, and the same for every mode.

A kill is defined by counting, not by time: it comes at the n-th effect that is begun since the worker before was killed, at
one of four points around it. So it does not matter how fast a mode is, or where in its inputs it stands.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["Kill", "Point", "draw"]

Point = Literal["begun", "sent", "done", "stored"]
"""The effect has begun and sent nothing; the world has counted its delivery, and it has not returned; it has returned, and
nothing is stored; it is stored."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The worker dies at its `effect`-th effect (from 1), at `point`."""

    effect: int
    point: Point


def draw(seed: int, kills: int, steps: int) -> list[Kill]:
    """A schedule: places among the steps, drawn without repetition, each as its distance from the one before.

    So it is reached in every mode, and every mode ends: there are more effects to begin than the distances add up to. Every point
    comes up equally often, as far as the number of kills allows.
    """
    dice = random.Random(seed)  # noqa: S311  a schedule, not a secret
    points = [get_args(Point)[number % 4] for number in range(kills)]
    dice.shuffle(points)
    places = sorted(dice.sample(range(1, steps), kills))
    return [Kill(place - before, point) for before, place, point in zip([0, *places], places, points, strict=False)]
