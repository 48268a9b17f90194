"""How often to save progress, from what a save costs: the rule of Young and Daly, for runs whose results are stored anyway."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

__all__ = ["EVERY_MAX", "Granularity", "steps_between_saves"]

MTBF = 3600.0
"""Seconds between two failures of one worker, assumed where nothing better is known: sandboxes that live for an hour."""
EVERY_MAX = 1000
"""Steps between two saves at most, so that a resume never has much to replay."""
NEGLIGIBLE = 0.01
"""The part of a step's time below which a save is not worth saving."""
_SAMPLES = 8
"""Commits of each kind before the first choice; a median of as many is not moved by one that was slow."""
_WINDOW = 32


def steps_between_saves(*, save: float, step: float, redo: float, mtbf: float = MTBF) -> int:
    """The number of steps after which to save, that costs least in the mean. All in seconds.

    `save` is what a save costs, `step` how long a step takes, `redo` what it costs to do a step again after a failure, and
    `mtbf` the mean time between failures. With a save after every n steps, a step costs ``save / n`` for saving, and
    ``step / mtbf`` of a failure, which redoes ``n / 2`` steps in the mean. The least of that is at ``n = sqrt(2 * save * mtbf /
    (step * redo))``: Young's rule (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9),
    1974, 530-531; J. T. Daly, FGCS 22(3), 2006, 303-312), whose ``sqrt(2 * save * mtbf)`` seconds it is where a step that is
    redone takes as long as it took (``redo == step``).

    1 where a single redone step costs more than all the saves that batching would avoid, and where a save takes less than a
    hundredth of a step.
    """
    if save < NEGLIGIBLE * step or save <= 0 or redo <= 0 or step <= 0:
        return 1
    steps = min(EVERY_MAX, round(math.sqrt(2 * save * mtbf / (step * redo))))
    return steps if (steps - 1) * save > redo else 1


class Granularity:
    """Chooses how often a run saves while it goes. At first every other commit carries progress, to see what that costs.

    To redo a step is taken to cost one more commit: its result is stored, so that it is read instead of run again, which
    costs less than that on every store.
    """

    def __init__(self, mtbf: float = MTBF) -> None:
        self._mtbf = mtbf
        self._with: deque[float] = deque(maxlen=_WINDOW)
        self._without: deque[float] = deque(maxlen=_WINDOW)
        self._steps: deque[float] = deque(maxlen=_WINDOW)
        self._saves = 0
        self.every = 2
        """Steps between two saves, by what was seen so far."""

    def note_commit(self, *, saved: bool, commit: float, step: float) -> None:
        """A commit took so many seconds, the whole step so many; `saved`: it carried progress."""
        (self._with if saved else self._without).append(commit)
        self._steps.append(step)
        self._saves += saved
        if saved and self._saves % _SAMPLES == 0 and len(self._without) >= _SAMPLES:
            self._choose(median(self._with) - median(self._without), median(self._without))

    def note_save(self, save: float, step: float) -> None:
        """A save of its own took so many seconds, while a step was done every so many."""
        if self._without:  # a commit carries progress: one that is saved by itself for once says nothing
            return
        self._with.append(save)
        self._steps.append(step)
        self._saves += 1
        if self._saves % _SAMPLES == 0:
            self._choose(median(self._with), median(self._with))

    def _choose(self, save: float, redo: float) -> None:
        self.every = steps_between_saves(save=save, step=median(self._steps), redo=redo, mtbf=self._mtbf)
