"""What holds whatever the policy says: ranges, one resize at a time, cooldown, and a person's word. Pure.

A guard that only struck out decisions afterwards would let a gang starve: the policy would name a Job that may not give
while another could. So `Guarded` first tells the policy which sizes each Job may take now, lets it decide within them,
and then checks every answer. It needs no memory: all it looks at is on the cluster, in the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.policy import Decision, Policy, Reason, hold
from kfp_volcano.elastic.policies.room import room_of, unclaimed
from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.room import Room
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot

__all__ = ["PLACE_S", "Guarded", "next_change"]

PLACE_S = 30.0
"""How long surplus may wait for a node, seconds: some tens of the scheduler's cycles of 1 s."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a guard allows a Job: these sizes, and no others for this reason."""

    sizes: tuple[int, ...]
    reason: Reason
    explanation: str
    target: int | None = None
    """The size it is going to have anyway: a resize that is open, or what a person has set."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A policy within its guards; a policy itself."""

    policy: Policy

    @property
    def name(self) -> str:
        """The policy's own name."""
        return self.policy.name

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each Job, sorted by key; see `Policy`."""
        verdicts = {job.key: verdict for job in snapshot.jobs if (verdict := _verdict(job, snapshot.at))}
        room = unclaimed(room_of(snapshot), snapshot)
        decisions: dict[str, Decision] = {}
        for job in sorted(snapshot.jobs, key=lambda job: (-job.priority, job.key)):
            verdict = verdicts.get(job.key)
            if verdict and verdict.reason in {Reason.OVERRIDE, Reason.UNPLACED}:
                decisions[job.key], room = _imposed(job, verdict, room)
        allowed = replace(snapshot, jobs=tuple(_allowed(job, verdicts.get(job.key)) for job in snapshot.jobs))
        wanted = {decision.job: decision for decision in self.policy.decide(allowed)}
        for job in sorted(snapshot.jobs, key=lambda job: (-job.priority, job.key)):
            if job.key not in decisions:
                decisions[job.key], room = self._checked(job, wanted.get(job.key), verdicts.get(job.key), room)
        return tuple(decisions[key] for key in sorted(decisions))

    def _checked(
        self, job: ElasticJob, decision: Decision | None, verdict: _Verdict | None, room: Room
    ) -> tuple[Decision, Room]:
        """The decision if it may be, else to stay; and the room that is left."""
        if decision is None or not decision.resizes:
            if verdict:
                return hold(job, verdict.reason, verdict.explanation, self.name), room
            return decision or hold(job, Reason.STEADY, f"nothing was decided for {job.name}", self.name), room
        size = decision.to_workers
        if verdict and (size not in verdict.sizes or not decision.urgent):
            return hold(job, verdict.reason, verdict.explanation, self.name), room
        if size not in job.sizes:
            return hold(job, Reason.OUT_OF_RANGE, f"the policy asked for {_not_a_size(job, size)}", self.name), room
        after = room if size < job.workers else room.take([(job.shape, job.gpus_per_worker)] * (size - job.workers))
        if after is None:
            return hold(job, Reason.NO_ROOM, _no_room(job, size, room), self.name), room
        return decision, after


def next_change(snapshot: QueueSnapshot) -> float | None:
    """When a guard next lets go by itself, Unix seconds: a cooldown, a hold, a wait for nodes. None if none is on."""
    ends = [
        end
        for job in snapshot.jobs
        for end in (
            job.hold.until if job.hold else None,
            job.last_resize_at + job.cooldown_s if job.last_resize_at is not None else None,
            job.waiting_since + PLACE_S if job.waiting_since is not None else None,
        )
        if end is not None and end > snapshot.at
    ]
    return min(ends, default=None)


def _resize_open(job: ElasticJob, _: float) -> _Verdict | None:
    """One resize at a time."""
    if not job.resize_open:
        return None
    target = f" to {job.target_workers} workers" if job.target_workers is not None else ""
    explanation = f"the last resize of {job.name}{target} is not done yet"
    return _Verdict((job.workers,), Reason.RESIZE_OPEN, explanation, job.target_workers)


def _held(job: ElasticJob, at: float) -> _Verdict | None:
    """A person's hold, also at a size that was set and reached, before whatever is automatic."""
    if job.hold is None or job.hold.until <= at or job.hold.override not in {None, job.workers}:
        return None
    why = f" ({job.hold.reason})" if job.hold.reason else ""
    explanation = f"{job.hold.by} holds {job.name} at {job.workers} workers for {job.hold.until - at:.0f} s more{why}"
    return _Verdict((job.workers,), Reason.HOLD, explanation)


