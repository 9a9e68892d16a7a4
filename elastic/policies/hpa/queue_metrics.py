# SPDX-License-Identifier: Apache-2.0
"""What a queue's own metrics leave its Jobs: how many GPUs more, or fewer, and why. Pure.

A metric of load that falls as replicas are added calls for a number of replicas by its ratio to the target. A queue's
use of GPUs is none: it rises with each worker, and a ratio says nothing of how many fit. So these metrics bound what
all Jobs together may hold, and are never rounded up: the smallest bound counts, as the largest call does for others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.hpa.numbers import ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfp_volcano.elastic.policies.hpa.replicas import Tolerance
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.schemas.hpa import MetricSpec

__all__ = ["Allowance", "allowance"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a queue's metrics allow all of its Jobs together."""

    gpus: int | None
    """GPUs they may take besides, or, below zero, have to give; None: no metric bounds it."""
    near: bool
    """Whether it is not used because the metric is within its tolerance."""
    says: str
    """The metric that decides, with its numbers, as part of a sentence."""
    numbers: Mapping[str, float]

    @property
    def to_take(self) -> int | None:
        """GPUs by which Jobs may grow; None: as many as there are."""
        return None if self.gpus is None else 0 if self.near else max(0, self.gpus)

    @property
    def to_give(self) -> int:
        """GPUs that Jobs have to give."""
        return 0 if self.gpus is None or self.near else max(0, -self.gpus)


def allowance(metrics: Iterable[MetricSpec], snapshot: QueueSnapshot, in_use: int, tolerance: Tolerance) -> Allowance:
    """The tightest of the queue's metrics. `in_use`: GPUs, what is promised counted and what is leaving not."""
    each = [_of(metric, snapshot, in_use, tolerance) for metric in metrics]
    none = Allowance(None, near=False, says="", numbers={})
    return min(each, key=lambda one: math.inf if one.to_take is None else one.to_take - one.to_give, default=none)


def _of(metric: MetricSpec, snapshot: QueueSnapshot, in_use: int, tolerance: Tolerance) -> Allowance:
    source = metric.object
    if source is None or source.target.value is None:
        raise ValueError(f"not a queue's metric with a value for target: {metric}")
    name, target, limit = source.metric.name, source.target.value, snapshot.limit_gpus
    if name in {"pending-gangs", "pending-gpus"}:
        return _brake(name, target, snapshot, tolerance)
    match name:
        case "gpu-share-in-use":
            goal = target * limit
            says = f"{in_use} of the queue's {limit} GPUs are in use, and {target / 10:g} % are to be"
        case "gpus-in-use":
            goal = target * 1
            says = f"{in_use} of the queue's {limit} GPUs are in use, and {target / 1000:g} are to be"
        case _:
            goal = limit * 1000 - target
            says = f"{limit - in_use} of the queue's {limit} GPUs are idle, and {target / 1000:g} are to be"
    near = tolerance.holds(ratio(goal, in_use * 1000))
    gpus = (goal - in_use * 1000) // 1000  # rounded down both ways: too little is taken, and enough is given
    return Allowance(gpus, near=near, says=says, numbers={name: in_use, "target": goal / 1000})


def _brake(name: str, target: int, snapshot: QueueSnapshot, tolerance: Tolerance) -> Allowance:
    """Nothing to take while more waits than the target; gangs that can be served are given to in any case."""
    count = len(snapshot.pending) if name == "pending-gangs" else sum(gang.gpus for gang in snapshot.pending)
    what = "gangs wait" if name == "pending-gangs" else "GPUs are waited for"
    says = f"{count} {what}, and {target / 1000:g} may"
    braked = count * 1000 > target * (1.0 + tolerance.down)
    numbers = {name: count, "target": target / 1000}
    return Allowance(0 if braked else None, near=False, says=says, numbers=numbers)
