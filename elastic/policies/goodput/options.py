"""What each size is worth to a Job, and to the queue. Pure.

The queue's aim is Pollux's: the power mean, with p = -1, of the Jobs' speed-ups (OSDI'21, equation 14), that is the
least sum of 1/SPEEDUP, where a Job's SPEEDUP is its goodput over that with an equal share of the queue. Since each Job
takes one option, that sum is linear as it stands: an option costs 1/SPEEDUP. It favours whoever has least: a second
worker halves a Job's cost, a ninth takes an eighth off an eighth.

Another size than the present one costs more by the time it takes to get there, spread over the time the Job still has:

    cost(o) = G_fair/G(o) + [o is another size] * G_fair/G(present) * (restart/remaining + lost/age + STICKINESS)

restart: what a resize of it has cost, measured; remaining: what it has to do at its present pace, or as long as it is
old; lost/age: the share of its life that resizes have cost already (the R*delta/T of Pollux' REALLOC factor), so that
what was moved often is moved seldom; STICKINESS keeps it from being moved for less than AdaptDL's 1.05 times the
goodput, and equal answers from taking turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.giving import pause_of
from kfp_volcano.elastic.policies.goodput.capacity import Capacity, Kind
from kfp_volcano.elastic.policies.goodput.choices import Choice, Option
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.policies.goodput.efficiency import Goodput
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["LEAST_GAIN", "Outlook", "choice_of", "kind_of", "reach", "restart_s"]

LEAST_GAIN = 1.05
"""A Job alone is not moved for less than this times its goodput (AdaptDL's threshold)."""
_STICKINESS = 1 - 1 / LEAST_GAIN
_LONGEST_S = 7 * 86400.0
_EXPLORE = 2
_UNMEASURED_S = GuardSettings().pause_s


@dataclass(frozen=True, slots=True)
class Outlook:
    """A Job and what is expected of it."""

    job: ElasticJob
    goodput: Goodput
    capacity: Capacity
    fair_workers: int
    """An equal share of the queue, as far as the Job may have it."""
    near: int
    """How many more workers its own nodes could take."""
    at: float
    """The time."""

    def on(self, workers: int, pools: Sequence[int] = ()) -> float:
        """The goodput with so many workers, those beyond the present ones in some of these pools."""
        stay, more = self.job.nodes[:workers], workers - self.job.workers
        nodes = len({*stay} - {NOWHERE}) + (more > self.near)
        classes: set[str] = set()
        if self.goodput.tells_classes:
            kept = [self.capacity.pool_of[node] for node in stay if node in self.capacity.pool_of]
            classes = {self.capacity.pools[pool].gpu_class for pool in (*kept, *(pools if more > 0 else ()))}
        return self.goodput.at(workers, max(1, nodes), tuple(sorted(classes)))

    @property
    def apart(self) -> list[tuple[int, ...]]:
        """The pools of each GPU class that its workers may go to, where it makes a difference to which."""
        kind = kind_of(self.job)
        classes = sorted({self.capacity.pools[pool].gpu_class for pool in self.capacity.pools_for(kind)})
        if len(classes) < 2 or not self.goodput.tells_classes:  # noqa: PLR2004 - a choice is of two
            return []
        return [self.capacity.pools_for(kind, name) for name in classes]


def kind_of(job: ElasticJob) -> Kind:
    """What its workers are to nodes."""
    return Kind(job.shape, job.gpus_per_worker)


def restart_s(job: ElasticJob) -> float:
    """What a resize costs it, seconds; where it has measured none, as little as the guards think too."""
    pause = pause_of(job)
    return _UNMEASURED_S if pause is None else pause


def reach(job: ElasticJob) -> tuple[int, ...]:
    """The sizes that are looked at: those it may have, as far as its model is believed, and the present one.

    A model is believed up to twice the most workers it has seen (Pollux), but at least to the next size.
    """
    seen = max([job.running, *(each.workers for each in job.measured)], default=job.workers)
    beyond = min((size for size in job.sizes if size > seen), default=seen)
    most = max(_EXPLORE * seen, beyond)
    return tuple(sorted({job.workers, *(size for size in job.sizes if size <= most)}))


def choice_of(outlook: Outlook, sizes: Sequence[int]) -> Choice:
    """A Job's options: these sizes, and the present one."""
    job, kind = outlook.job, kind_of(outlook.job)
    anywhere, apart = outlook.capacity.pools_for(kind), outlook.apart
    fair = max(outlook.on(outlook.fair_workers, pools) for pools in (anywhere, *apart))
    stay = Option(workers=job.workers, cost=fair / outlook.on(job.workers))
    moving = stay.cost * _moving(outlook)
    smaller = [_smaller(outlook, size, fair, moving) for size in sorted(sizes) if size < job.workers]
    larger = [
        option
        for size in sorted(sizes)
        if size > job.workers and anywhere
        for option in _larger(outlook, size, fair, moving, anywhere, apart)
    ]
    return Choice(
        key=job.key, priority=job.priority, kind=kind, options=(*smaller, stay, *larger), present=len(smaller)
    )


def _smaller(outlook: Outlook, size: int, fair: float, moving: float) -> Option:
    job = outlook.job
    leaving = job.nodes[size:]
    return Option(
        workers=size,
        cost=fair / outlook.on(size) + moving,
        gives=outlook.capacity.given(leaving),
        gpus=-outlook.capacity.held(leaving) * job.gpus_per_worker,
    )


def _larger(
    outlook: Outlook, size: int, fair: float, moving: float, anywhere: tuple[int, ...], apart: Sequence[tuple[int, ...]]
) -> list[Option]:
    """With the new workers anywhere, and on each GPU class by itself on which that is faster."""
    adds = size - outlook.job.workers
    mixed = outlook.on(size, anywhere)
    found = {anywhere: mixed, **{pools: fast for pools in apart if (fast := outlook.on(size, pools)) > mixed}}
    return [
        Option(
            workers=size,
            cost=fair / goodput + moving,
            adds=adds,
            pools=pools,
            gpus=adds * outlook.job.gpus_per_worker,
        )
        for pools, goodput in found.items()
    ]


def _moving(outlook: Outlook) -> float:
    """What another size costs, as a part of the present cost."""
    job, cost = outlook.job, restart_s(outlook.job)
    age = max(outlook.at - job.created_at, 1.0)
    remaining = job.remaining_s if job.remaining_s is not None else min(age, _LONGEST_S)
    lost = sum(cost if each.pause_s is None else each.pause_s for each in job.resizes)
    return cost / max(remaining, 1.0) + lost / age + _STICKINESS
