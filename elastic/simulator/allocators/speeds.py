"""What a job is expected to make of GPUs, by what its own training has seen so far. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kfp_volcano.elastic.simulator.profiles.training import ProfiledTraining

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kfp_volcano.elastic.simulator.allocators.allocator import Present

__all__ = ["Speeds", "most_gpus", "speeds_of"]

_EXPLORE = 2
"""A job is given up to so many times the GPUs that it has had at most (Pollux)."""


class Speeds:
    """Progress a second with 1, 2, … GPUs, in units of its own."""

    def __init__(self, together: NDArray[np.float64], apart: NDArray[np.float64]) -> None:
        self._together = together
        self._apart = apart

    def at(self, gpus: int, *, together: bool = True) -> float:
        """With so many GPUs, on one node or on more."""
        return float((self._together if together else self._apart)[gpus - 1])


def speeds_of(each: Present, most: int) -> Speeds:
    """With up to so many GPUs."""
    if isinstance(each.training, ProfiledTraining) and each.training.agent is not None:
        return Speeds(*each.training.agent.goodputs(most))
    if isinstance(each.training, ProfiledTraining):
        return Speeds(np.arange(1.0, most + 1), np.arange(1.0, most + 1))
    rates = 1 / np.array([each.job.work.alone_s(gpus) for gpus in range(1, most + 1)])
    return Speeds(rates, rates)


def most_gpus(each: Present) -> int:
    """GPUs it may be given, by what it asks for and what it has had."""
    most = each.job.max_workers * each.job.gpus_per_worker
    if not isinstance(each.training, ProfiledTraining):
        return most
    if each.training.agent is None:
        return each.job.gpus_per_worker
    return min(most, max(_EXPLORE * each.training.agent.most_gpus, 1))
