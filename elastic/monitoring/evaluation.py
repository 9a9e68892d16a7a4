# SPDX-License-Identifier: Apache-2.0
"""When training is evaluated, which evaluation is the best so far, and when no more progress is to be expected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.schemas.monitor import Evaluate

__all__ = ["Evaluations", "Judgement"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an evaluation says."""

    best: bool
    """Whether it is the best so far; False where no metric is named."""
    stop: bool
    """Whether training has finished: too many evaluations in a row were no better."""


class Evaluations:
    """The evaluations so far; part of the shared state.

    Args:
        settings: the spec's `monitor.evaluate`.
    """

    def __init__(self, settings: Evaluate) -> None:
        self.settings = settings
        self._at = 0
        self._best: float | None = None
        self._worse = 0

    def due(self, *, steps: int, epoch_ended: int | None) -> bool:
        """Whether an evaluation is due.

        Args:
            steps: committed.
            epoch_ended: how many epochs are complete, where the last step completed one.
        """
        if steps == self._at:
            return False
        if self.settings.steps is not None:
            return steps - self._at >= self.settings.steps
        return epoch_ended is not None and epoch_ended % (self.settings.epochs or 1) == 0

    def add(self, steps: int, metrics: Mapping[str, float]) -> Judgement:
        """Takes the evaluation of the state after `steps` steps; the watched metric comes first.

        One where it is not finite is no better than any other.
        """
        self._at = steps
        name, early = self.settings.metric, self.settings.early_stop
        if name is None:
            return Judgement(best=False, stop=False)
        value = next(iter(metrics.values()), math.nan)
        sign = 1.0 if self.settings.mode == "max" else -1.0
        least = early.min_delta if early else 0.0
        better = math.isfinite(value) and (self._best is None or sign * (value - self._best) > least)
        if better:
            self._best, self._worse = value, 0
        else:
            self._worse += 1
        return Judgement(best=better, stop=early is not None and self._worse >= early.patience)

    @property
    def best_told(self) -> str:
        """The best value of the metric so far, with its name."""
        name = self.settings.metric or ""
        return name if self._best is None else f"{name} {self._best:.6g}"

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"at": self._at, "best": self._best, "worse": self._worse}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another worker's, or a checkpoint's."""
        self._at, self._best, self._worse = state["at"], state["best"], state["worse"]
