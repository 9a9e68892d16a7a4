# SPDX-License-Identifier: Apache-2.0
"""Who gives up surplus for the gangs that wait, and how little of it is enough. Pure.

Any policy can start from here: a waiting gang is owed the surplus, however the rest is shared out. What a queue has a
right to (`deserved`) is counted in this order: what its gangs hold, then its gangs that wait, then surplus. From that
follows who is owed what:

- A gang within what its queue deserves is owed the surplus of Jobs of no higher priority in its queue, and of any
  priority in a queue that has borrowed: there as much as is borrowed, and no more.
- A gang that would borrow, because its queue's gangs already hold what it deserves, is owed only surplus that is
  borrowed too, after all others.
- While a gang within its share waits in vain, nobody grows beyond what their queue deserves.

Volcano's own reclaim has no notion of a Job's surplus: it takes pods of any index, of gangs too, or starves a gang
beside its own surplus. So what is owed is given before Volcano takes it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.giving import standing
from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.elastic.policies.room import room_of
from kfp_volcano.elastic.policies.snapshot import NOWHERE
from kfp_volcano.elastic.policies.tally import Tally
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.elastic.policies.draft import Draft
    from kfp_volcano.elastic.policies.giving import Standing
    from kfp_volcano.elastic.policies.room import Room
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, PendingGang, QueueSnapshot

__all__ = ["Service", "owed", "serve"]


@dataclass(frozen=True, slots=True)
class Service:
    """What is done for the gangs that wait."""

    sizes: Mapping[str, int]
    """New size of each Job that gives, by key."""
    causes: Mapping[str, PendingGang]
    """The gang for which each of these Jobs gives, by the Job's key; the last one where it gives for several."""
    served: tuple[PendingGang, ...]
    """Gangs that will have their GPUs: from what is free, what is coming free, and what Jobs give."""
    unserved: tuple[PendingGang, ...]
    """Gangs that all that is owed to them together would not serve; nothing is given for them."""
    room: Room
    """What remains, now and once everything has come free, when each served gang has its GPUs. Its limit is what the
    queue deserves, where somebody waits in vain who is within their share."""
    before: Mapping[str, str]
    """Why each of these Jobs gives and not the next in order, by the Job's key; nothing where there is no next."""
    share_only: bool = False
    """Whether the queue may not borrow more."""


def serve(snapshot: QueueSnapshot) -> Service:
    """Serve the gangs one after another: those within their share first, then by priority and by how long they wait.

    A gang that fits in what is free, or is coming free, takes nothing from anybody: Volcano will place it. For any
    other, Jobs give in the order of `giving`, the least that their sizes allow: of all ways to serve the gang, the one
    that leaves the Job that is last in order the most, then the one before it, and so on.
    """
    if not snapshot.pending and not snapshot.claims:
        return Service({}, {}, (), (), room_of(snapshot), {})
    turn = _Turn(snapshot)
    rightful, borrowing = _by_right(snapshot, turn.held)
    for gang in rightful:
        turn.serve(gang, borrows=False)
    for gang in borrowing:
        turn.serve(gang, borrows=True)
    return turn.service()


def owed(job: ElasticJob, service: Service, policy: str) -> Decision:
    """The decision of a Job that gives."""
    gang, size = service.causes[job.key], service.sizes[job.key]
    why = f"; it gives first: {service.before[job.key]}" if job.key in service.before else ""
    gives = f"{job.name} gives {(job.workers - size) * job.gpus_per_worker}"
    borrowed = f" of what its queue has borrowed from {gang.queue}" if gang.queue else ""
    return Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=size,
        reason=Reason.RECLAIMED if gang.queue else Reason.GANG_PENDING,
        explanation=f"{gang.name} waits for {counted(gang.gpus, 'GPU')}: {gives}{borrowed} and "
        f"shrinks from {job.workers} to {counted(size, 'worker')}{why}",
        urgent=True,
        policy=policy,
        numbers={"gang_gpus": gang.gpus, "given_gpus": (job.workers - size) * job.gpus_per_worker},
    )


