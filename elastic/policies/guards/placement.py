# SPDX-License-Identifier: Apache-2.0
"""Whether a Job's workers hold GPUs at all, and what becomes of a Job where some find no node. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.guards.verdict import Verdict, no_growth, stay
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.snapshot import NOWHERE
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.settings import GuardSettings
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["incomplete", "unplaced", "without_gpus"]


def without_gpus(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
    """GPUs are what queues are watched for."""
    if job.gpus_per_worker:
        return None
    return stay(job, Reason.NO_GPUS, f"the workers of {job.name} hold no GPUs: their number is left alone")


def unplaced(job: ElasticJob, at: float, settings: GuardSettings) -> Verdict | None:
    """Give up surplus that finds no node: a pod that waits competes with gangs that could run instead."""
    if job.waiting_since is None or job.waiting_since + settings.place_s > at:
        return None
    placed = job.workers - job.nodes[job.min_workers :].count(NOWHERE)
    size = max((size for size in job.sizes if size <= placed), default=job.workers)
    if size >= job.workers:
        return None
    explanation = f"only {placed} of {job.workers} workers of {job.name} found a node: it shrinks to {size}"
    return Verdict((job.workers,), Reason.UNPLACED, explanation, target=size, imposed=True)


def incomplete(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
    """What is free is for a Job's gang before it is for its surplus."""
    lacking = job.nodes[: job.min_workers].count(NOWHERE)
    if not lacking:
        return None
    explanation = f"{job.name} must have {counted(job.min_workers, 'worker')}, {lacking} of them without GPUs"
    return no_growth(job, Reason.GANG_FIRST, f"{explanation}: it does not grow")
