# SPDX-License-Identifier: Apache-2.0
"""Like Sia (SOSP'23): one configuration for each job, by an integer programme over the GPU classes. Pure.

A configuration is a number of GPUs of one class: a part of a node each of which divides the next, or whole nodes. Of
job i in configuration c, with G its goodput over that of its least configuration, and (T - R*S) / (T + S) of it where
c is another than the present one (T its age, R its restarts, S what one costs), the programme finds, with HiGHS,

    least   sum over i, c of x[i,c] * G[i,c]^-0.5  +  1.1 * (jobs that have none)
    with    at most one c for each i, and no more GPUs of a class than there are

which are Sia's objective and its published parameters (p = -0.5, lambda = 1.1). A job with a profile has at
most twice the GPUs that it has had. *What is different*: goodputs are what each job has seen itself (as in `pollux`),
the same on all classes that it may run on; of a job of which only the duration is known, what the scenario assumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from kfp_volcano.elastic.simulator.allocators.packing import held, pack, placeable
from kfp_volcano.elastic.simulator.allocators.speeds import most_gpus, speeds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.allocators.allocator import Present, Spots
    from kfp_volcano.elastic.simulator.scenario import Node

__all__ = ["Sia"]

_POWER = -0.5
_WITHOUT = 1.1
_LEAST_FACTOR = 1e-3
_GAP = 1e-4
_SECONDS = 10.0


class _Configuration(NamedTuple):
    job: int
    gpu_class: str
    gpus: int
    gain: float
    """By how much less it costs than to have none."""


class Sia:
    """Goodput by an integer programme."""

    name: ClassVar[str] = "sia"
    adaptive: ClassVar[bool] = True

    def allocate(self, jobs: Sequence[Present], nodes: Sequence[Node], at: float) -> Mapping[str, Spots]:
        """What each job is to hold; see `Allocator`."""
        by_class: dict[str, list[Node]] = {}
        for node in nodes:
            by_class.setdefault(node.gpu_class, []).append(node)
        options = [
            option
            for number, each in enumerate(jobs)
            for gpu_class, there in by_class.items()
            if not each.job.gpu_classes or gpu_class in each.job.gpu_classes
            for option in _configurations(number, each, gpu_class, there, at)
        ]
        chosen = _best(options, {name: sum(node.gpus for node in there) for name, there in by_class.items()})
        found: dict[str, Spots] = {}
        for gpu_class, there in by_class.items():
            wanted = [(jobs[option.job], option.gpus) for option in chosen if option.gpu_class == gpu_class]
            found.update(pack(wanted, there))
        return found


def _configurations(
    number: int, each: Present, gpu_class: str, nodes: Sequence[Node], at: float
) -> list[_Configuration]:
    total, whole = sum(node.gpus for node in nodes), max(node.gpus for node in nodes)
    speeds = speeds_of(each, placeable(min(most_gpus(each), total), whole), whole)
    least = speeds[min(speeds)]
    age, cost_s = at - each.job.submitted_at, each.job.resize_s
    factor = max((age - each.restarts * cost_s) / (age + cost_s), _LEAST_FACTOR) if each.spots else 1.0
    names = {node.name for node in nodes}
    here = held(each.spots) if all(node in names for node, _ in each.spots) else 0
    return [
        _Configuration(
            number, gpu_class, gpus, _WITHOUT - (max(speed, 1e-9) / least * (1 if gpus == here else factor)) ** _POWER
        )
        for gpus, speed in speeds.items()
    ]


def _best(options: Sequence[_Configuration], gpus: Mapping[str, int]) -> list[_Configuration]:
    """At most one configuration for each job, with the most gain."""
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415 - a second, and 35 MB
    from scipy.sparse import csr_array  # noqa: PLC0415

    options = [option for option in options if option.gain > 0]
    if not options:
        return []
    rows = {job: row for row, job in enumerate(sorted({option.job for option in options}))}
    classes = {name: len(rows) + row for row, name in enumerate(gpus)}
    columns = list(range(len(options)))
    matrix = csr_array(
        (
            [1.0] * len(options) + [float(option.gpus) for option in options],
            (
                [rows[option.job] for option in options] + [classes[option.gpu_class] for option in options],
                columns + columns,
            ),
        ),
        shape=(len(rows) + len(classes), len(options)),
    )
    limits = np.array([1.0] * len(rows) + [float(gpus[name]) for name in classes])
    result = milp(
        -np.array([option.gain for option in options]),
        constraints=LinearConstraint(matrix, -np.inf, limits),
        integrality=np.ones(len(options)),
        bounds=(0, 1),
        options={"mip_rel_gap": _GAP, "time_limit": _SECONDS},
    )
    if result.x is None:
        return []
    return [option for option, taken in zip(options, result.x.tolist(), strict=True) if taken > 0.5]  # noqa: PLR2004