class _Turn:
    """Gangs that are served, and what that leaves."""

    def __init__(self, snapshot: QueueSnapshot) -> None:
        self._snapshot = snapshot
        self._room = room_of(snapshot)
        self._draft = self._room.draft()
        self._jobs = {job.key: job for job in snapshot.jobs if job.gpus_per_worker}
        self._order = sorted(standing(job) for job in self._jobs.values() if min(job.sizes, default=0) < job.workers)
        self._sizes: dict[str, int] = {}
        self._causes: dict[str, PendingGang] = {}
        self._before: dict[str, str] = {}
        self._served: list[PendingGang] = []
        self._unserved: list[PendingGang] = []
        self._in_vain: list[_Need] = []
        self._share_only = False
        self.held = snapshot.limit_gpus - self._room.limit_later
        """GPUs the queue is going to hold, without those of gangs that borrow."""

    def serve(self, gang: PendingGang, *, borrows: bool) -> None:
        """Serve a gang if that can be."""
        need = _Need(gang, borrows=borrows)
        fits = not gang.short_gpus and self._draft.take(need.pods, later=True, own=need.own)
        if fits or self._give(need):
            self._served.append(gang)
            if need.own and not borrows:
                self.held += gang.gpus
                self._in_vain = [other for other in self._in_vain if not other.borrowed_only]  # more is borrowed now
        else:
            self._unserved.append(gang)
            self._share_only = self._share_only or not borrows

    def service(self) -> Service:
        """What has become of them all."""
        room = self._room.after(self._draft)
        if self._share_only:
            room = room.within(self._snapshot.limit_gpus - self._snapshot.share_gpus)
        served, unserved = tuple(self._served), tuple(self._unserved)
        return Service(self._sizes, self._causes, served, unserved, room, self._before, self._share_only)

    def _give(self, need: _Need) -> bool:
        """Let Jobs give so that the gang fits, and place it, if that can be."""
        if any(need.is_harder_than(other) for other in self._in_vain):
            return False
        givers = [place for place in self._order if not need.own or place.priority <= need.gang.priority]
        budget = max(0, self.held - self._snapshot.share_gpus) if need.borrowed_only else None
        sizes = _least(self._draft, need, self._steps(givers, budget))
        if sizes is None:
            self._in_vain.append(need)
            return False
        self._explain(givers, sizes)
        order = [place for place in self._order if place.key not in sizes]
        for key, size in sizes.items():
            job = self._jobs[key]
            leaving = job.nodes[size : self._sizes.get(key, job.workers)]
            self._draft.give(leaving, job.gpus_per_worker, job.shape)
            self.held -= _held_gpus(job, leaving)
            self._sizes[key] = size
            self._causes[key] = need.gang
            if size > min(job.sizes):
                order.append(standing(job, size))
        self._order = sorted(order)
        return self._draft.take(need.pods, later=True, own=need.own)

    def _steps(self, givers: Sequence[Standing], budget: int | None) -> Iterator[_Step]:
        """All that may be given, in order: each Job size by size, as long as the budget lasts, and then the next."""
        for place in givers:
            job = self._jobs[place.key]
            above = self._sizes.get(job.key, job.workers)
            for below in sorted((size for size in job.sizes if size < above), reverse=True):
                step = _Step(job, job.nodes[below:above], below)
                if budget is not None:
                    budget -= step.gpus
                    if budget < 0:
                        budget += step.gpus
                        break
                yield step
                above = below

    def _explain(self, givers: Sequence[Standing], sizes: Mapping[str, int]) -> None:
        spared: Standing | None = None
        for place in reversed(givers):
            if place.key not in sizes:
                spared = place
            elif spared is not None:
                self._before.setdefault(place.key, place.before(spared))


class _Step(NamedTuple):
    """A Job goes down by one of its sizes."""

    job: ElasticJob
    nodes: tuple[str, ...]
    """Where the workers are that go."""
    below: int
    """The size it goes down to."""

    @property
    def gpus(self) -> int:
        return _held_gpus(self.job, self.nodes)


