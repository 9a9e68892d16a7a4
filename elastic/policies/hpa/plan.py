"""How what a queue's Jobs may take, or have to give, is shared out among them, in whole sizes. Pure.

One order for the whole queue: who may grow grows by single sizes, of the highest priority first and among those the
one that holds the fewest GPUs; who has to give gives by single sizes, of the lowest priority first and among those the
one that holds most. So Jobs of one priority even out, and none is handed the whole of what is there for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.room import Room
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["fitting", "grown", "shrunk"]


def grown(
    jobs: Sequence[ElasticJob], wishes: Mapping[str, int], room: Room, gpus: int | None
) -> tuple[dict[str, int], Room]:
    """Sizes of Jobs that grow towards their wishes within `gpus` and what is physically free, and what is left."""
    sizes: dict[str, int] = {}
    waiting = [job for job in jobs if job.gpus_per_worker and wishes[job.key] > job.workers]
    while waiting:
        job = min(waiting, key=lambda job: (-job.priority, _gpus(job, sizes), job.key))
        before = sizes.get(job.key, job.workers)
        size = min((size for size in job.sizes if before < size <= wishes[job.key]), default=None)
        cost = 0 if size is None else (size - before) * job.gpus_per_worker
        after = None
        if size is not None and (gpus is None or cost <= gpus):
            after = room.take([(job.shape, job.gpus_per_worker)] * (size - before))
        if size is None or after is None:
            waiting.remove(job)
            continue
        sizes[job.key], room = size, after
        gpus = None if gpus is None else gpus - cost
    return sizes, room


def shrunk(jobs: Sequence[ElasticJob], gpus: int) -> dict[str, int]:
    """Sizes of Jobs that give so many GPUs together, or as many as they can; the last gives no more than it has to."""
    sizes: dict[str, int] = {}
    giving = [job for job in jobs if job.gpus_per_worker]
    while giving and gpus > 0:
        job = min(giving, key=lambda job: (job.priority, -_gpus(job, sizes), job.key))
        before = sizes.get(job.key, job.workers)
        size = max((size for size in job.sizes if size < before), default=None)
        if size is None:
            giving.remove(job)
            continue
        gpus -= (before - size) * job.gpus_per_worker
        sizes[job.key] = size
    return sizes


def fitting(job: ElasticJob, wanted: int, *, moved: bool) -> int:
    """The size nearest to `wanted` that the Job may have, on the side of the one it has.

    Windows and rates end at any number; a Job has few sizes. Where they leave less than one size and nothing was moved
    within their periods, it may go that one: else it would never, as Kubernetes says where it rounds percentages up.
    `moved`: whether that is ruled out.
    """
    if wanted > job.workers:
        return max((size for size in job.sizes if job.workers < size <= wanted), default=_next(job, 1, moved=moved))
    if wanted < job.workers:
        return min((size for size in job.sizes if wanted <= size < job.workers), default=_next(job, -1, moved=moved))
    return job.workers


def _next(job: ElasticJob, sign: int, *, moved: bool) -> int:
    if moved:
        return job.workers
    beyond = (size for size in job.sizes if (size - job.workers) * sign > 0)
    return min(beyond, key=lambda size: abs(size - job.workers), default=job.workers)


def _gpus(job: ElasticJob, sizes: Mapping[str, int]) -> int:
    return sizes.get(job.key, job.workers) * job.gpus_per_worker
