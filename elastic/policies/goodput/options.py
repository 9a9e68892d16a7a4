# SPDX-License-Identifier: Apache-2.0
"""What each size is worth to a Job, and to the queue. Pure.

The queue's aim is that Jobs end soon, on average, and none is forgotten: the most sum of w*log(G), where G is a Job's
goodput. The logarithm is proportional fairness (Kelly 1998): a Job gets GPUs as far as they add the same part to its
pace as they would to another's, so that a second worker is worth eight times a ninth, and no two Jobs' units need to be
compared. With equal weights w it comes close to Pollux' aim, the harmonic mean of speed-ups (OSDI'21, equation 14).

The weights are what makes Jobs end sooner. Where all work scales alike, the least mean time is had by giving more to
those that have less left to do, by their rank alone (heSRPT, Berg et al. 2020; with work that does not scale at all:
the shortest first): who is nearly done soon frees what it holds, and is waited for no longer. Here w = n^0.75, where n
Jobs of the queue have as much to do as this one or more, each counted by what it would take alone on one worker.

Since each Job takes one option, the sum is linear as it stands: an option costs what it lacks of the best one. Another
size than the present one costs more, by the time that it takes to get there:

    cost(o) = w * log(G_best/G(o)) + [o is another size] * w * log(LEAST_GAIN * lost)
    lost    = the larger of 1 + restart/remaining and (age + restart)/(age - paused)

restart: what a resize of it has cost, measured; remaining: what it has to do at the pace of that size, or as long as it
is old; paused: what resizes have cost it already. The second is Pollux' REALLOC factor: what was moved often is moved
seldom. LEAST_GAIN keeps it from being moved for less than AdaptDL's 1.05 times the goodput, and equal answers from
taking turns.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.giving import pause_of
from kfp_volcano.elastic.policies.goodput.capacity import Capacity, Kind
from kfp_volcano.elastic.policies.goodput.choices import Choice, Option
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.goodput.efficiency import Goodput
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["LEAST_GAIN", "Outlook", "choice_of", "kind_of", "reach", "restart_s", "weights"]

LEAST_GAIN = 1.05
"""A Job alone is not moved for less than this times its goodput (AdaptDL's threshold)."""
_LONGEST_S = 7 * 86400.0
_RANK_WEIGHS = 0.75
_EXPLORE = 2
_UNMEASURED_S = GuardSettings().pause_s


@dataclass(frozen=True, slots=True)
class Outlook:
    """A Job and what is expected of it."""

    job: ElasticJob
    goodput: Goodput
    capacity: Capacity
    weight: float
    """How much the queue gains where this Job's goodput grows by a part, beside another's."""
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


def weights(jobs: Sequence[ElasticJob], goodputs: Mapping[str, Goodput], at: float) -> dict[str, float]:
    """The weight of each Job among these, by key: the more the less it has to do."""
    left = {job.key: _alone_s(job, goodputs[job.key], at) for job in jobs}
    ordered = sorted(left.values())
    return {key: float(len(ordered) - bisect_left(ordered, each)) ** _RANK_WEIGHS for key, each in left.items()}


def _alone_s(job: ElasticJob, goodput: Goodput, at: float) -> float:
    """What it has left to do, in the seconds of one GPU.

    Where nothing is known of that it must not follow its size, or Jobs would take turns: who is large would have most.
    """
    ratio = 1.0 if job.remaining_s is None else goodput.at(job.workers) / goodput.at(1)
    return _remaining_s(job, at) * ratio * job.gpus_per_worker


def _remaining_s(job: ElasticJob, at: float) -> float:
    """At its present pace; where nothing is known of it, as long as it is old."""
    remaining = job.remaining_s if job.remaining_s is not None else min(at - job.created_at, _LONGEST_S)
    return max(remaining, 1.0)


def choice_of(outlook: Outlook, sizes: Sequence[int]) -> Choice:
    """A Job's options: these sizes, and the present one."""
    job, kind = outlook.job, kind_of(outlook.job)
    anywhere, apart = outlook.capacity.pools_for(kind), outlook.apart
    present = outlook.on(job.workers)
    smaller = [(_smaller(outlook, size), outlook.on(size)) for size in sorted(sizes) if size < job.workers]
    larger = [
        each
        for size in sorted(sizes)
        if size > job.workers and anywhere
        for each in _larger(outlook, size, anywhere, apart)
    ]
    best = max(goodput for _, goodput in [(None, present), *smaller, *larger])
    stay = Option(workers=job.workers, cost=outlook.weight * math.log(best / present))

    def costing(option: Option, goodput: float) -> Option:
        return replace(option, cost=outlook.weight * (math.log(best / goodput) + _moving(outlook, goodput / present)))

    return Choice(
        key=job.key,
        priority=job.priority,
        kind=kind,
        options=(*(costing(*each) for each in smaller), stay, *(costing(*each) for each in larger)),
        present=len(smaller),
    )


def _smaller(outlook: Outlook, size: int) -> Option:
    job = outlook.job
    leaving = job.nodes[size:]
    gpus = -outlook.capacity.held(leaving) * job.gpus_per_worker
    return Option(workers=size, cost=0.0, gives=outlook.capacity.given(leaving), gpus=gpus)


def _larger(
    outlook: Outlook, size: int, anywhere: tuple[int, ...], apart: Sequence[tuple[int, ...]]
) -> list[tuple[Option, float]]:
    """With the new workers anywhere, and on each GPU class by itself on which that is faster; and the goodput there."""
    adds = size - outlook.job.workers
    mixed = outlook.on(size, anywhere)
    found = {anywhere: mixed, **{pools: fast for pools in apart if (fast := outlook.on(size, pools)) > mixed}}
    return [
        (Option(workers=size, cost=0.0, adds=adds, pools=pools, gpus=adds * outlook.job.gpus_per_worker), goodput)
        for pools, goodput in found.items()
    ]


def _moving(outlook: Outlook, faster: float) -> float:
    """What another size, at which it is so many times as fast, costs in logarithms of its goodput."""
    job, cost = outlook.job, restart_s(outlook.job)
    age = max(outlook.at - job.created_at, 1.0)
    paused = sum(cost if each.pause_s is None else each.pause_s for each in job.resizes)
    ahead, behind = 1 + cost * faster / _remaining_s(job, outlook.at), (age + cost) / max(age - paused, 1.0)
    return math.log(max(ahead, behind) * LEAST_GAIN)
