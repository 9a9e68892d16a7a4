"""The policy `threshold`: grow while much of the queue is idle, give surplus to gangs that wait. Pure.

The two directions use different thresholds, so that they cannot chase each other: a Job grows only while at least
`idle_share` of what its queue may use is idle, and shrinks only for a gang that this serves. GPUs are rounded down to
whole workers that fit on single nodes; rounded up, the last worker of every growth would wait for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.policies.gangs import serve
from kfp_volcano.elastic.policies.policy import Decision, Reason, hold
from kfp_volcano.elastic.policies.room import room_of, unclaimed

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.room import Room
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot

__all__ = ["Threshold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Idle share and waiting gangs."""

    name: ClassVar[str] = "threshold"

    idle_share: float = 0.5
    """Part of what the queue may use that must be idle before a Job grows, 0 to 1; a half, so that a queue does not
    fill up to the brim for every GPU that comes free."""

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each Job, sorted by key; see `Policy`."""
        service = serve(snapshot)
        free = unclaimed(room_of(snapshot), snapshot)
        idle = unclaimed(service.room, snapshot)
        grown = _grown(snapshot, service, idle) if self._enough(idle, snapshot) else {}
        jobs = sorted(snapshot.jobs, key=lambda job: job.key)
        return tuple(
            _shrink(job, service)
            if job.key in service.sizes
            else _grow(job, grown[job.key], idle, snapshot, service)
            if job.key in grown
            else hold(job, *self._staying(job, free, idle, snapshot, service), self.name)
            for job in jobs
        )

    def _enough(self, idle: Room, snapshot: QueueSnapshot) -> bool:
        return idle.gpus > 0 and idle.gpus >= self.idle_share * snapshot.limit_gpus

    def _staying(
        self, job: ElasticJob, free: Room, idle: Room, snapshot: QueueSnapshot, service: Service
    ) -> tuple[Reason, str]:
        """Why a Job stays as it is."""
        stays = f"{job.name} stays at {job.workers} workers"
        share = f"{idle.gpus} of the queue's {snapshot.limit_gpus} GPUs are idle"
        larger = [size for size in job.sizes if size > job.workers]
        if service.unserved:
            waits = f"{service.unserved[0].name} waits for {service.unserved[0].gpus} GPUs"
            if min(job.sizes, default=job.workers) >= job.workers:
                return Reason.AT_MINIMUM, f"{waits}, but {job.name} has no more than its {job.workers} workers"
            return Reason.SURPLUS_TOO_SMALL, f"{waits}, which all surplus would not free: {stays}"
        if not self._enough(idle, snapshot):
            if service.served and larger and self._enough(free, snapshot):
                return Reason.GANG_FIRST, f"the idle GPUs are for {service.served[0].name}, which waits: {stays}"
            return Reason.STEADY, f"{share}, less than it takes to grow: {stays}"
        if not larger:
            return Reason.AT_MAXIMUM, f"{share}, but {job.name} has its maximum of {job.workers} workers"
        return Reason.NO_ROOM, f"{share}, but {min(larger)} workers would not fit: {stays}"


def _grown(snapshot: QueueSnapshot, service: Service, room: Room) -> dict[str, int]:
    """New sizes of the Jobs that grow: highest priority first, and within one the smallest first, size by size."""
    sizes = {job.key: job.workers for job in snapshot.jobs}
    candidates = [job for job in snapshot.jobs if job.key not in service.sizes and job.gpus_per_worker]
    while candidates:
        job = min(candidates, key=lambda job: (-job.priority, sizes[job.key] * job.gpus_per_worker, job.key))
        size = min((size for size in job.sizes if size > sizes[job.key]), default=None)
        after = size and room.take([(job.shape, job.gpus_per_worker)] * (size - sizes[job.key]))
        if size and after:
            sizes[job.key], room = size, after
        else:
            candidates.remove(job)
    return {job.key: sizes[job.key] for job in snapshot.jobs if sizes[job.key] > job.workers}


def _grow(job: ElasticJob, size: int, idle: Room, snapshot: QueueSnapshot, service: Service) -> Decision:
    gangs = service.unserved or service.served
    waits = "no gang waits" if not gangs else "no gang that waits needs them"
    return Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=size,
        reason=Reason.QUEUE_IDLE,
        explanation=f"{idle.gpus} of the queue's {snapshot.limit_gpus} GPUs are idle and {waits}: "
        f"{job.name} grows from {job.workers} to {size} workers",
        urgent=False,
        policy=Threshold.name,
    )


def _shrink(job: ElasticJob, service: Service) -> Decision:
    gang, size = service.causes[job.key], service.sizes[job.key]
    return Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=size,
        reason=Reason.GANG_PENDING,
        explanation=f"{gang.name} waits for {gang.gpus} GPUs: {job.name} gives "
        f"{(job.workers - size) * job.gpus_per_worker} and shrinks from {job.workers} to {size} workers",
        urgent=True,
        policy=Threshold.name,
    )
