# SPDX-License-Identifier: Apache-2.0
"""How often a Job is resized: one resize at a time, a cooldown, a budget for each hour, and a pause after failures.

Pure. What a gang is owed waits for none of these but for a resize that is open, and for one that has just failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.guards.verdict import Verdict, no_growth, stay
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.settings import GuardSettings
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["budget", "budget_until", "cooldown", "cooldown_until", "failed_before", "resize_open"]

_HOUR_S = 3600.0


def resize_open(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
    """One resize at a time."""
    if not job.resize_open:
        return None
    target = f" to {counted(job.target_workers, 'worker')}" if job.target_workers is not None else ""
    explanation = f"the last resize of {job.name}{target} is not done yet"
    return stay(job, Reason.RESIZE_OPEN, explanation, job.target_workers)


def failed_before(job: ElasticJob, at: float, settings: GuardSettings) -> Verdict | None:
    """After a resize that came to nothing even a gang waits: what failed would fail again, over and over."""
    until = cooldown_until(job, settings)
    if until is None or until <= at or not job.last_failed:
        return None
    explanation = f"the last resize of {job.name} came to nothing: it is left alone for {until - at:.0f} s more"
    return stay(job, Reason.FAILED_BEFORE, explanation)


def cooldown(job: ElasticJob, at: float, settings: GuardSettings) -> Verdict | None:
    """Time for the last resize to pay; smaller sizes stay allowed, for the urgent."""
    until = cooldown_until(job, settings)
    if until is None or until <= at:
        return None
    explanation = f"{job.name} was resized a short time ago: it may be resized again in {until - at:.0f} s"
    return no_growth(job, Reason.COOLDOWN, explanation, urgent_only=True)


def cooldown_until(job: ElasticJob, settings: GuardSettings) -> float | None:
    """When the cooldown after the last resize ends, Unix seconds."""
    return None if job.last_resize_at is None else job.last_resize_at + max(job.cooldown_s, settings.cooldown_s)


def budget(job: ElasticJob, at: float, settings: GuardSettings) -> Verdict | None:
    """So many resizes within an hour, and then only what is urgent."""
    until = budget_until(job, at, settings)
    if until is None:
        return None
    explanation = (
        f"{job.name} has had its {settings.resizes_per_hour} resizes of an hour: the next may be in {until - at:.0f} s"
    )
    return no_growth(job, Reason.BUDGET, explanation, urgent_only=True)


def budget_until(job: ElasticJob, at: float, settings: GuardSettings) -> float | None:
    """When the budget allows a resize again, Unix seconds; None if it does now."""
    if settings.resizes_per_hour is None:
        return None
    recent = sorted((resize.at for resize in job.resizes if resize.at > at - _HOUR_S), reverse=True)
    if len(recent) < settings.resizes_per_hour:
        return None
    return recent[settings.resizes_per_hour - 1] + _HOUR_S if settings.resizes_per_hour else at + _HOUR_S
