# SPDX-License-Identifier: Apache-2.0
"""How fast training was with each number of workers: the middle of its steps' times, by size."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from statistics import median
from typing import Any

from kfp_volcano.elastic.coordination.history import SIZES_KEPT
from kfp_volcano.schemas.records import Measured

__all__ = ["Speeds"]

_STEPS_KEPT = 50
_LEAST_STEPS = 5
"""Of a size, before it is told: the first after a resize are still finding their pace."""

Size = tuple[int, int, int]


class Speeds:
    """Step times at the present size, and what came of those before; part of the shared state.

    The middle, not the mean: an evaluation or a checkpoint between two steps is no part of a step.
    """

    def __init__(self) -> None:
        self._before: dict[Size, Measured] = {}
        self._size: Size = (0, 0, 0)
        self._steps: deque[tuple[float, float]] = deque(maxlen=_STEPS_KEPT)

    def add(self, *, workers: int, nodes: int, batch: int, step_s: float, summed_s: float) -> None:
        """A step was committed after one with the same workers.

        Args:
            workers: That trained.
            nodes: They were on; 1 where that is not known.
            batch: Samples in it.
            step_s: Time since the last one.
            summed_s: What of it even the slowest worker spent on summing gradients.
        """
        size = (workers, nodes, batch)
        if size != self._size:
            self._close()
            self._size = size
        self._steps.append((step_s, summed_s))

    @property
    def told(self) -> tuple[Measured, ...]:
        """What is known by now, the present size last."""
        present = self._present()
        others = [each for size, each in self._before.items() if present is None or size != self._size]
        return (*others, *([present] if present else []))[-SIZES_KEPT:]

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "before": [asdict(each) for each in self._before.values()],
            "size": list(self._size),
            "steps": [list(each) for each in self._steps],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over another worker's measurements."""
        before = [Measured(**each) for each in state["before"]]
        self._before = {(each.workers, each.nodes, each.batch): each for each in before}
        workers, nodes, batch = state["size"]
        self._size = workers, nodes, batch
        self._steps = deque(((step_s, summed_s) for step_s, summed_s in state["steps"]), maxlen=_STEPS_KEPT)

    def _close(self) -> None:
        present = self._present()
        if present is not None:
            self._before.pop(self._size, None)
            self._before[self._size] = present
            while len(self._before) > SIZES_KEPT:
                del self._before[next(iter(self._before))]
        self._steps.clear()

    def _present(self) -> Measured | None:
        if len(self._steps) < _LEAST_STEPS:
            return None
        workers, nodes, batch = self._size
        step_s = median(step_s for step_s, _ in self._steps)
        if step_s <= 0:
            return None
        compute_s = median(max(0.0, step_s - summed_s) for step_s, summed_s in self._steps)
        return Measured(
            workers=workers,
            nodes=nodes,
            batch=batch,
            throughput=batch / step_s,
            compute_s=compute_s if workers > 1 else None,
        )