class _Need:
    """What a gang needs, and of whom."""

    def __init__(self, gang: PendingGang, *, borrows: bool) -> None:
        self.gang = gang
        self.pods = [(gang.shape, gpus) for gpus in gang.pods if gpus]
        self.counted = Counter(self.pods)
        self.own = not gang.queue
        self.borrowed_only = borrows or not self.own

    def is_harder_than(self, other: _Need) -> bool:
        """Whether what could not be given for another gang, earlier in the same turn, cannot be given for this one."""
        return (
            self.own == other.own
            and self.borrowed_only >= other.borrowed_only
            and (not self.own or self.gang.priority <= other.gang.priority)
            and self.counted >= other.counted
            and self.gang.short_gpus >= other.gang.short_gpus
        )


class _Trial:
    """What would be if Jobs gave so much: counted where the pods are equal, for that is quick, else planned."""

    def __init__(self, draft: Draft, need: _Need) -> None:
        self._need = need
        self._given = 0
        self._equal = len(need.counted) == 1
        self._room: Draft | Tally = Tally(draft, *need.pods[0], own=need.own) if self._equal else draft.copy()

    def go(self, steps: Sequence[_Step], given: int, wanted: int) -> int:
        """Let so many steps be given instead of so many."""
        for step in steps[given:wanted]:
            self._given += step.gpus
            self._room.give(step.nodes, step.job.gpus_per_worker, step.job.shape)
        for step in steps[wanted:given]:
            self._given -= step.gpus
            self._room.give_back(step.nodes, step.job.gpus_per_worker, step.job.shape)
        return wanted

    @property
    def fits(self) -> bool:
        """Whether the gang has room in the end."""
        if self._given < self._need.gang.short_gpus:
            return False
        if isinstance(self._room, Tally):
            return self._room.workers >= len(self._need.pods)
        return self._room.fits(self._need.pods, later=True, own=self._need.own)


def _by_right(snapshot: QueueSnapshot, held: int) -> tuple[list[PendingGang], list[PendingGang]]:
    """Gangs within their queues' shares, and those that would borrow; each in the order in which they are served."""
    left = snapshot.share_gpus - held + sum(_held_gpus(job, _surplus(job)) for job in snapshot.jobs)
    rightful, borrowing = [*snapshot.claims], []
    for gang in sorted(snapshot.pending, key=_serving_order):
        if gang.gpus <= left:
            rightful.append(gang)
            left -= gang.gpus
        else:
            borrowing.append(gang)
    return sorted(rightful, key=_serving_order), borrowing


def _serving_order(gang: PendingGang) -> tuple[int, float, str]:
    return -gang.priority, gang.since, gang.key


def _surplus(job: ElasticJob) -> tuple[str, ...]:
    return job.nodes[job.min_workers : job.target_workers]


def _held_gpus(job: ElasticJob, nodes: tuple[str, ...]) -> int:
    return (len(nodes) - nodes.count(NOWHERE)) * job.gpus_per_worker


def _least(draft: Draft, need: _Need, more: Iterator[_Step]) -> dict[str, int] | None:
    """The sizes of the Jobs that give so that the gang fits, of what may be given; None if it cannot be made to fit."""
    lacking = max(need.gang.gpus - draft.most_later(own=need.own), need.gang.short_gpus)
    steps: list[_Step] = []
    while lacking > 0:
        step = next(more, None)
        if step is None:
            return None
        steps.append(step)
        lacking -= step.gpus
    trial = _Trial(draft, need)
    given, too_few, leap = trial.go(steps, 0, len(steps)), len(steps) - 1, 1
    while not trial.fits:
        too_few, leap = given, leap * 2
        steps += islice(more, leap)
        if len(steps) == given:
            return None
        given = trial.go(steps, given, len(steps))
    enough = given
    while enough - too_few > 1:
        given = trial.go(steps, given, (too_few + enough) // 2)
        too_few, enough = (too_few, given) if trial.fits else (given, enough)
    return _without_waste(trial, steps, trial.go(steps, given, enough))


def _without_waste(trial: _Trial, steps: Sequence[_Step], given: int) -> dict[str, int]:
    """The sizes after so many steps, without what was given in vain because a later Job gave enough.

    The Job that is last in order has back first, as much as it can.
    """
    sizes: dict[str, int] = {}
    for at in reversed(range(given)):
        step = steps[at]
        if step.job.key in sizes:
            continue
        trial.go(steps, at + 1, at)
        if not trial.fits:
            trial.go(steps, at, at + 1)
            sizes[step.job.key] = step.below
    return sizes
