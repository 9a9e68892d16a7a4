# SPDX-License-Identifier: Apache-2.0
"""Whether a Job trains well enough to be given more. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.guards.verdict import Verdict, no_growth, stay
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.settings import GuardSettings
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["diverging", "fine_until", "growth_stopped", "rolled_back", "settled_at", "size_when_fine"]


def diverging(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
    """More GPUs on a model that does not learn are wasted, and another batch or learning rate would blur the cause."""
    if not job.diverging:
        return None
    return no_growth(job, Reason.DIVERGING, f"the loss of {job.name} diverges: it does not grow until it comes down")


def growth_stopped(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
    """The training's own watch asks for it."""
    if job.watched is None or not job.watched.growth_stopped:
        return None
    return no_growth(job, Reason.WATCHED, f"{job.name} asks for no more workers: {job.watched.growth_stopped}")


def size_when_fine(job: ElasticJob, at: float, settings: GuardSettings) -> Verdict | None:
    """A training that went back to an earlier checkpoint gets the size it had then, and keeps it for a while."""
    until = fine_until(job, settings)
    size = None if job.watched is None else job.watched.size
    if until is None or size is None or until <= at or size not in job.sizes:
        return None
    words = (
        f"{job.name} went back to a checkpoint of the time when it had {counted(size, 'worker')} and its loss was fine"
    )
    if size == job.workers:
        return stay(job, Reason.WATCHED, f"{words}: it keeps that size for {until - at:.0f} s more")
    explanation = f"{words}: it goes from {job.workers} back to {size}"
    return Verdict((job.workers,), Reason.WATCHED, explanation, target=size, imposed=True)


def rolled_back(job: ElasticJob, at: float, settings: GuardSettings) -> Verdict | None:
    """What had to be taken back is not tried again at once."""
    until = settled_at(job, settings)
    if until is None or until <= at:
        return None
    explanation = f"a resize of {job.name} was taken back: it may grow again in {until - at:.0f} s"
    return no_growth(job, Reason.ROLLED_BACK, explanation)


def settled_at(job: ElasticJob, settings: GuardSettings) -> float | None:
    """When a Job whose resize was taken back may grow again, Unix seconds."""
    last = max((resize.at for resize in job.resizes if resize.rolled_back), default=None)
    return None if last is None else last + settings.settle_s


def fine_until(job: ElasticJob, settings: GuardSettings) -> float | None:
    """Until when a Job that went back keeps the size it had then, Unix seconds."""
    if job.watched is None or job.watched.size is None:
        return None
    return job.watched.size_asked_at + settings.settle_s
