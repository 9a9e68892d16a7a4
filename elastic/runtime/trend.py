# SPDX-License-Identifier: Apache-2.0
"""Where the loss goes: its trend, the best that was, and how much it trembled then."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kfp_volcano.schemas.records import LossTrend

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Trend"]

_STEPS = 50
"""Over how many steps the loss is averaged, and how many there must be before the average counts."""


class Trend:
    """Averages over steps; part of the shared state."""

    def __init__(self) -> None:
        self._steps = 0
        self._mean = self._spread = 0.0
        self._best: tuple[float, float] | None = None
        self._finite = True

    def add(self, loss: float) -> None:
        """A step was committed."""
        self._finite = math.isfinite(loss)
        if not self._finite:
            return
        self._steps += 1
        weight = 1 / min(self._steps, _STEPS)
        self._mean += weight * (loss - self._mean)
        self._spread += weight * (abs(loss - self._mean) - self._spread)
        if self._steps >= _STEPS and (self._best is None or self._mean < self._best[0]):
            self._best = self._mean, self._spread

    @property
    def told(self) -> LossTrend | None:
        """As progress tells it; None while there were too few steps."""
        if self._best is None:
            return None if self._finite else LossTrend(best=0.0, spread=0.0)
        best, spread = self._best
        return LossTrend(now=self._mean if self._finite else None, best=best, spread=spread)

    def state_dict(self) -> dict[str, float | None]:
        """All of it as plain values."""
        best, spread = self._best or (None, None)
        return {"steps": self._steps, "mean": self._mean, "spread": self._spread, "best": best, "best_spread": spread}

    def load_state_dict(self, state: Mapping[str, float | None]) -> None:
        """Takes over another worker's averages."""
        self._steps, self._finite = int(state["steps"] or 0), True
        self._mean, self._spread = state["mean"] or 0.0, state["spread"] or 0.0
        best, spread = state["best"], state["best_spread"]
        self._best = None if best is None or spread is None else (best, spread)
