# SPDX-License-Identifier: Apache-2.0
"""What the policy `goodput` decided, in words and numbers. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.goodput.choices import Usage
from kfp_volcano.elastic.policies.goodput.options import LEAST_GAIN, restart_s
from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.goodput.assignment import Assignment
    from kfp_volcano.elastic.policies.goodput.capacity import Capacity
    from kfp_volcano.elastic.policies.goodput.choices import Choice, Option
    from kfp_volcano.elastic.policies.goodput.options import Outlook
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["Words", "duration"]

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def duration(seconds: float) -> str:
    """Some seconds as people say them: 0.6 s, 45 s, 12 min, 3.1 h, 2.5 days."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - one figure before the point
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.1f} days"


class Words:
    """Turns a plan into decisions."""

    def __init__(
        self,
        service: Service,
        capacity: Capacity,
        plan: Assignment,
        outlooks: Mapping[str, Outlook],
        choices: Mapping[str, Choice],
    ) -> None:
        self._service = service
        self._plan, self._outlooks, self._choices = plan, outlooks, choices
        self._alone = Usage(capacity)
        growing = [key for key, choice in choices.items() if plan.options[key].workers > choice.stay.workers]
        self._growing = sorted(growing, key=lambda key: (-choices[key].priority, -self._ratio(key, plan.options[key])))

    def stays_out(self, job: ElasticJob) -> Decision:
        """A Job that is nothing to the queue."""
        explanation = f"the workers of {job.name} hold no GPUs: their number is left alone"
        return self._decision(job, job.workers, Reason.NO_GPUS, explanation, {})

    def planned(self, job: ElasticJob, *, granted: bool) -> Decision:
        """A Job of the plan."""
        option = self._plan.options[job.key]
        ratio, numbers = self._ratio(job.key, option), self._numbers(job, option)
        if option.workers > job.workers and granted:
            explanation = (
                f"{job.name} grows from {job.workers} to {counted(option.workers, 'worker')}: {self._gain(job, option)}"
            )
            return self._decision(job, option.workers, Reason.MORE_GOODPUT, explanation, numbers)
        if option.workers > job.workers:
            explanation = (
                f"{job.name} stays at {counted(job.workers, 'worker')} until GPUs are free that others give: "
                f"it is to have {option.workers} then, with {ratio:.2f} times the goodput"
            )
            return self._decision(job, job.workers, Reason.AWAITS_ROOM, explanation, numbers)
        if option.workers < job.workers and ratio >= 1:
            size = counted(option.workers, "worker")
            explanation = f"{job.name} shrinks from {job.workers} to {size}: {self._gain(job, option)}"
            return self._decision(job, option.workers, Reason.MORE_GOODPUT, explanation, numbers)
        if option.workers < job.workers:
            return self._decision(job, option.workers, Reason.YIELDS, self._yields(job, option), numbers)
        reason, explanation = self._staying(job)
        return self._decision(job, job.workers, reason, explanation, numbers)

    def _yields(self, job: ElasticJob, option: Option) -> str:
        gives = (job.workers - option.workers) * job.gpus_per_worker
        given = f"{gives} GPU{'s' if gives > 1 else ''}"
        takers = [f"{self._outlooks[key].job.name} ({self._to(key)})" for key in self._growing[:2]]
        more = len(self._growing) - len(takers)
        others = " and ".join(takers) + (f" and {more} more" if more > 0 else "") or "the queue"
        return (
            f"{job.name} shrinks from {job.workers} to {counted(option.workers, 'worker')}, to "
            f"{self._ratio(job.key, option):.2f} times its goodput: its {given} are worth more to {others}"
        )

    def _to(self, key: str) -> str:
        option = self._plan.options[key]
        return f"{self._ratio(key, option):.2f} times with {counted(option.workers, 'worker')}"

    def _staying(self, job: ElasticJob) -> tuple[Reason, str]:
        """Why a Job keeps its size."""
        choice, stays = self._choices[job.key], f"{job.name} stays at {counted(job.workers, 'worker')}"
        larger = [option for option in choice.options if option.workers > job.workers]
        if not any(size > job.workers for size in job.sizes):
            return Reason.AT_MAXIMUM, f"{stays}, the most it may have"
        if not larger:
            return Reason.STEADY, f"{stays}: it is not to be moved now"
        best = min(larger, key=lambda option: option.cost)
        told = f"{best.workers} would make {self._ratio(job.key, best):.2f} times the goodput"
        if best.cost >= choice.stay.cost:
            least = f"less than {LEAST_GAIN} times and the {duration(restart_s(job))} that a resize costs it"
            return Reason.NOT_WORTH_IT, f"{stays}: {told}, {least}"
        fits = self._alone.apply(choice, best)
        self._alone.apply(choice, choice.stay)
        if fits:
            return Reason.STEADY, f"{stays}: {told}, but the GPUs are worth more to other Jobs of the queue"
        reason, why = self._no_room(best)
        return reason, f"{stays}: {told}, but {why}"

    def _no_room(self, option: Option) -> tuple[Reason, str]:
        """Why a size would not fit even if nobody else grew."""
        if self._service.share_only:
            gang = self._service.unserved[0]
            waits = f"{gang.name} waits for {counted(gang.gpus, 'GPU')} within its share"
            return Reason.FAIR_SHARE, f"{waits}, and meanwhile nobody borrows more"
        if self._service.served:
            return Reason.GANG_FIRST, f"{self._service.served[0].name} waits for GPUs"
        return Reason.NO_ROOM, f"there is no room for {option.adds} more"

    def _gain(self, job: ElasticJob, option: Option) -> str:
        ratio, cost = self._ratio(job.key, option), restart_s(job)
        if not self._outlooks[job.key].goodput.measured:
            return f"{ratio:.2f} times the goodput if it scales, for it has measured nothing yet"
        gain = f"{ratio:.2f} times the goodput"
        if job.remaining_s is not None:
            sooner = self._sooner(job, ratio, cost)
            gain += f", {duration(sooner)} sooner" if sooner > 0 else ""
        known = any(each.pause_s is not None for each in job.resizes)
        return f"{gain}; costs {'' if known else 'about '}{duration(cost)}"

    @staticmethod
    def _sooner(job: ElasticJob, ratio: float, cost: float) -> float:
        return (job.remaining_s or 0.0) * (1 - 1 / ratio) - cost

    def _goodput(self, key: str, option: Option) -> float:
        return self._outlooks[key].on(option.workers, option.pools)

    def _ratio(self, key: str, option: Option) -> float:
        return self._goodput(key, option) / self._goodput(key, self._choices[key].stay)

    def _numbers(self, job: ElasticJob, option: Option) -> dict[str, float]:
        ratio, cost = self._ratio(job.key, option), restart_s(job)
        numbers = {
            "goodput": self._goodput(job.key, self._choices[job.key].stay),
            "goodput_ratio": ratio,
            "planned_workers": float(option.workers),
            "cost_s": cost,
            "plan_exact": float(self._plan.exact),
        }
        if math.isfinite(self._plan.gap):
            numbers["plan_gap"] = self._plan.gap
        if job.remaining_s is not None:
            numbers["sooner_s"] = self._sooner(job, ratio, cost) if option.workers != job.workers else 0.0
        if job.noise_scale is not None:
            numbers["noise_scale"] = job.noise_scale
        return numbers

    def _decision(
        self,
        job: ElasticJob,
        size: int,
        reason: Reason,
        explanation: str,
        numbers: Mapping[str, float],
    ) -> Decision:
        return Decision(
            job=job.key,
            from_workers=job.workers,
            to_workers=size,
            reason=reason,
            explanation=explanation,
            urgent=False,
            policy="goodput",
            numbers=numbers,
        )
