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
    fair_workers: int
    """An equal share of the queue, as far as the Job may have it."""
    near: int
    """How many more workers its own nodes could take."""
    at: float
    """The time."""

    def on(self, workers: int, capacity: Capacity, pools: Sequence[int]) -> float:
        """The goodput with so many workers, those beyond the present ones in some of these pools."""
        classes = {capacity.pools[capacity.pool_of[node]].gpu_class for node in self._stay(workers, capacity)}
        if workers > self.job.workers:
            classes |= {capacity.pools[pool].gpu_class for pool in pools}
        nodes = len(set(self.job.nodes[:workers]) - {NOWHERE}) + (workers - self.job.workers > self.near)
        return self.goodput.at(workers, max(1, nodes), tuple(sorted(classes)))

    def _stay(self, workers: int, capacity: Capacity) -> list[str]:
        return [node for node in self.job.nodes[:workers] if node in capacity.pool_of]


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


def choice_of(outlook: Outlook, capacity: Capacity, sizes: Sequence[int]) -> Choice:
    """A Job's options: these sizes, the larger ones also on each GPU class by itself where one is faster than all."""
    job, kind = outlook.job, kind_of(outlook.job)
    anywhere = capacity.pools_for(kind)
    classes = sorted({capacity.pools[pool].gpu_class for pool in anywhere})
    alone = [capacity.pools_for(kind, name) for name in classes] if len(classes) > 1 else []
    fair = max(outlook.on(outlook.fair_workers, capacity, pools) for pools in (anywhere, *alone))
    present = fair / outlook.on(job.workers, capacity, ())
    moving = present * _moving(outlook)
    options: list[Option] = []
    for size in sorted({job.workers, *sizes}):
        if size == job.workers:
            options.append(Option(workers=size, cost=present))
        elif size < job.workers:
            left = job.nodes[size:]
            options.append(
                Option(
                    workers=size,
                    cost=fair / outlook.on(size, capacity, ()) + moving,
                    gives=capacity.given(left),
                    gpus=-capacity.held(left) * job.gpus_per_worker,
                )
            )
        elif anywhere:
            adds = size - job.workers
            mixed = outlook.on(size, capacity, anywhere)
            better = [pools for pools in alone if outlook.on(size, capacity, pools) > mixed]
            options += [
                Option(
                    workers=size,
                    cost=fair / outlook.on(size, capacity, pools) + moving,
                    adds=adds,
                    pools=pools,
                    gpus=adds * job.gpus_per_worker,
                )
                for pools in (anywhere, *better)
            ]
    present_at = next(index for index, option in enumerate(options) if option.workers == job.workers)
    return Choice(key=job.key, priority=job.priority, kind=kind, options=tuple(options), present=present_at)


def _moving(outlook: Outlook) -> float:
    """What another size costs, as a part of the present cost."""
    job, cost = outlook.job, restart_s(outlook.job)
    age = max(outlook.at - job.created_at, 1.0)
    remaining = job.remaining_s if job.remaining_s is not None else min(age, _LONGEST_S)
    lost = sum(cost if each.pause_s is None else each.pause_s for each in job.resizes)
    return cost / max(remaining, 1.0) + lost / age + _STICKINESS
