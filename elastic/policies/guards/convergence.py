"""Whether a Job trains well enough to be given more. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.guards.verdict import Verdict, no_growth
from kfp_volcano.elastic.policies.policy import Reason

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.settings import GuardSettings
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["diverging", "rolled_back", "settled_at"]


def diverging(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
    """More GPUs on a model that does not learn are wasted, and another batch or learning rate would blur the cause."""
    if not job.diverging:
        return None
    return no_growth(job, Reason.DIVERGING, f"the loss of {job.name} diverges: it does not grow until it comes down")


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
