# SPDX-License-Identifier: Apache-2.0
"""Pollux (OSDI'21): GPUs by what all jobs together make of them, so that none falls far behind. Pure.

What is made most is the published objective: the power mean, with p = -1, of the jobs' speed-ups over an equal share of
the cluster, where another placement than the present one counts for (T - 30*R) / (T + 30) of itself, with T the job's
age and R its restarts (equations 13 to 15; OSDI'21 artifact, `simulator/pollux.py`). A job has at most twice the GPUs
that it has had before.

*What is different*: there a genetic algorithm tries 10,000 placements. Here the best numbers of GPUs are found exactly,
by dynamic programming over the GPUs of the cluster, among those that can always be placed: 1, 2, 4, … GPUs on one node,
or whole nodes. So no two jobs that are on several nodes share one, as there. Whether jobs must be moved to make room is
seen only when they are placed; as few as possible are, the smallest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kfp_volcano.elastic.simulator.allocators.packing import held, pack, placeable
from kfp_volcano.elastic.simulator.allocators.speeds import most_gpus, speeds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.allocators.allocator import Present, Spots
    from kfp_volcano.elastic.simulator.scenario import Node

__all__ = ["Pollux", "least"]

_DELAY_S = 30.0
_FLOOR = 1e-3


class Pollux:
    """Goodput, shared out fairly."""

    name: ClassVar[str] = "pollux"
    adaptive: ClassVar[bool] = True

    def allocate(self, jobs: Sequence[Present], nodes: Sequence[Node], at: float) -> Mapping[str, Spots]:
        """What each job is to hold; see `Allocator`."""
        total, whole = sum(node.gpus for node in nodes), max(node.gpus for node in nodes)
        fair = -(-total // len(jobs))
        costs = []
        for each in jobs:
            sizes = placeable(min(most_gpus(each), total), whole)
            base = speeds_of(each, [fair], total)[fair] * total / len(nodes)
            costs.append(
                _costs(each, at, {size: speed / base for size, speed in speeds_of(each, sizes, whole).items()})
            )
        numbers = least(costs, total)
        return pack([(each, number) for each, number in zip(jobs, numbers, strict=True)], nodes)


def _costs(each: Present, at: float, speedups: Mapping[int, float]) -> dict[int, float]:
    """1/SPEEDUP of each number of GPUs."""
    age = at - each.job.submitted_at
    factor = max(age - each.restarts * _DELAY_S, 0.0) / (age + _DELAY_S)
    now = held(each.spots)
    return {
        0: 1 / _FLOOR,
        **{size: 1 / (speedup * (1 if size == now else factor) + _FLOOR) for size, speedup in speedups.items()},
    }


def least(costs: Sequence[Mapping[int, float]], total: int) -> list[int]:
    """The number of each job with which the costs sum to least, and the numbers to no more than `total`.

    Args:
        costs: Of each job, by number; 0 among them.
        total: Of all numbers.
    """
    best = np.zeros(total + 1)
    taken = []
    for options in costs:
        numbers = [number for number in sorted(options) if number <= total]
        tried = np.full((len(numbers), total + 1), np.inf)
        for row, number in enumerate(numbers):
            tried[row, number:] = best[: total + 1 - number] + options[number]
        rows = np.argmin(tried, axis=0)
        taken.append([numbers[row] for row in rows.tolist()])
        best = tried[rows, np.arange(total + 1)]
    left, found = total, []
    for choice in reversed(taken):
        found.append(choice[left])
        left -= choice[left]
    return found[::-1]
