# SPDX-License-Identifier: Apache-2.0
"""A person's word: it wins over whatever is automatic, and expires. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.guards.verdict import Verdict, stay
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.settings import GuardSettings
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["held", "not_a_size", "overridden"]


def held(job: ElasticJob, at: float, _: GuardSettings) -> Verdict | None:
    """A person's hold, also at a size that was set and reached, before whatever is automatic."""
    if job.hold is None or job.hold.until <= at or job.hold.override not in {None, job.workers}:
        return None
    why = f" ({job.hold.reason})" if job.hold.reason else ""
    explanation = (
        f"{job.hold.by} holds {job.name} at {counted(job.workers, 'worker')} for {job.hold.until - at:.0f} s more{why}"
    )
    return stay(job, Reason.HOLD, explanation)


def overridden(job: ElasticJob, at: float, _: GuardSettings) -> Verdict | None:
    """A size that a person has set goes before cooldown and policy, not before the sizes the Job may have."""
    if job.hold is None or job.hold.until <= at or job.hold.override is None:
        return None
    size, why = job.hold.override, f" ({job.hold.reason})" if job.hold.reason else ""
    if size not in job.sizes:
        return stay(job, Reason.OUT_OF_RANGE, f"{job.hold.by} asked for {not_a_size(job, size)}")
    explanation = f"{job.hold.by} has set {job.name} from {job.workers} to {counted(size, 'worker')}{why}"
    return Verdict((job.workers,), Reason.OVERRIDE, explanation, target=size, imposed=True)


def not_a_size(job: ElasticJob, size: int) -> str:
    """What is wrong with a size that the Job may not have."""
    return f"{counted(size, 'worker')}, but {job.name} may have {', '.join(map(str, job.sizes))}"
