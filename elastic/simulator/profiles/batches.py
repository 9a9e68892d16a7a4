# SPDX-License-Identifier: Apache-2.0
"""Which batch a training chooses for itself, by what it has measured: as AdaptDL's agent does in each job. Pure.

The step's time is fitted to what was measured (`policies.goodput.throughput`: Pollux' model, solved otherwise than by
L-BFGS-B), the worth of a batch follows from the gradients, and of fifty batches between the smallest and the largest
that one is taken which makes the most progress in a second (Pollux, equation 4; `simulator/goodput.py`, `optimize`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kfp_volcano.elastic.policies.goodput.throughput import Observation, fit
from kfp_volcano.elastic.simulator.profiles.application import Split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kfp_volcano.elastic.policies.goodput.throughput import StepTime
    from kfp_volcano.elastic.simulator.profiles.application import Application, Gradients
    from kfp_volcano.elastic.simulator.profiles.step_times import Step

__all__ = ["Agent"]

_PARTS = np.linspace(0, 1, 50)[:, None]
"""Of the way from the smallest batch to the largest, in logarithms."""
_HAIR = 1e-8
_LEAST_S = 1e-8


class Agent:
    """What a training knows of itself."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._seen: dict[tuple[int, int, int], Step] = {}
        self._model: StepTime | None = None
        self._chosen: dict[tuple[bool, int], Split] = {}
        self._goodputs: dict[tuple[int, int], float] = {}
        self.gradients: Gradients | None = None
        """Of its last step; None before the first."""
        self.most_gpus = 0
        """It has had."""

    def __copy__(self) -> Agent:
        """One that goes on by itself from what this one knows."""
        other = Agent(self._application)
        other._seen, other._model, other._chosen = dict(self._seen), self._model, dict(self._chosen)
        other.gradients, other.most_gpus = self.gradients, self.most_gpus
        return other

    def learn(self, nodes: int, gpus: int, local: int, step: Step, gradients: Gradients) -> None:
        """Take up what a step showed."""
        if gradients != self.gradients:
            self.gradients = gradients
            self._forget()
        if (nodes, gpus, local) not in self._seen:
            self._seen[nodes, gpus, local] = step
            self.most_gpus = max(self.most_gpus, gpus)
            self._model = None
            self._forget()

    def split(self, nodes: int, gpus: int) -> Split:
        """The batch it chooses there."""
        application = self._application
        if self.gradients is None:
            batch = max(application.base_batch, application.least_local * gpus)
            return application.split(batch, gpus)
        key = (nodes > 1, gpus)
        if key not in self._chosen:
            _, local, accumulated = self._best(self.gradients, np.array([nodes]), np.array([gpus]))
            self._chosen[key] = application.bounded(Split(int(local[0]), int(accumulated[0])), gpus)
        return self._chosen[key]

    def goodputs(self, at: Sequence[tuple[int, int]]) -> dict[tuple[int, int], float]:
        """Progress a second that it expects on so many nodes with so many GPUs, with its best batch there.

        In samples that are worth as much as in the smallest batch; where nothing was seen, it scales perfectly.
        """
        if self.gradients is None:
            return {each: float(each[1]) for each in at}
        missing = [each for each in at if each not in self._goodputs]
        if missing:
            nodes, gpus = np.array(missing).T
            goodputs, _, _ = self._best(self.gradients, nodes, gpus)
            self._goodputs.update(zip(missing, goodputs.tolist(), strict=True))
        return {each: self._goodputs[each] for each in at}

    def _forget(self) -> None:
        self._chosen.clear()
        self._goodputs.clear()

    def _fitted(self) -> StepTime:
        if self._model is None:
            self._model = fit(
                tuple(
                    sorted(
                        Observation(gpus, min(nodes, 2), gpus * local, step.step_s, max(step.compute_s, _LEAST_S))
                        for (nodes, gpus, local), step in self._seen.items()
                    )
                )
            )
        return self._model

    def _best(
        self, gradients: Gradients, nodes: NDArray[np.int64], gpus: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Goodput, samples of each worker at a time, and accumulations, of the best batch of each column."""
        application, model = self._application, self._fitted()
        base, most = application.base_batch, application.most_batch
        least = np.maximum(base, np.minimum(application.least_local * gpus, most))
        local = least * (most / least) ** _PARTS / gpus
        accumulated = np.ceil(local / application.most_local - _HAIR) - 1
        alone = (gpus == 1) & (local > base + _HAIR)
        accumulated = np.where(alone, np.maximum(accumulated, 1), accumulated)
        atomic = np.ceil(local / (accumulated + 1) - _HAIR)
        batch = atomic * (accumulated + 1) * gpus
        compute = np.maximum(model.base_s + model.sample_s * atomic, _LEAST_S)
        sync = np.array([model.sync_s(*each) for each in zip(gpus.tolist(), nodes.tolist(), strict=True)])
        overlap = model.overlap
        step = compute * (1 + (np.maximum(sync, _LEAST_S) / compute) ** overlap) ** (1 / overlap)
        scale = batch / base
        gain = (gradients.var + gradients.sqr) / (gradients.var / scale + gradients.sqr)
        goodput = gain * base / (step + accumulated * compute)
        fits = (application.least_local <= atomic) & (atomic <= application.most_local)
        goodput = np.where(fits, goodput, 0.0)
        row = np.argmax(goodput, axis=0)
        column = np.arange(len(gpus))
        return goodput[row, column], atomic[row, column].astype(np.int64), accumulated[row, column].astype(np.int64)