def _failed_before(job: ElasticJob, at: float) -> _Verdict | None:
    """After a resize that came to nothing even a gang waits: what failed would fail again, over and over."""
    cooling = _cooling(job, at)
    if cooling <= 0 or not job.last_failed:
        return None
    explanation = f"the last resize of {job.name} came to nothing: it is left alone for {cooling:.0f} s more"
    return _Verdict((job.workers,), Reason.FAILED_BEFORE, explanation)


def _overridden(job: ElasticJob, at: float) -> _Verdict | None:
    """A size that a person has set goes before cooldown and policy, not before the sizes the Job may have."""
    if job.hold is None or job.hold.until <= at or job.hold.override is None:
        return None
    size, why = job.hold.override, f" ({job.hold.reason})" if job.hold.reason else ""
    if size not in job.sizes:
        return _Verdict((job.workers,), Reason.OUT_OF_RANGE, f"{job.hold.by} asked for {_not_a_size(job, size)}")
    explanation = f"{job.hold.by} has set {job.name} from {job.workers} to {size} workers{why}"
    return _Verdict((job.workers,), Reason.OVERRIDE, explanation, size)


def _without_gpus(job: ElasticJob, _: float) -> _Verdict | None:
    """GPUs are what queues are watched for."""
    if job.gpus_per_worker:
        return None
    return _Verdict(
        (job.workers,), Reason.NO_GPUS, f"the workers of {job.name} hold no GPUs: their number is left alone"
    )


def _unplaced(job: ElasticJob, at: float) -> _Verdict | None:
    """Give up surplus that finds no node: a pod that waits competes with gangs that could run instead."""
    placed = job.workers - job.nodes[job.min_workers :].count(NOWHERE)
    size = max((size for size in job.sizes if size <= placed), default=job.workers)
    if job.waiting_since is None or job.waiting_since + PLACE_S > at or size >= job.workers:
        return None
    explanation = f"only {placed} of {job.workers} workers of {job.name} found a node: it shrinks to {size}"
    return _Verdict((job.workers,), Reason.UNPLACED, explanation, size)


def _cooldown(job: ElasticJob, at: float) -> _Verdict | None:
    """Time for the last resize to pay; smaller sizes stay allowed, for the urgent."""
    cooling = _cooling(job, at)
    if cooling <= 0:
        return None
    explanation = f"{job.name} was resized a short time ago: it may grow again in {cooling:.0f} s"
    return _Verdict(tuple(size for size in job.sizes if size <= job.workers), Reason.COOLDOWN, explanation)


def _nearly_done(job: ElasticJob, _: float) -> _Verdict | None:
    """Growth that has no time left to pay: what is shorter than a cooldown is not worth a resize."""
    if job.remaining_s is None or job.remaining_s >= job.cooldown_s:
        return None
    explanation = f"{job.name} ends in about {job.remaining_s:.0f} s: growing is not worth it any more"
    return _Verdict(tuple(size for size in job.sizes if size <= job.workers), Reason.NEARLY_DONE, explanation)


_GUARDS = (_resize_open, _held, _failed_before, _overridden, _without_gpus, _unplaced, _cooldown, _nearly_done)
"""Strictest first."""


def _verdict(job: ElasticJob, at: float) -> _Verdict | None:
    """What the strictest guard that is on says of a Job; None if its policy is free to choose."""
    return next((verdict for guard in _GUARDS if (verdict := guard(job, at))), None)


def _cooling(job: ElasticJob, at: float) -> float:
    """Seconds of the cooldown that are left, negative or zero when it is over."""
    return job.last_resize_at + job.cooldown_s - at if job.last_resize_at is not None else 0.0


def _imposed(job: ElasticJob, verdict: _Verdict, room: Room) -> tuple[Decision, Room]:
    """The decision a guard takes itself, and the room that is left."""
    size = verdict.target if verdict.target is not None else job.workers
    by = "person" if verdict.reason is Reason.OVERRIDE else "guards"
    after = room if size < job.workers else room.take([(job.shape, job.gpus_per_worker)] * (size - job.workers))
    if after is None:
        return hold(job, Reason.NO_ROOM, _no_room(job, size, room), by), room
    decision = Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=size,
        reason=verdict.reason,
        explanation=verdict.explanation,
        urgent=verdict.reason is Reason.UNPLACED,
        policy=by,
    )
    return decision, after


def _allowed(job: ElasticJob, verdict: _Verdict | None) -> ElasticJob:
    """The Job as the policy may see it."""
    return job if verdict is None else replace(job, sizes=verdict.sizes, target_workers=verdict.target)


def _not_a_size(job: ElasticJob, size: int) -> str:
    return f"{size} workers, but {job.name} may have {', '.join(map(str, job.sizes))}"


def _no_room(job: ElasticJob, size: int, room: Room) -> str:
    return f"{job.name} was to grow from {job.workers} to {size} workers, but only {room.gpus} GPUs are free"
