# SPDX-License-Identifier: Apache-2.0
"""A policy within its guards.

A guard that only struck out decisions afterwards would let a gang starve: the policy would name a Job that may not give
while another could. So `Guarded` first tells the policy which sizes each Job may take now, lets it decide within them,
sees to it that gangs get what they are owed whatever the policy says, and checks every other answer. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.gangs import owed, serve
from kfp_volcano.elastic.policies.guards.benefit import benefit, nearly_done
from kfp_volcano.elastic.policies.guards.breaker import stopped
from kfp_volcano.elastic.policies.guards.convergence import (
    diverging,
    fine_until,
    growth_stopped,
    rolled_back,
    settled_at,
    size_when_fine,
)
from kfp_volcano.elastic.policies.guards.pace import (
    budget,
    budget_until,
    cooldown,
    cooldown_until,
    failed_before,
    resize_open,
)
from kfp_volcano.elastic.policies.guards.person import held, not_a_size, overridden
from kfp_volcano.elastic.policies.guards.placement import incomplete, unplaced, without_gpus
from kfp_volcano.elastic.policies.memory import next_breaker, remember
from kfp_volcano.elastic.policies.policy import Changing, Decision, Moded, Policy, Reason, Serving, hold
from kfp_volcano.elastic.policies.room import room_of, unclaimed
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.elastic.policies.draft import Draft
    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.guards.verdict import Guard, Verdict
    from kfp_volcano.elastic.policies.memory import Memory
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot

__all__ = ["Guarded", "next_change"]

_DEFAULTS = GuardSettings()
_BEFORE: tuple[Guard, ...] = (resize_open, held, failed_before, overridden, without_gpus)
"""What not even a stop of the whole queue goes before; strictest first."""
_AFTER: tuple[Guard, ...] = (
    *(size_when_fine, unplaced, incomplete, cooldown, budget),
    *(diverging, growth_stopped, rolled_back, nearly_done, benefit),
)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A policy within its guards; a policy itself."""

    policy: Policy
    settings: GuardSettings = field(default_factory=GuardSettings)

    @property
    def name(self) -> str:
        """The policy's own name."""
        return self.policy.name

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each Job, sorted by key; see `Policy`."""
        guards = (*_BEFORE, stopped(snapshot, self.settings), *_AFTER)
        verdicts = {job.key: _verdicts(job, guards, snapshot.at, self.settings) for job in snapshot.jobs}
        jobs = sorted(snapshot.jobs, key=lambda job: (-job.priority, job.key))
        imposed, allowed = self._imposed(jobs, verdicts, snapshot)
        service = serve(allowed)
        wanted = {decision.job: decision for decision in self._asked(allowed, service)}
        check = _Check(allowed, service, self.name, self.settings)
        decided = {}
        for job in jobs:
            decision = imposed.get(job.key) or check.decision(job, wanted.get(job.key), verdicts[job.key])
            decided[job.key] = _noting(decision, wanted.get(job.key))
        return tuple(decided[key] for key in sorted(decided))

    def _asked(self, allowed: QueueSnapshot, service: Service) -> Sequence[Decision]:
        """What the policy says; that it fails leaves Jobs as they are, and gangs with what they are owed."""
        try:
            if isinstance(self.policy, Serving):
                return self.policy.decide_beside(allowed, service)
            return self.policy.decide(allowed)
        except Exception as error:  # noqa: BLE001 - it may be anybody's
            why = f"the policy {self.name} failed: {type(error).__name__}: {error}"
            return [hold(job, Reason.POLICY_FAILED, why, self.name) for job in allowed.jobs]

    def remember(self, snapshot: QueueSnapshot, decisions: Sequence[Decision]) -> Memory:
        """What the next snapshot is to hold of this one."""
        mode = self.policy.mode(snapshot) if isinstance(self.policy, Moded) else None
        return remember(snapshot, decisions, settings=self.settings, mode=mode)

    def next_change(self, snapshot: QueueSnapshot) -> float | None:
        """When something next changes by itself, Unix seconds: a guard lets go, or the policy says so."""
        times = [next_change(snapshot, self.settings)]
        if isinstance(self.policy, Changing):
            times.append(self.policy.next_change(snapshot))
        return min((at for at in times if at is not None and at > snapshot.at), default=None)

    def _imposed(
        self, jobs: Sequence[ElasticJob], verdicts: Mapping[str, Sequence[Verdict]], snapshot: QueueSnapshot
    ) -> tuple[dict[str, Decision], QueueSnapshot]:
        """What guards decide themselves, and the snapshot as the policy may see it: that is as good as done there."""
        decisions: dict[str, Decision] = {}
        seen, promised = [], []
        free: Draft | None = None
        for job in jobs:
            first = next(iter(verdicts[job.key]), None)
            if first is None:
                seen.append(job)
                continue
            target = first.target
            if first.imposed and target is not None:
                more = [(job.shape, job.gpus_per_worker)] * (target - job.workers)
                free = free or unclaimed(room_of(snapshot), snapshot, reserve_s=self.settings.reserve_s).draft()
                if free.take(more):
                    decisions[job.key] = _decision(job, first, target)
                    promised += more
                    target = None if more else target
                else:
                    decisions[job.key] = hold(job, Reason.NO_ROOM, _no_room(job, target, free), _by(first))
            sizes = _sizes(job, verdicts[job.key])
            same = (sizes, target) == (job.sizes, job.target_workers)
            seen.append(job if same else replace(job, sizes=sizes, target_workers=target))
        return decisions, replace(
            snapshot,
            jobs=tuple(seen),
            allocated_gpus=snapshot.allocated_gpus + sum(gpus for _, gpus in promised),
            reserved=(*snapshot.reserved, *promised),
        )


class _Check:
    """Looks at what a policy wants, one Job after another, and at the room that is left."""

    def __init__(self, snapshot: QueueSnapshot, service: Service, policy: str, settings: GuardSettings) -> None:
        self._policy = policy
        self._service = service
        self._free = unclaimed(self._service.room, snapshot, reserve_s=settings.reserve_s).draft()
        self._bare = self._free
        """What would be free if no gang waited."""
        if self._service.served or self._service.unserved:
            self._bare = unclaimed(room_of(snapshot), snapshot, reserve_s=settings.reserve_s).draft()

    def decision(self, job: ElasticJob, wanted: Decision | None, verdicts: Sequence[Verdict]) -> Decision:
        """What is owed to a gang, else what is wanted if it may be, else to stay."""
        if job.key in self._service.sizes:
            return owed(job, self._service, self._policy)
        if wanted is None or not wanted.resizes:
            return self._staying(job, wanted, verdicts)
        size = wanted.to_workers
        if size not in job.sizes:
            asked = f"the policy asked for {not_a_size(job, size)}"
            return hold(job, Reason.OUT_OF_RANGE, asked, self._policy)
        stop = next((each for each in verdicts if not each.allows(size, urgent=wanted.urgent)), None)
        if stop:
            return hold(job, stop.reason, stop.explanation, self._policy)
        more = [(job.shape, job.gpus_per_worker)] * (size - job.workers)
        if not self._free.take(more):
            return hold(job, *self._no_room(job, size, more), self._policy)
        if self._bare is not self._free:
            self._bare.take(more)
        return wanted

    def _staying(self, job: ElasticJob, wanted: Decision | None, verdicts: Sequence[Verdict]) -> Decision:
        """The reason of the guard that leaves the Job nothing larger, else the policy's."""
        for verdict in verdicts:
            if max(verdict.sizes, default=job.workers) <= job.workers:
                return hold(job, verdict.reason, verdict.explanation, self._policy)
        return wanted or hold(job, Reason.STEADY, f"nothing was decided for {job.name}", self._policy)

    def _no_room(self, job: ElasticJob, size: int, more: Sequence[tuple[str, int]]) -> tuple[Reason, str]:
        if self._bare is self._free or not self._bare.fits(more):
            return Reason.NO_ROOM, _no_room(job, size, self._bare)
        grows = f"{job.name} was to grow from {job.workers} to {counted(size, 'worker')}"
        if self._service.share_only:
            gang = self._service.unserved[0]
            waits = f"{gang.name} waits for {counted(gang.gpus, 'GPU')} within its share"
            return Reason.FAIR_SHARE, f"{grows}, beyond what its queue deserves while {waits}"
        gang = self._service.served[0]
        return Reason.GANG_FIRST, f"{grows}, but the GPUs are for {gang.name}, which waits for {gang.gpus}"


