# SPDX-License-Identifier: Apache-2.0
"""How much a sample is worth in a batch of a size, and with it a Job's goodput at a number of workers. Pure.

A larger batch makes a better step, but not as much better as it has more samples. With the gradient noise scale `f`
(McCandlish et al. 2018; the trace of the gradients' covariance over the squared norm of their mean, in samples) the
progress of a sample in batches of M is, compared with batches of M0 (Pollux, OSDI'21, equations 5 and 6):

    EFF(M) = (f + M0) / (f + M)

and GOODPUT = THROUGHPUT * EFF. Where the global batch stays the same at every size, as `elasticity.batch.rule:
constant` keeps it, EFF is 1 throughout, and the sizes are compared by throughput alone. It counts where training
shares out no fixed batch, and so has reported larger batches with more workers; and where training chooses its batch
by itself, which it then is expected to choose best at every size, as AdaptDL's does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.goodput.throughput import StepTime, fit, observed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.policies.snapshot import BatchRange, ElasticJob, Measured

__all__ = ["Goodput", "efficiency", "goodput_of"]

_UNMEASURED = StepTime(base_s=0.0, sample_s=1.0)
"""Of a Job that has told nothing yet: it scales perfectly until it shows otherwise. Only ratios are ever used of it."""
_SAME_PART = 1.2
"""Largest over smallest part of a worker where all are meant to have the same: a remainder makes some difference."""

_TRIED = 24
"""Batches between the smallest and the largest that a training is expected to choose from."""
_GRAIN = 0.02
"""Noise scales are rounded to steps of 2 % where a batch is to be chosen: as they tremble, the choice stays."""


def efficiency(batch: float, base_batch: float, noise_scale: float | None) -> float:
    """Worth of a sample in batches of `batch`, compared with batches of `base_batch`; 1 where no noise is known."""
    if noise_scale is None or noise_scale < 0 or batch == base_batch:
        return 1.0
    return (noise_scale + base_batch) / (noise_scale + batch)


@dataclass(frozen=True, slots=True)
class Goodput:
    """What a Job makes of workers: samples a second, as many as they are worth at its present batch."""

    models: tuple[tuple[str, StepTime], ...]
    """By GPU class, the best observed first. A class that is not here is as fast as that one until it shows
    otherwise."""
    base_batch: float
    batch_per_worker: float | None
    """None: the global batch is the same at every size."""
    noise_scale: float | None
    chosen_from: BatchRange | None
    """Training chooses the batch by itself from these."""
    measured: bool
    """False: nothing is known of the Job, and it is thought to scale perfectly."""

    @property
    def tells_classes(self) -> bool:
        """Whether it is known to be faster on one GPU class than on another."""
        return len(self.models) > 1

    def batch(self, workers: int) -> float:
        """Samples in the global batch."""
        return self.base_batch if self.batch_per_worker is None else self.batch_per_worker * workers

    def throughput(self, workers: int, nodes: int = 1, classes: Sequence[str] = ()) -> float:
        """Samples a second on so many nodes of these GPU classes: as many as on the slowest of them."""
        known = dict(self.models)
        slowest = {known.get(each, self.models[0][1]) for each in classes} or {self.models[0][1]}
        return min(model.throughput(workers, nodes, self.batch(workers)) for model in slowest)

    def at(self, workers: int, nodes: int = 1, classes: Sequence[str] = ()) -> float:
        """The goodput."""
        if self.chosen_from is not None and self.noise_scale is not None:
            known = dict(self.models)
            noise = math.exp(round(math.log(max(self.noise_scale, 1e-3)) / _GRAIN) * _GRAIN)
            slowest = {known.get(each, self.models[0][1]) for each in classes} or {self.models[0][1]}
            return min(_at_best(model, noise, self.chosen_from, workers, min(nodes, 2)) for model in slowest)
        worth = efficiency(self.batch(workers), self.base_batch, self.noise_scale)
        return self.throughput(workers, nodes, classes) * worth


@lru_cache(maxsize=65536)
def _at_best(model: StepTime, noise: float, batches: BatchRange, workers: int, nodes: int) -> float:
    """The goodput with the best of these batches."""
    least = min(max(batches.least, batches.least_each * workers), batches.most)
    ratio = (batches.most / least) ** (1 / (_TRIED - 1))
    tried = (least * ratio**step for step in range(_TRIED))
    return max(model.throughput(workers, nodes, each) * efficiency(each, batches.least, noise) for each in tried)


def goodput_of(job: ElasticJob) -> Goodput:
    """What is to be expected of a Job, by what it has measured."""
    usable = [each for each in job.measured if each.throughput > 0 and each.batch > 0 and each.workers > 0]
    if not usable:
        return Goodput((("", _UNMEASURED),), float(job.batch or 1), None, None, None, measured=False)
    named = {each.gpu_class for each in usable} - {""}
    classes = sorted(named, key=lambda name: (-_count(usable, name), name)) or [""]
    # What was measured on nodes of unknown class is no worse a guess for one class than for another.
    models = tuple((name, fit(observed(each for each in usable if each.gpu_class in {name, ""}))) for name in classes)
    latest = [each.batch for each in usable if each.workers == job.workers] or [each.batch for each in usable]
    base = float(job.batch or max(latest))
    return Goodput(models, base, _batch_per_worker(usable), job.noise_scale, job.batch_range, measured=True)


def _count(measured: Sequence[Measured], gpu_class: str) -> int:
    return sum(each.gpu_class == gpu_class for each in measured)


def _batch_per_worker(measured: Sequence[Measured]) -> float | None:
    """Where the batch grew with the workers: its part of each. One that was merely set anew does not follow them."""
    parts = sorted(each.batch / each.workers for each in measured)
    steady = parts[-1] <= _SAME_PART * parts[0]
    return parts[len(parts) // 2] if steady and len({each.workers for each in measured}) > 1 else None
