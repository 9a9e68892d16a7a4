# SPDX-License-Identifier: Apache-2.0
"""The policy `threshold`: grow while much of the queue is idle, shrink while it is too full. Pure.

The two directions use different thresholds, so that they cannot chase each other: Jobs grow only while at least
`up.idle_share` of what their queue may use is idle, and never up to `down.used_share`, from which on they shrink. What
gangs are owed is given whatever the thresholds are. GPUs are rounded down to whole workers that fit on single nodes;
rounded up, the last worker of every growth would wait for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.policies.gangs import owed, serve
from kfp_volcano.elastic.policies.giving import giving_order
from kfp_volcano.elastic.policies.outlook import Rest
from kfp_volcano.elastic.policies.policy import Decision, Reason, hold
from kfp_volcano.elastic.policies.room import room_of, unclaimed
from kfp_volcano.elastic.policies.settings import ThresholdSettings
from kfp_volcano.elastic.policies.snapshot import NOWHERE
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.outlook import Outlook
    from kfp_volcano.elastic.policies.room import Room
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot

__all__ = ["Threshold"]

_ROUNDING = 1e-9
"""Shares of GPUs are compared with whole GPUs: 0.7 of 10 is 7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Idle and used share, and tasks that wait."""

    name: ClassVar[str] = "threshold"
    steadfast: ClassVar[bool] = True

    settings: ThresholdSettings = field(default_factory=ThresholdSettings)

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each Job, sorted by key; see `Policy`."""
        return self.decide_beside(snapshot, serve(snapshot))

    def decide_beside(self, snapshot: QueueSnapshot, service: Service) -> tuple[Decision, ...]:
        """As `decide`, where it is known already what the gangs are served; see `Serving`."""
        load = _Load(snapshot, service, self.settings)
        grown = _grown(load) if load.grows else {}
        shrunk = _shrunk(load) if load.tight else {}
        decisions = []
        for job in sorted(snapshot.jobs, key=lambda job: job.key):
            if job.key in service.sizes:
                decisions.append(owed(job, service, self.name))
            elif job.key in grown:
                decisions.append(_grow(job, grown[job.key], load))
            elif job.key in shrunk:
                decisions.append(_shrink(job, shrunk[job.key], load))
            else:
                decisions.append(hold(job, *_staying(job, load), self.name))
        return tuple(decisions)

    def rest(self, outlook: Outlook) -> Rest | None:
        """Whether it resizes nothing; see `Resting`."""
        up, down = self.settings.up, self.settings.down
        if down.used_share is not None or down.pending_tasks is not None:
            return None
        enough = outlook.free_gpus >= up.idle_share * outlook.limit_gpus - _ROUNDING
        return None if outlook.growing and outlook.free_gpus > 0 and enough else Rest()


class _Load:
    """How full a queue is, beside what gangs are served."""

    def __init__(self, snapshot: QueueSnapshot, service: Service, settings: ThresholdSettings) -> None:
        self.snapshot = snapshot
        self.service = service
        self.settings = settings
        self.limit = snapshot.limit_gpus
        self.room = unclaimed(service.room, snapshot)
        self.idle = self.room.gpus
        self.used = self.limit - self.room.gpus_later
        """GPUs that are in use, or promised, once all that is leaving is gone."""
        self.waiting = sum(len(gang.pods) for gang in service.unserved)
        """Pods of gangs that nothing can be given for."""
        pending = settings.down.pending_tasks
        self.waits_too_much = bool(pending is not None and self.waiting >= pending and self.waiting)
        self.tight = self.waits_too_much or self.too_full()
        """Whether Jobs are to shrink."""
        most = settings.up.pending_tasks
        self.grows = not self.tight and self.enough(self.idle) and (most is None or self.waiting <= most)
        """Whether Jobs may grow."""

    def enough(self, idle: int) -> bool:
        """Whether so many idle GPUs are enough for Jobs to grow."""
        return idle > 0 and idle >= self.settings.up.idle_share * self.limit - _ROUNDING

    def too_full(self, freed: int = 0) -> bool:
        """Whether more is in use than may be, when so many GPUs have come free."""
        share = self.settings.down.used_share
        return share is not None and self.used - freed >= share * self.limit - _ROUNDING

    @property
    def to_grow_into(self) -> Room:
        """What Jobs may take so that they need not shrink again."""
        share = self.settings.down.used_share
        if share is None:
            return self.room
        return replace(self.room, limit=min(self.room.limit, ceil(share * self.limit - _ROUNDING) - 1 - self.used))

    @cached_property
    def kept_for_gangs(self) -> bool:
        """Whether Jobs would grow if no gang waited."""
        return bool(self.service.served) and self.enough(unclaimed(room_of(self.snapshot), self.snapshot).gpus)

    @property
    def words(self) -> str:
        """Why it is tight."""
        if self.waits_too_much:
            return f"{self.waiting} pods of {self.service.unserved[0].name} and others wait"
        return f"{self.used} of the queue's {self.limit} GPUs are in use, which is too many"


