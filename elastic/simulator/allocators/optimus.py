# SPDX-License-Identifier: Apache-2.0
"""Optimus (EuroSys'18) as it was published with Pollux, with an oracle instead of its own estimates. Pure.

Each job gets one GPU while there are any, in their order; the others go, one at a time, to the job whose end comes
nearer by most with one more. Both what is left to do and how long a step takes with any number of GPUs, packed on
nodes, are known exactly. A job whose number stays the same stays where it is (OSDI'21 artifact,
`simulator/optimus.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.simulator.allocators.filling import Free
from kfp_volcano.elastic.simulator.profiles.application import Split, packed
from kfp_volcano.elastic.simulator.profiles.training import ProfiledTraining

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.allocators.allocator import Present, Spots
    from kfp_volcano.elastic.simulator.profiles.application import Application
    from kfp_volcano.elastic.simulator.scenario import Node

__all__ = ["Optimus"]

_HAIR = 1e-8


class Optimus:
    """Marginal gains, with an oracle."""

    name: ClassVar[str] = "optimus"
    adaptive: ClassVar[bool] = False

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], float] = {}

    def allocate(self, jobs: Sequence[Present], nodes: Sequence[Node], at: float) -> Mapping[str, Spots]:  # noqa: ARG002 - it goes by no time
        """What each job is to hold; see `Allocator`."""
        numbers = self._numbers(jobs, sum(node.gpus for node in nodes))
        kept = {each.job.name: each.spots for each in jobs if _held(each) == numbers[each.job.name] > 0}
        free = Free(nodes, kept.values())
        for each in sorted(jobs, key=lambda each: numbers[each.job.name]):
            if numbers[each.job.name] and each.job.name not in kept:
                kept[each.job.name] = free.take(numbers[each.job.name])
        return kept

    def _numbers(self, jobs: Sequence[Present], left: int) -> dict[str, int]:
        """GPUs of each job."""
        numbers: dict[str, int] = {}
        gains: dict[str, float] = {}
        most = {each.job.name: _most(each) for each in jobs}
        remaining = {each.job.name: _remaining(each) for each in jobs}
        by_name = {each.job.name: each for each in jobs}

        def gain(name: str) -> float:
            if numbers[name] + 1 > most[name] or left < 1:
                return 0.0
            each, gpus = by_name[name], numbers[name]
            return (self._unit_s(each, gpus) - self._unit_s(each, gpus + 1)) * remaining[name]

        for name in by_name:
            numbers[name] = min(1, left)
            left -= numbers[name]
            gains[name] = gain(name) if numbers[name] else 0.0
        while left > 0 and gains and max(gains.values()) > 0:
            name = max(gains, key=gains.__getitem__)
            numbers[name] += 1
            gains[name] = gain(name)
            left -= 1
        return numbers

    def _unit_s(self, each: Present, gpus: int) -> float:
        """Seconds of what `_remaining` counts, on so many GPUs."""
        if not isinstance(each.training, ProfiledTraining) or each.training.target is None:
            return each.job.work.alone_s(gpus)
        application, batch = each.training.application, each.training.target
        key = (application.name, batch, gpus)
        if key not in self._known:
            self._known[key] = _step_s(application, batch, gpus)
        return self._known[key]


def _held(each: Present) -> int:
    return sum(gpus for _, gpus in each.spots)


def _most(each: Present) -> int:
    """GPUs of which each has enough to do."""
    if not isinstance(each.training, ProfiledTraining) or each.training.target is None:
        return each.job.max_workers * each.job.gpus_per_worker
    application = each.training.application
    return 1 if application.alone_batch is not None else each.training.target // application.least_local


def _remaining(each: Present) -> float:
    """What is left to do: steps from the end of this epoch on, or part of the whole where no steps are known."""
    if not isinstance(each.training, ProfiledTraining) or each.training.target is None:
        return 1.0 - each.training.done
    application, batch, last = each.training.application, each.training.target, each.training.application.epochs - 1
    if each.training.epoch >= last:
        return 1.0
    return application.steps(batch, last) - application.steps(batch, each.training.epoch)


def _step_s(application: Application, batch: int, gpus: int) -> float:
    """Seconds of a step, packed on nodes; on one GPU gradients are accumulated whatever the batch is."""
    local = math.ceil(batch / gpus - _HAIR)
    accumulated = math.ceil(local / application.most_local - _HAIR) - 1
    if gpus == 1:
        accumulated = max(1, accumulated)
    split = application.bounded(Split(math.ceil(local / (accumulated + 1) - _HAIR), accumulated), gpus)
    step = application.times.at(packed(gpus), split.local)
    return step.step_s + step.compute_s * split.accumulated
