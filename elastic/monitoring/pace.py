# SPDX-License-Identifier: Apache-2.0
"""Whether the loss falls more slowly after a resize than before it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Pace", "Slower"]

_SURE = 2.0
"""Standard errors between what is measured and what is taken for certain."""


@dataclass(frozen=True, slots=True)
class Slower:
    """The loss has slowed down."""

    step: int
    """At which the number of workers changed."""
    from_workers: int
    to_workers: int
    before: float
    """By how much the loss fell in 1000 samples before."""
    after: float
    """And since."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A fall of the loss by least squares, per sample, and its standard error."""

    fall: float
    error: float


class Pace:
    """Compares the loss's fall over a window on either side of each resize.

    Losses level off and tremble, so it takes certainty: the fall before must be clear, and the fall after, even where
    its error flatters it, below `ratio` times the one before, even where its error flatters that. Falls are by sample,
    not by step, so that another batch is no slow-down.

    Args:
        ratio: below 1.
        window: steps on either side.
    """

    def __init__(self, *, ratio: float, window: int) -> None:
        self._ratio, self._window = ratio, window
        self._points: deque[tuple[int, float]] = deque(maxlen=window)
        self._workers = 0
        self._before: _Line | None = None
        self._since = (0, 0)

    def add(self, *, step: int, samples: int, loss: float, workers: int) -> Slower | None:
        """Takes a step; the verdict, once a resize, when the window after it is full.

        Args:
            step: committed before this one.
            samples: committed with it.
            loss: the global batch's.
            workers: that trained.
        """
        if workers != self._workers:
            full = len(self._points) == self._window
            self._before = _line(self._points) if full else None
            self._since = step, self._workers
            self._workers = workers
            self._points.clear()
        if math.isfinite(loss):
            self._points.append((samples, loss))
        before = self._before
        if before is None or len(self._points) < self._window:
            return None
        self._before = None
        after = _line(self._points)
        least = before.fall - _SURE * before.error
        if least <= 0 or after.fall + _SURE * after.error >= self._ratio * least:
            return None
        step, workers = self._since
        return Slower(step, workers, self._workers, before.fall * 1000, after.fall * 1000)

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "points": [list(point) for point in self._points],
            "workers": self._workers,
            "before": None if self._before is None else asdict(self._before),
            "since": list(self._since),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another worker's window, or a checkpoint's."""
        self._points = deque(((samples, loss) for samples, loss in state["points"]), maxlen=self._window)
        self._workers = state["workers"]
        self._before = None if state["before"] is None else _Line(**state["before"])
        step, workers = state["since"]
        self._since = step, workers


def _line(points: Sequence[tuple[int, float]]) -> _Line:
    """Ordinary least squares; the slope's standard error with n - 2 degrees of freedom."""
    count = len(points)
    x_mean = sum(x for x, _ in points) / count
    y_mean = sum(y for _, y in points) / count
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / spread
    rest = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in points)
    return _Line(-slope, math.sqrt(rest / (count - 2) / spread))
