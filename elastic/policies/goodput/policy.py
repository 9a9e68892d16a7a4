# SPDX-License-Identifier: Apache-2.0
"""The policy `goodput`: sizes for all Jobs of a queue at once, by what each would make of its GPUs. Pure.

Waiting gangs come first, as for any policy. What remains is a plan: who should have how much once all that is to move
has moved. The plan is made over the GPUs that will be free then, so Jobs give to each other; but a Job grows only into
what is free now. Until those that give have given, those that wait for it say so, and the plan is made anew each time:
it comes out the same, for what was given has been paid for, and what was to be gained by it is to be gained still.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.policies.gangs import owed, serve
from kfp_volcano.elastic.policies.goodput.assignment import Assignment, assign
from kfp_volcano.elastic.policies.goodput.capacity import capacity_of
from kfp_volcano.elastic.policies.goodput.choices import Usage
from kfp_volcano.elastic.policies.goodput.efficiency import goodput_of
from kfp_volcano.elastic.policies.goodput.options import Outlook, choice_of, kind_of, reach, weights
from kfp_volcano.elastic.policies.goodput.programme import Bounded
from kfp_volcano.elastic.policies.goodput.wording import Words
from kfp_volcano.elastic.policies.room import unclaimed
from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.draft import Draft
    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.goodput.capacity import Capacity
    from kfp_volcano.elastic.policies.goodput.choices import Choice
    from kfp_volcano.elastic.policies.goodput.efficiency import Goodput as JobGoodput
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.room import Room
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot

__all__ = ["Goodput"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Throughput times statistical efficiency, over the whole queue."""

    name: ClassVar[str] = "goodput"

    bounded: Bounded = field(default_factory=Bounded)
    """How much effort a plan is worth."""
    every_s: float = 60.0
    """Time between plans where nothing else calls for one: training measures on while nothing happens. It is Pollux'
    interval; its results hardly change between half a minute and two."""

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each Job, sorted by key; see `Policy`."""
        return self.decide_beside(snapshot, serve(snapshot))

    def decide_beside(self, snapshot: QueueSnapshot, service: Service) -> tuple[Decision, ...]:
        """As `decide`, where it is known already what the gangs are served; see `Serving`."""
        room = unclaimed(service.room, snapshot)
        jobs = {job.key: job for job in sorted(snapshot.jobs, key=lambda job: job.key)}
        movable = [job for job in jobs.values() if job.gpus_per_worker and job.key not in service.sizes]
        kinds = sorted({kind_of(job) for job in movable})
        later = capacity_of(room, kinds, later=True)
        goodputs = {job.key: goodput_of(job) for job in jobs.values() if job.gpus_per_worker}
        weighing = weights([job for job in jobs.values() if job.gpus_per_worker], goodputs, snapshot.at)
        outlooks = {
            job.key: _outlook(job, goodputs[job.key], weighing[job.key], snapshot.at, room, later) for job in movable
        }
        choices = [choice_of(outlooks[job.key], () if _rests(job, snapshot.at) else reach(job)) for job in movable]
        plan = assign(choices, later, self.bounded)
        if not _fits(choices, jobs, plan, room.draft()):
            # A packing that the rows do not know of: nobody gives for it in vain.
            choices = [_only_growing(choice) for choice in choices]
            plan = assign(choices, later, self.bounded)
        granted = _granted(choices, plan, Usage(capacity_of(room, kinds, later=False)), room.draft())
        words = Words(service, later, plan, outlooks, {choice.key: choice for choice in choices})
        return tuple(
            owed(job, service, self.name)
            if job.key in service.sizes
            else words.planned(job, granted=job.key in granted)
            if job.key in outlooks
            else words.stays_out(job)
            for job in jobs.values()
        )

    def next_change(self, snapshot: QueueSnapshot) -> float | None:
        """When the next plan is due, Unix seconds; see `Changing`."""
        return (snapshot.at // self.every_s + 1) * self.every_s if snapshot.jobs else None


def _outlook(job: ElasticJob, goodput: JobGoodput, weight: float, at: float, room: Room, capacity: Capacity) -> Outlook:
    own = [room.named[node] for node in sorted(set(job.nodes)) if node in room.named]
    near = sum(spot.pods(job.shape, job.gpus_per_worker, later=True) for spot in own)
    return Outlook(job=job, goodput=goodput, capacity=capacity, weight=weight, near=near, at=at)


def _rests(job: ElasticJob, at: float) -> bool:
    """Whether the Job cannot move now for anything but a gang: it is not planned with."""
    cooling = job.last_resize_at is not None and job.last_resize_at + job.cooldown_s > at
    return job.resize_open or cooling or NOWHERE in job.nodes[job.min_workers :]


def _only_growing(choice: Choice) -> Choice:
    options = tuple(option for option in choice.options if option.workers >= choice.stay.workers)
    return replace(choice, options=options, present=0)


def _fits(choices: Sequence[Choice], jobs: Mapping[str, ElasticJob], plan: Assignment, draft: Draft) -> bool:
    """Whether the plan can be packed onto the nodes once those who give have given."""
    pods: list[tuple[str, int]] = []
    for choice in choices:
        job, option = jobs[choice.key], plan.options[choice.key]
        draft.give(job.nodes[option.workers :], job.gpus_per_worker, job.shape)
        pods += [(job.shape, job.gpus_per_worker)] * option.adds
    return draft.fits(pods, later=True)


def _granted(choices: Sequence[Choice], plan: Assignment, usage: Usage, draft: Draft) -> set[str]:
    """Who may grow at once, into what is free now: the highest priority first, and then who gains most for a GPU."""
    growing = [choice for choice in choices if plan.options[choice.key].adds]
    granted = set()

    def order(choice: Choice) -> tuple[int, float, str]:
        option = plan.options[choice.key]
        return -choice.priority, (option.cost - choice.stay.cost) / option.gpus, choice.key

    for choice in sorted(growing, key=order):
        option = plan.options[choice.key]
        if not usage.apply(choice, option):
            continue
        if draft.take([(choice.kind.shape, choice.kind.gpus)] * option.adds):
            granted.add(choice.key)
        else:
            usage.apply(choice, choice.stay)
    return granted
