# SPDX-License-Identifier: Apache-2.0
"""Experiments: the Jobs of a queue split among policies, each of which decides for its own. Pure.

A Job's arm is a stable hash of the Policy's and the Job's names: the same for every autoscaler, after every restart,
and independent of what the Job is. The arms decide one after another, and each sees what those before it take as taken
already, so that they share one room. Who comes first changes with time: none of them always has the first choice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.policies.gangs import serve
from kfp_volcano.elastic.policies.policy import Changing, Moded, Serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.memory import Mode
    from kfp_volcano.elastic.policies.policy import Decision, Policy
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot
    from kfp_volcano.schemas.policy import QueuePolicy

__all__ = ["TURN_S", "Arms", "arm_of"]

TURN_S = 300.0
"""How long an arm comes first before the next one does, seconds."""


def arm_of(spec: QueuePolicy, job: str) -> str:
    """The name of the arm that a Job (namespace/name) is in; empty where there is no experiment."""
    if not spec.arms:
        return ""
    digest = hashlib.sha256(f"{spec.name}\n{job}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64 * sum(arm.share for arm in spec.arms)
    ends = accumulate(arm.share for arm in spec.arms)
    return next((arm.name for arm, end in zip(spec.arms, ends, strict=True) if place < end), spec.arms[-1].name)


@dataclass(frozen=True, slots=True)
class Arms:
    """The policies of an experiment as one."""

    name: ClassVar[str] = "arms"

    spec: QueuePolicy
    policies: Sequence[Policy]
    """Of each of its arms."""

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each Job, sorted by key; see `Policy`."""
        return self.decide_beside(snapshot, serve(snapshot))

    def decide_beside(self, snapshot: QueueSnapshot, service: Service) -> tuple[Decision, ...]:
        """See `Serving`: gangs are served by the Jobs of all arms in one order, or each arm would serve them anew."""
        names = {job.key: arm_of(self.spec, job.key) for job in snapshot.jobs}
        first = int(snapshot.at // TURN_S) % len(self.policies)
        pairs = list(zip(self.spec.arms, self.policies, strict=True))
        seen = snapshot
        decisions: dict[str, Decision] = {}
        for arm, policy in [*pairs[first:], *pairs[:first]]:
            mine = tuple(
                replace(job, arm=arm.name) if names[job.key] == arm.name else replace(job, sizes=(job.workers,))
                for job in seen.jobs
            )
            its = replace(seen, jobs=mine)
            all_ = policy.decide_beside(its, service) if isinstance(policy, Serving) else policy.decide(its)
            found = {each.job: each for each in all_ if names[each.job] == arm.name}
            decisions |= found
            service = _beside(service, seen.jobs, found)
            seen = replace(seen, jobs=tuple(_decided(job, found.get(job.key)) for job in seen.jobs))
        return tuple(decisions[key] for key in sorted(decisions))

    def mode(self, snapshot: QueueSnapshot) -> Mode | None:
        """What its policies are, where they are one of several things: by the queue, and so the same in each arm."""
        return next((policy.mode(snapshot) for policy in self.policies if isinstance(policy, Moded)), None)

    def next_change(self, snapshot: QueueSnapshot) -> float:
        """When another arm has the first choice, or one of the policies next changes."""
        times = [policy.next_change(snapshot) for policy in self.policies if isinstance(policy, Changing)]
        return min([(snapshot.at // TURN_S + 1) * TURN_S, *(at for at in times if at is not None)])


def _beside(service: Service, jobs: Iterable[ElasticJob], decided: Mapping[str, Decision]) -> Service:
    """The room that the next arm finds: with what Jobs of this one give beside what gangs are owed."""
    room = service.room
    for job in jobs:
        decision = decided.get(job.key)
        if decision is not None and decision.to_workers < job.workers and job.key not in service.sizes:
            room = room.give(job.nodes[decision.to_workers :], job.gpus_per_worker, job.shape)
    return service if room is service.room else replace(service, room=room)


def _decided(job: ElasticJob, decision: Decision | None) -> ElasticJob:
    """The Job as the next arm sees it: what it is going to have is promised already."""
    return replace(job, target_workers=decision.to_workers) if decision and decision.resizes else job
