# SPDX-License-Identifier: Apache-2.0
"""How what a queue's Jobs may take, or have to give, is shared out among them, in whole sizes. Pure.

One order for the whole queue: who may grow grows by single sizes, of the highest priority first and among those the
one that holds the fewest GPUs; who has to give gives by single sizes, in the order of `giving`: lowest priority, most
surplus, and so on. So Jobs of one priority even out, and none is handed the whole of what is there for all.
"""

from __future__ import annotations

import math
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.giving import standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.elastic.policies.room import Room
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["fitting", "grown", "shrunk"]


def grown(jobs: Sequence[ElasticJob], wishes: Mapping[str, int], room: Room, gpus: int | None) -> dict[str, int]:
    """Sizes of the Jobs that grow towards their wishes, within `gpus` where that is not None and what is free."""
    sizes: dict[str, int] = {}
    draft, left = room.draft(), math.inf if gpus is None else gpus
    growing = {job.key: job for job in jobs if job.gpus_per_worker and wishes[job.key] > job.workers}
    turns = [(-job.priority, job.workers * job.gpus_per_worker, key) for key, job in growing.items()]
    heapify(turns)
    while turns:
        priority, _, key = heappop(turns)
        job = growing[key]
        before = sizes.get(key, job.workers)
        size = min((size for size in job.sizes if before < size <= wishes[key]), default=None)
        if size is None or (size - before) * job.gpus_per_worker > left:
            continue
        if draft.take([(job.shape, job.gpus_per_worker)] * (size - before)):
            sizes[key] = size
            left -= (size - before) * job.gpus_per_worker
            heappush(turns, (priority, size * job.gpus_per_worker, key))
    return sizes


def shrunk(jobs: Iterable[ElasticJob], gpus: int) -> dict[str, int]:
    """Sizes of the Jobs that give so many GPUs together, or as many as they can; none gives once it is enough."""
    sizes: dict[str, int] = {}
    turns = [(standing(job), job) for job in jobs if job.gpus_per_worker] if gpus > 0 else []
    heapify(turns)
    while turns and gpus > 0:
        _, job = heappop(turns)
        size = max((size for size in job.sizes if size < job.workers), default=None)
        if size is not None:
            gpus -= (job.workers - size) * job.gpus_per_worker
            sizes[job.key] = size
            smaller = replace(job, workers=size)
            heappush(turns, (standing(smaller), smaller))
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
