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

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.giving import giving_order, standing
from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.elastic.policies.room import room_of
from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.draft import Draft
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
        explanation=f"{gang.name} waits for {gang.gpus} GPUs: {gives}{borrowed} and shrinks from {job.workers} to "
        f"{size} workers{why}",
        urgent=True,
        policy=policy,
        numbers={"gang_gpus": gang.gpus, "given_gpus": (job.workers - size) * job.gpus_per_worker},
    )


class _Step(NamedTuple):
    """A Job goes down by one of its sizes."""

    job: ElasticJob
    above: int
    below: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.job.nodes[self.below : self.above]


class _Turn:
    """Gangs that are served, and what that leaves."""

    def __init__(self, snapshot: QueueSnapshot) -> None:
        self._snapshot = snapshot
        self._room = room_of(snapshot)
        self._draft = self._room.draft()
        self._jobs = {job.key: job for job in snapshot.jobs}
        self._order = giving_order(job for job in snapshot.jobs if job.gpus_per_worker and _smaller(job))
        self._sizes: dict[str, int] = {}
        self._causes: dict[str, PendingGang] = {}
        self._before: dict[str, str] = {}
        self._served: list[PendingGang] = []
        self._unserved: list[PendingGang] = []
        self._share_only = False
        self.held = snapshot.limit_gpus - self._room.limit_later
        """GPUs the queue is going to hold, without those of gangs that borrow."""

    def serve(self, gang: PendingGang, *, borrows: bool) -> None:
        """Serve a gang if that can be."""
        pods = [(gang.shape, gpus) for gpus in gang.pods]
        own = not gang.queue
        if not self._draft.fits(pods, later=True, own=own) and not self._give(gang, pods, own=own, borrows=borrows):
            self._unserved.append(gang)
            self._share_only = self._share_only or not borrows
            return
        self._draft.take(pods, later=True, own=own)
        self._served.append(gang)
        self.held += gang.gpus if own and not borrows else 0

    def service(self) -> Service:
        """What has become of them all."""
        room = self._room.after(self._draft)
        if self._share_only:
            beyond = self._snapshot.limit_gpus - self._snapshot.share_gpus
            room = replace(room, limit=room.limit - beyond, limit_later=room.limit_later - beyond)
        served, unserved = tuple(self._served), tuple(self._unserved)
        return Service(self._sizes, self._causes, served, unserved, room, self._before, self._share_only)

    def _give(self, gang: PendingGang, pods: Sequence[tuple[str, int]], *, own: bool, borrows: bool) -> bool:
        """Let Jobs give so that the gang fits, if that can be; the draft has what they give."""
        givers = [job for job in self._order if not own or job.priority <= gang.priority]
        borrowed = max(0, self.held - self._snapshot.share_gpus)
        sizes = _least(self._draft, givers, pods, own=own, budget=borrowed if borrows or not own else None)
        if sizes is None:
            return False
        self._explain(givers, sizes)
        for key, size in sizes.items():
            job = self._jobs[key]
            self.held -= _held_gpus(job, job.nodes[size:])
            self._jobs[key] = replace(job, workers=size, nodes=job.nodes[:size])
            self._sizes[key] = size
            self._causes[key] = gang
        left = (self._jobs[job.key] for job in self._order)
        self._order = giving_order(job for job in left if _smaller(job))
        return True

    def _explain(self, givers: Sequence[ElasticJob], sizes: Mapping[str, int]) -> None:
        spared: ElasticJob | None = None
        for job in reversed(givers):
            if job.key not in sizes:
                spared = job
            elif spared is not None:
                self._before.setdefault(job.key, standing(job).before(standing(spared)))


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


def _smaller(job: ElasticJob) -> list[int]:
    """Sizes a Job could go down to, largest first."""
    return sorted((size for size in job.sizes if size < job.workers), reverse=True)


def _surplus(job: ElasticJob) -> tuple[str, ...]:
    return job.nodes[job.min_workers : job.target_workers]


def _held_gpus(job: ElasticJob, nodes: tuple[str, ...]) -> int:
    return (len(nodes) - nodes.count(NOWHERE)) * job.gpus_per_worker


def _least(
    draft: Draft, givers: Sequence[ElasticJob], pods: Sequence[tuple[str, int]], *, own: bool, budget: int | None
) -> dict[str, int] | None:
    """The sizes of the Jobs that give so that the pods fit; None if they cannot be made to fit.

    The draft has what they give afterwards, or is as before. At most `budget` GPUs are given, where there is one.
    """
    steps = _steps(givers, budget)
    needed = sum(gpus for _, gpus in pods)
    given = 0
    while given < len(steps) and draft.most_later(own=own) < needed:
        given = _go(draft, steps, given, given + 1)
    if not draft.fits(pods, later=True, own=own):
        too_few, enough = given, len(steps)
        given = _go(draft, steps, given, enough)
        if not draft.fits(pods, later=True, own=own):
            _go(draft, steps, given, 0)
            return None
        while enough - too_few > 1:
            given = _go(draft, steps, given, (too_few + enough) // 2)
            if draft.fits(pods, later=True, own=own):
                enough = given
            else:
                too_few = given
        given = _go(draft, steps, given, enough)
    return _without_waste(draft, steps[:given], pods, own=own)


def _steps(givers: Sequence[ElasticJob], budget: int | None) -> list[_Step]:
    """All that may be given, in order: each Job size by size, as long as the budget lasts, and then the next."""
    steps = []
    for job in givers:
        above = job.workers
        for below in _smaller(job):
            step = _Step(job, above, below)
            if budget is not None:
                gpus = _held_gpus(job, step.nodes)
                if gpus > budget:
                    break
                budget -= gpus
            steps.append(step)
            above = below
    return steps


def _go(draft: Draft, steps: Sequence[_Step], given: int, wanted: int) -> int:
    """Let so many steps be given instead of so many."""
    for job, above, below in steps[given:wanted]:
        draft.give(job.nodes[below:above], job.gpus_per_worker, job.shape)
    for job, above, below in steps[wanted:given]:
        draft.give_back(job.nodes[below:above], job.gpus_per_worker, job.shape)
    return wanted


def _without_waste(
    draft: Draft, steps: Sequence[_Step], pods: Sequence[tuple[str, int]], *, own: bool
) -> dict[str, int]:
    """The sizes after these steps, without what was given in vain because a later Job gave enough.

    The Job that is last in order has back first, as much as it can.
    """
    sizes: dict[str, int] = {}
    for at in reversed(range(len(steps))):
        job, _, below = steps[at]
        if job.key in sizes:
            continue
        _go(draft, steps, at + 1, at)
        if not draft.fits(pods, later=True, own=own):
            _go(draft, steps, at, at + 1)
            sizes[job.key] = below
    return sizes
