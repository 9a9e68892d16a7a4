"""Who gives up surplus for the gangs that wait, and how little of it is enough. Pure.

Any policy can start from here: a waiting gang is owed the surplus, however the rest is shared out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.room import room_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.room import Room
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, PendingGang, QueueSnapshot

__all__ = ["Service", "serve"]


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
    """Gangs that all surplus together would not serve; nothing is given for them."""
    room: Room
    """What remains, now and once everything has come free, when each served gang has its GPUs."""


def serve(snapshot: QueueSnapshot) -> Service:
    """Serve the gangs one after another, by priority and then by how long they have waited.

    A gang that fits in what is free, or is coming free, takes nothing from anybody: Volcano will place it. For any
    other the Jobs of lowest priority give first, and among those the one with most surplus; each gives the least that
    one of its sizes allows.
    """
    room = room_of(snapshot)
    jobs = {job.key: job for job in snapshot.jobs}
    sizes: dict[str, int] = {}
    causes: dict[str, PendingGang] = {}
    served: list[PendingGang] = []
    unserved: list[PendingGang] = []
    for gang in sorted(snapshot.pending, key=lambda gang: (-gang.priority, gang.since, gang.key)):
        cheapest = _cheapest(gang, room, sorted(jobs.values(), key=_giving_order))
        if cheapest is None:
            unserved.append(gang)
            continue
        served.append(gang)
        for key, size in cheapest.items():
            room = room.give(jobs[key].nodes[size:], jobs[key].gpus_per_worker, jobs[key].shape)
            jobs[key] = replace(jobs[key], workers=size, nodes=jobs[key].nodes[:size])
            sizes[key] = size
            causes[key] = gang
        room = room.take(_pods(gang), later=True) or room
    return Service(sizes, causes, tuple(served), tuple(unserved), room)


def _giving_order(job: ElasticJob) -> tuple[int, int, str]:
    surplus = (job.workers - min(job.sizes, default=job.workers)) * job.gpus_per_worker
    return job.priority, -surplus, job.key


def _cheapest(gang: PendingGang, room: Room, givers: Sequence[ElasticJob]) -> dict[str, int] | None:
    """The sizes of the Jobs that give so that the gang fits, empty if none has to; None if it cannot be made to fit."""
    sizes = {job.key: job.workers for job in givers}

    def fits() -> bool:
        after = room
        for job in givers:
            after = after.give(job.nodes[sizes[job.key] :], job.gpus_per_worker, job.shape)
        return after.take(_pods(gang), later=True) is not None

    for job in givers:
        smaller = iter(sorted((size for size in job.sizes if size < job.workers), reverse=True))
        while not fits() and (size := next(smaller, None)) is not None:
            sizes[job.key] = size
    if not fits():
        return None
    for job in reversed(givers):  # what an earlier Job gave in vain, because a later one gave enough
        given = sizes[job.key]
        for size in sorted({job.workers, *(size for size in job.sizes if given < size < job.workers)}, reverse=True):
            sizes[job.key] = size
            if fits():
                break
            sizes[job.key] = given
    return {job.key: sizes[job.key] for job in givers if sizes[job.key] != job.workers}


def _pods(gang: PendingGang) -> list[tuple[str, int]]:
    return [(gang.shape, gpus) for gpus in gang.pods]
