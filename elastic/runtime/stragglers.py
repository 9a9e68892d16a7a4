# SPDX-License-Identifier: Apache-2.0
"""Who holds the others up: a worker that computes for longer than they do, step after step.

All workers see the same rows, and so come to the same verdict without a word; the one concerned acts on it.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Stragglers"]

_LEAST_WORKERS = 2


class Stragglers:
    """Compares the workers' times over the last steps of one set of workers.

    A worker's time for a sample is what of the step it did not spend on summing, for summing includes the wait for the
    slowest, divided by its samples. It is a straggler where the median of its times is at least `factor` times the
    median of the others' medians, over a whole window. After a verdict a new window begins.

    Args:
        factor: how many times slower, above 1.
        window: how many steps.
    """

    def __init__(self, *, factor: float, window: int) -> None:
        self._factor, self._window = factor, window
        self._group = ""
        self._times: list[deque[float]] = []

    def add(
        self, group: str, step_s: float, summed_s: Sequence[float], counts: Sequence[int]
    ) -> tuple[int, float] | None:
        """A step was committed after another one of the same workers.

        Args:
            group: names the set of workers; with another one the window begins anew.
            step_s: how long the step took.
            summed_s: how much of it each worker spent on summing.
            counts: how many samples each fed.

        Returns:
            The rank of the slowest straggler and how many times slower it is; None where there is none.
        """
        if group != self._group:
            self._group = group
            self._times = [deque(maxlen=self._window) for _ in counts]
        for times, spent, count in zip(self._times, summed_s, counts, strict=True):
            if count:
                times.append(max(0.0, step_s - spent) / count)
        if len(self._times) < _LEAST_WORKERS or any(len(times) < self._window for times in self._times):
            return None
        usual = [median(times) for times in self._times]
        slowest = max(range(len(usual)), key=usual.__getitem__)
        others = median(time for rank, time in enumerate(usual) if rank != slowest)
        if others <= 0 or usual[slowest] < self._factor * others:
            return None
        self._group = ""
        return slowest, usual[slowest] / others