def next_change(snapshot: QueueSnapshot, settings: GuardSettings = _DEFAULTS) -> float | None:
    """When a guard next lets go by itself, Unix seconds; None if none is on that does."""
    return min((at for at in _ends(snapshot, settings) if at is not None and at > snapshot.at), default=None)


def _ends(snapshot: QueueSnapshot, settings: GuardSettings) -> Iterator[float | None]:
    yield next_breaker(snapshot, settings).open_until
    for job in snapshot.jobs:
        yield job.hold.until if job.hold else None
        yield cooldown_until(job, settings)
        yield budget_until(job, snapshot.at, settings)
        yield settled_at(job, settings)
        yield fine_until(job, settings)
        if job.waiting_since is not None:
            yield job.waiting_since + settings.place_s
            yield job.waiting_since + settings.reserve_s


def _verdicts(job: ElasticJob, guards: Sequence[Guard], at: float, settings: GuardSettings) -> list[Verdict]:
    """What the guards say of a Job, strictest first, up to one that leaves it no other size."""
    verdicts = []
    for guard in guards:
        verdict = guard(job, at, settings)
        if verdict:
            verdicts.append(verdict)
            if verdict.sizes == (job.workers,):
                break
    return verdicts


def _sizes(job: ElasticJob, verdicts: Sequence[Verdict]) -> tuple[int, ...]:
    """The sizes that all guards leave a Job."""
    first, *others = verdicts
    return tuple(
        size for size in first.sizes if size == job.workers or all(size in verdict.sizes for verdict in others)
    )


def _decision(job: ElasticJob, verdict: Verdict, size: int) -> Decision:
    return Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=size,
        reason=verdict.reason,
        explanation=verdict.explanation,
        urgent=verdict.reason is Reason.UNPLACED,
        policy=_by(verdict),
    )


def _noting(decision: Decision, wanted: Decision | None) -> Decision:
    """The decision, with what the policy computed whether or not that came to anything."""
    if wanted is None or decision is wanted:
        return decision
    return replace(decision, recommended=wanted.recommended, numbers={**wanted.numbers, **decision.numbers})


def _by(verdict: Verdict) -> str:
    return "person" if verdict.reason is Reason.OVERRIDE else "guards"


def _no_room(job: ElasticJob, size: int, free: Draft) -> str:
    return f"{job.name} was to grow from {job.workers} to {counted(size, 'worker')}, but only {free.gpus} GPUs are free"
