# SPDX-License-Identifier: Apache-2.0
"""When a number of each step, loss or gradient norm, leaps away from what it was."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Leap", "Spikes"]

_FLOOR = 0.001
"""Of the median: the least that counts as the way from it to the highest value, for numbers that hardly tremble."""


@dataclass(frozen=True, slots=True)
class Leap:
    """A number that is too high."""

    value: float
    """NaN or infinite, too."""
    usual: float
    """The window's median; NaN where there was no window yet."""
    limit: float
    """Above which it is too high; NaN likewise."""
    steps: int
    """In a row, this one included."""


class Spikes:
    """Looks at one number a step.

    A value is too high where it is `factor` times as far above the median of the last `window` values as the highest of
    these was. So units do not matter, nor where zero is, and a window with heavy tails, as of a
    loss near zero, widens it by itself. Values that are too high enter the
    window as if they were just not, once it shows that they were no fault; where they stay, they are the new usual
    after `window` of them.

    Args:
        factor: above 1.
        window: how many values are the measure; before there are as many nothing is too high but NaN and infinity.
        steps: how many values in a row have to be too high; one NaN does.
    """

    def __init__(self, *, factor: float, window: int, steps: int) -> None:
        self._factor, self._window, self._steps = factor, window, steps
        self._values: deque[float] = deque(maxlen=window)
        self._run, self._told = 0, False

    @property
    def told(self) -> bool:
        """Whether a leap was told of that is not over."""
        return self._told

    def add(self, value: float) -> Leap | None:
        """Takes a step's value; the leap at the step that completes one, once for each."""
        finite = math.isfinite(value)
        usual, limit = self._measure()
        if finite and not value > limit:
            if self._run and not self._told and not math.isnan(limit):
                self._values.extend([limit] * self._run)  # hard batches are usual too, but one of them no measure
            self._run, self._told = 0, False
            self._values.append(value)
            return None
        self._run += 1
        if not self._told and (not finite or self._run >= self._steps):
            self._told = True
            return Leap(value, usual, limit, self._run)
        if finite and self._run >= self._window + self._steps:
            self.forget()
        return None

    def forget(self) -> None:
        """Begins anew: what was is no measure any more."""
        self._values.clear()
        self._run, self._told = 0, False

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"values": list(self._values), "run": self._run, "told": self._told}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another worker's window, or a checkpoint's."""
        self._values = deque(state["values"], maxlen=self._window)
        self._run, self._told = state["run"], state["told"]

    def _measure(self) -> tuple[float, float]:
        """Median and limit."""
        if len(self._values) < self._window:
            return math.nan, math.nan
        usual = median(self._values)
        reach = max(max(self._values) - usual, _FLOOR * abs(usual))
        return usual, usual + self._factor * reach
