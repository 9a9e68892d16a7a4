# SPDX-License-Identifier: Apache-2.0
"""What a job is expected to make of GPUs, by what its own training has seen so far. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.profiles.training import ProfiledTraining

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.elastic.simulator.allocators.allocator import Present

__all__ = ["most_gpus", "speeds_of"]

_EXPLORE = 2
"""A job is given up to so many times the GPUs that it has had at most (Pollux)."""


def speeds_of(each: Present, sizes: Iterable[int], whole: int) -> dict[int, float]:
    """Progress a second with each number of GPUs, in units of its own; on nodes of `whole`, as few as it takes."""
    training = each.training
    if not isinstance(training, ProfiledTraining):
        return {gpus: 1 / each.job.work.alone_s(gpus) for gpus in sizes}
    if training.agent is None:
        return {gpus: float(gpus) for gpus in sizes}
    goodputs = training.agent.goodputs([(-(-gpus // whole), gpus) for gpus in sizes])
    return {gpus: goodput for (_, gpus), goodput in goodputs.items()}


def most_gpus(each: Present) -> int:
    """GPUs it may be given, by what it asks for and what it has had."""
    most = each.job.max_workers * each.job.gpus_per_worker
    if not isinstance(each.training, ProfiledTraining):
        return most
    if each.training.agent is None:
        return each.job.gpus_per_worker
    return min(most, max(_EXPLORE * each.training.agent.most_gpus, 1))
