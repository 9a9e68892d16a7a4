# SPDX-License-Identifier: Apache-2.0
"""Why a Job changes or stays, in one word and one sentence with its numbers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.hpa.controller import Outcome
    from kfp_volcano.elastic.policies.hpa.metrics import Proposal, Reading
    from kfp_volcano.elastic.policies.hpa.situation import Situation
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["explained"]


def explained(job: ElasticJob, size: int, outcome: Outcome, situation: Situation, policy: str) -> Decision:
    """The decision that a Job has a size, for the reason that was nearest."""
    wanted = situation.plan.get(job.key, job.workers)
    if size != job.workers:
        reason, why = _changing(job, size, outcome, situation)
    elif wanted != job.workers:
        reason, why = _held_back(job, wanted, outcome, situation)
    else:
        reason, why = _staying(job, situation)
    verb = "grows" if size > job.workers else "shrinks"
    goes = "stays at" if size == job.workers else f"{verb} from {job.workers} to"
    return Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=size,
        reason=reason,
        explanation=f"{why}: {job.name} {goes} {counted(size, 'worker')}",
        urgent=False,
        policy=policy,
        recommended=wanted,
        numbers=_numbers(situation.proposals[job.key], situation),
    )


def _changing(job: ElasticJob, size: int, outcome: Outcome, situation: Situation) -> tuple[Reason, str]:
    least, most = situation.ranges[job.key]
    if not least <= job.workers <= most:
        return Reason.OUT_OF_RANGE, f"it is to have {least} to {counted(most, 'worker')}"
    limited = outcome.conditions["ScalingLimited"]
    brake = "" if limited.status == "False" else ", as far as its behavior allows at once"
    proposed = situation.proposals[job.key]
    if job.key in situation.by_queue:
        return Reason.QUEUE_TIGHT, f"{situation.allowed.says}{brake}"
    if proposed is None:
        return Reason.QUEUE_IDLE, f"{situation.allowed.says}{brake}"
    reason = Reason.ABOVE_TARGET if size > job.workers else Reason.BELOW_TARGET
    return reason, f"{_decisive(proposed)}{brake}"


def _held_back(job: ElasticJob, wanted: int, outcome: Outcome, situation: Situation) -> tuple[Reason, str]:
    """Why a size that is called for is not taken up yet."""
    proposed = situation.proposals[job.key]
    cause = _decisive(proposed) if proposed and job.key not in situation.by_queue else situation.allowed.says
    if outcome.conditions["AbleToScale"].reason in {"ScaleUpStabilized", "ScaleDownStabilized"}:
        up = wanted > job.workers
        window = _window(situation, up=up)
        seen = [each for each in outcome.history.recommendations if each.at > situation.snapshot.at - window]
        extreme = (min if up else max)(seen, key=lambda each: each.workers, default=None)
        ago = "" if extreme is None else f", and {extreme.workers} were {situation.snapshot.at - extreme.at:.0f} s ago"
        which = "lowest" if up else "highest"
        words = (
            f"{cause}, which calls for {counted(wanted, 'worker')}{ago}; the {which} of the last {window:.0f} s counts"
        )
        return Reason.STABILISING, words
    rules = situation.spec.behavior and (
        situation.spec.behavior.scale_up if wanted > job.workers else situation.spec.behavior.scale_down
    )
    if rules and rules.select_policy == "Disabled":
        return Reason.RATE_LIMITED, f"{cause}, but its behavior forbids changes that way"
    changed = "it has changed as fast as its behavior allows"
    return Reason.RATE_LIMITED, f"{cause}, which calls for {counted(wanted, 'worker')}, but {changed}"


def _staying(job: ElasticJob, situation: Situation) -> tuple[Reason, str]:
    """Why no other size is called for."""
    proposed, service = situation.proposals[job.key], situation.service
    if proposed is not None and proposed.replicas is None:
        return Reason.METRICS_MISSING, proposed.error
    if situation.wishes[job.key] > job.workers:
        return _no_room(job, situation)
    if service.unserved:
        waits = f"{service.unserved[0].name} waits for {counted(service.unserved[0].gpus, 'GPU')}"
        if min(job.sizes, default=job.workers) >= job.workers:
            return Reason.AT_MINIMUM, f"{waits}, but it has no more than its minimum"
        return Reason.SURPLUS_TOO_SMALL, f"{waits}, which all surplus would not free"
    return _by_queue(job, situation) if proposed is None else _by_workers(job, proposed, situation)


def _by_queue(job: ElasticJob, situation: Situation) -> tuple[Reason, str]:
    allowed = situation.allowed
    if job.workers >= situation.ranges[job.key][1] and allowed.to_take:
        return Reason.AT_MAXIMUM, f"{allowed.says}, but it has its maximum"
    return _at_rest(allowed.says, near=allowed.near)


def _by_workers(job: ElasticJob, proposed: Proposal, situation: Situation) -> tuple[Reason, str]:
    least, most = situation.ranges[job.key]
    called = proposed.replicas or 0
    if called > job.workers >= most:
        return Reason.AT_MAXIMUM, f"{_decisive(proposed)}, but it has its maximum"
    if called < job.workers <= least:
        return Reason.AT_MINIMUM, f"{_decisive(proposed)}, but it has its minimum"
    return _at_rest(_decisive(proposed), near=called == job.workers and _off_target(proposed))


def _at_rest(says: str, *, near: bool) -> tuple[Reason, str]:
    if near:
        return Reason.WITHIN_TOLERANCE, f"{says}, which is within the tolerance"
    return Reason.STEADY, says or "no metric calls for another size"


def _no_room(job: ElasticJob, situation: Situation) -> tuple[Reason, str]:
    """Why a Job that would grow is not in the plan."""
    allowed, service = situation.allowed, situation.service
    size = min(size for size in job.sizes if size > job.workers)
    cost = (size - job.workers) * job.gpus_per_worker
    says = f"{allowed.says}, but " if allowed.says else ""
    promised = sum(gang.gpus for gang in service.served)
    if promised and (allowed.gpus is None or allowed.gpus + promised >= cost):
        return Reason.GANG_FIRST, f"{says}what is free is for {service.served[0].name}, which waits"
    if service.share_only and service.room.limit < cost:
        vain = service.unserved[0]
        return Reason.FAIR_SHARE, f"{vain.name} waits within its share, so that its queue borrows no more"
    if allowed.near:
        return Reason.WITHIN_TOLERANCE, f"{allowed.says}, which is within the tolerance"
    if allowed.to_take == 0:
        return Reason.STEADY, allowed.says
    return Reason.NO_ROOM, f"{says}the {cost} GPUs for its next size are not there, or are for others"


def _decisive(proposed: Proposal) -> str:
    """The metric that decided, with its numbers; where all are below their targets, the one that is least so."""
    reading = max(proposed.readings, key=lambda each: each.count.replicas, default=None)
    return "nothing is measured" if reading is None else _said(reading)


def _said(reading: Reading) -> str:
    count, share = reading.count, f"{reading.count.usage_ratio * 100:.0f} % of its target"
    what = f"{count.utilisation} %" if count.utilisation is not None else f"{count.usage / 1000:g}"
    return f"{reading.name} is {what}, {share}"


def _off_target(proposed: Proposal) -> bool:
    return any(each.count.usage_ratio != 1.0 for each in proposed.readings)


def _window(situation: Situation, *, up: bool) -> float:
    behavior = situation.spec.behavior
    if up:
        return float(behavior.scale_up.stabilization_window_seconds or 0) if behavior else 0.0
    own = behavior.scale_down.stabilization_window_seconds if behavior else None
    return situation.settings.down_window_s if own is None else float(own)


def _numbers(proposed: Proposal | None, situation: Situation) -> dict[str, float]:
    readings = proposed.readings if proposed else ()
    return {
        **situation.allowed.numbers,
        **{each.name: each.count.utilisation or each.count.usage / 1000 for each in readings},
    }
