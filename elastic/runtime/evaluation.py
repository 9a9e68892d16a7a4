# SPDX-License-Identifier: Apache-2.0
"""Evaluation at intervals by the training code's own function: whose part it is, and what comes of all parts.

A worker evaluates its part before the step that follows, while the others do theirs, and what it found travels with
that step's gradients: it is known to all, or to none, as the step is. So no worker can be of another mind about what is
the best state or whether training has finished, and a slow evaluation is no more than a slow step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kfp_volcano.elastic.runtime.contract import metrics_of
from kfp_volcano.elastic.runtime.message import METRICS
from kfp_volcano.elastic.sharding import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfp_volcano.elastic.runtime.message import Row
    from kfp_volcano.elastic.runtime.state import State

__all__ = ["Evaluation", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """What a worker found on its part of the evaluation data."""

    evaluated: int = 0
    """On how many samples; 0 where no evaluation was due, or none was its part."""
    metrics: tuple[float, ...] = (0.0,) * METRICS
    """The metric that is watched first."""


_NOTHING = Part()


class Evaluation:
    """The evaluations of a training, seen from one worker.

    Args:
        evaluate: the training code's function; None: there is none. With `size` it takes indices into the evaluation
            data and returns metrics that are means over them, and each worker calls it for its part. Without it takes
            nothing, and the first worker calls it.
        size: samples of the evaluation data, or None.
        together: how many processes evaluate each part, all of it: those of a worker where the model is sharded over
            them, for each needs the others' passes. Only what the first of them found counts.
    """

    def __init__(
        self, evaluate: Callable[..., Mapping[str, float]] | None, size: int | None, *, together: int = 1
    ) -> None:
        self._evaluate, self._size, self._together = evaluate, size, together
        self._names: tuple[str, ...] = ()
        self._done: tuple[object, Part] = (None, _NOTHING)

    def part(self, state: State, rank: int, world: int) -> Part:
        """This worker's part of the evaluation that is due.

        Raises:
            ValueError: the function returns more values than there is room for.
        """
        ended = state.cursor.epoch if state.cursor.position == 0 else None
        due = state.finished or state.evaluations.due(steps=state.steps, epoch_ended=ended)
        return self._found(state, rank, world) if due and self._evaluate is not None else _NOTHING

    def whole(self, parts: Sequence[Row | Part]) -> dict[str, float] | None:
        """What all workers' parts come to, by this worker's names (the watched metric first); None without any."""
        total = sum(part.evaluated for part in parts)
        if total == 0:
            return None
        names = self._names or ("the metric that is watched",)
        return {
            name: sum(part.evaluated * part.metrics[index] for part in parts) / total
            for index, name in enumerate(names)
        }

    def _found(self, state: State, rank: int, world: int) -> Part:
        key = state.lineage, rank, world
        if self._done[0] == key:  # the step is done again
            return self._done[1]
        arguments: list[Any] = []
        worker, workers = rank // self._together, world // self._together
        count = 1 if worker == 0 else 0
        if self._size is not None:
            start, end = bounds(self._size, worker, workers)
            count, arguments = end - start, [np.arange(start, end)]
        values = self._values(state, *arguments) if count else ()
        found = Part(count, values) if values and rank % self._together == 0 else _NOTHING
        self._done = key, found
        return found

    def _values(self, state: State, *arguments: Any) -> tuple[float, ...]:
        assert self._evaluate is not None  # noqa: S101 - `part` has looked
        model = state.model
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                metrics = metrics_of(self._evaluate(*arguments))
        finally:
            model.train(training)
        watched = state.evaluations.settings.metric
        self._names = tuple(sorted(metrics, key=lambda name: (name != watched, name)))
        if watched is not None and watched not in metrics:
            self._names = (watched, *self._names)
        if len(self._names) > METRICS:
            raise ValueError(f"evaluate returned {len(self._names)} values; there is room for {METRICS}")
        values = [metrics.get(name, math.nan) for name in self._names]
        return (*values, *[0.0] * (METRICS - len(values)))