def _grown(load: _Load) -> dict[str, int]:
    """New sizes of the Jobs that grow: highest priority first, and within one the smallest first, size by size."""
    jobs = {job.key: job for job in load.snapshot.jobs if job.key not in load.service.sizes and job.gpus_per_worker}
    larger = {key: iter(_larger(job)[: load.settings.up.step]) for key, job in jobs.items()}
    sizes = {key: job.workers for key, job in jobs.items()}
    draft = load.to_grow_into.draft()
    turns = [(-job.priority, job.workers * job.gpus_per_worker, key) for key, job in jobs.items()]
    heapify(turns)
    while turns:
        priority, _, key = heappop(turns)
        job, size = jobs[key], next(larger[key], None)
        if size is not None and draft.take_equal(job.shape, job.gpus_per_worker, size - sizes[key]):
            sizes[key] = size
            heappush(turns, (priority, size * job.gpus_per_worker, key))
    return {key: size for key, size in sizes.items() if size > jobs[key].workers}


def _shrunk(load: _Load) -> dict[str, int]:
    """New sizes of the Jobs that shrink: in the order of `giving`, each by a step at most, no more than it takes."""
    sizes: dict[str, int] = {}
    freed = 0
    for job in giving_order(job for job in load.snapshot.jobs if job.key not in load.service.sizes):
        smaller = sorted((size for size in job.sizes if size < job.workers), reverse=True)[: load.settings.down.step]
        for size in smaller if job.gpus_per_worker else ():
            if not load.waits_too_much and not load.too_full(freed):
                return sizes
            leaving = job.nodes[size : sizes.get(job.key, job.workers)]
            freed += (len(leaving) - leaving.count(NOWHERE)) * job.gpus_per_worker
            sizes[job.key] = size
    return sizes


def _staying(job: ElasticJob, load: _Load) -> tuple[Reason, str]:
    """Why a Job stays as it is."""
    if load.service.unserved or load.tight:
        return _not_giving(job, load)
    stays = f"{job.name} stays at {counted(job.workers, 'worker')}"
    larger, share = _larger(job), f"{load.idle} of the queue's {load.limit} GPUs are idle"
    if not load.enough(load.idle):
        if larger and load.kept_for_gangs:
            return Reason.GANG_FIRST, f"the idle GPUs are for {load.service.served[0].name}, which waits: {stays}"
        return Reason.STEADY, f"{share}, less than it takes to grow: {stays}"
    if not larger:
        return Reason.AT_MAXIMUM, f"{share}, but {job.name} has its maximum of {counted(job.workers, 'worker')}"
    return Reason.NO_ROOM, f"{share}, but {counted(min(larger), 'worker')} would not fit: {stays}"


def _not_giving(job: ElasticJob, load: _Load) -> tuple[Reason, str]:
    """Why a Job stays as it is although a gang waits, or the queue is too full."""
    gang = next(iter(load.service.unserved), None)
    why = f"{gang.name} waits for {counted(gang.gpus, 'GPU')}" if gang else load.words
    if min(job.sizes, default=job.workers) >= job.workers:
        return Reason.AT_MINIMUM, f"{why}, but {job.name} has no more than its {counted(job.workers, 'worker')}"
    stays = f"{job.name} stays at {counted(job.workers, 'worker')}"
    if gang:
        return Reason.SURPLUS_TOO_SMALL, f"{why}, which all surplus it is owed would not free: {stays}"
    return Reason.STEADY, f"{why}, but it is enough that others shrink: {stays}"


def _larger(job: ElasticJob) -> list[int]:
    return sorted(size for size in job.sizes if size > job.workers)


def _grow(job: ElasticJob, size: int, load: _Load) -> Decision:
    gangs = load.service.unserved or load.service.served
    waits = "no gang waits" if not gangs else "no gang that waits needs them"
    return Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=size,
        reason=Reason.QUEUE_IDLE,
        explanation=f"{load.idle} of the queue's {load.limit} GPUs are idle and {waits}: "
        f"{job.name} grows from {job.workers} to {counted(size, 'worker')}",
        urgent=False,
        policy=Threshold.name,
        numbers={"idle_gpus": load.idle, "limit_gpus": load.limit},
    )


def _shrink(job: ElasticJob, size: int, load: _Load) -> Decision:
    return Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=size,
        reason=Reason.QUEUE_TIGHT,
        explanation=f"{load.words}: {job.name} shrinks from {job.workers} to {counted(size, 'worker')}",
        urgent=False,
        policy=Threshold.name,
        numbers={"used_gpus": load.used, "limit_gpus": load.limit, "waiting_pods": load.waiting},
    )
