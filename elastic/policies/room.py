"""Room for pods: GPUs that are free node by node, within what the queue may still take. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot

__all__ = ["Room", "free_room", "future_room"]


@dataclass(frozen=True, slots=True)
class Room:
    """What could be taken: at most `limit` GPUs, and no pod across two nodes."""

    limit: int
    nodes: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """GPUs that could be taken by pods of one GPU."""
        return max(0, min(self.limit, sum(self.nodes)))

    def workers(self, gpus_each: int) -> int:
        """How many workers of `gpus_each` > 0 GPUs fit; rounded down, for a part of a worker cannot run."""
        return min(max(0, self.limit) // gpus_each, sum(free // gpus_each for free in self.nodes))

    def take(self, pods: Sequence[int]) -> Room | None:
        """The room that remains when these pods are placed, None where they do not all fit.

        Largest pod first, each onto the node it fills best: exact for pods of one size, for mixed sizes a heuristic
        that may miss a tight packing.
        """
        if sum(pods) > self.limit:
            return None
        nodes = list(self.nodes)
        for gpus in sorted(pods, reverse=True):
            fitting = [index for index, free in enumerate(nodes) if free >= gpus]
            if not fitting:
                return None
            nodes[min(fitting, key=lambda index: (nodes[index], index))] -= gpus
        return Room(self.limit - sum(pods), tuple(nodes))

    def give(self, nodes: Iterable[int], gpus_each: int) -> Room:
        """The room when workers of `gpus_each` GPUs on these nodes are gone."""
        limit, free = self.limit, list(self.nodes)
        for node in nodes:
            if node != NOWHERE:
                limit += gpus_each
            if node >= 0:
                free[node] += gpus_each
        return Room(limit, tuple(free))

    def within(self, other: Room) -> Room:
        """What is in both."""
        return Room(min(self.limit, other.limit), tuple(map(min, self.nodes, other.nodes)))


def free_room(snapshot: QueueSnapshot) -> Room:
    """What nobody holds now, less what workers that were asked for already are going to take.

    Without the latter, two decisions in a row would hand out the same GPUs twice: pods take a while to be placed.
    """
    room = Room(snapshot.limit_gpus - snapshot.allocated_gpus, snapshot.free_gpus_by_node)
    for job in sorted(snapshot.jobs, key=lambda job: job.key):
        for _ in range(_claimed(job)):
            room = room.take((job.gpus_per_worker,)) or room
    return room


def future_room(snapshot: QueueSnapshot) -> Room:
    """What is free once terminating pods are gone and open resizes have shrunk their Jobs."""
    releasing = zip_longest(snapshot.free_gpus_by_node, snapshot.releasing_gpus_by_node, fillvalue=0)
    room = Room(
        snapshot.limit_gpus - snapshot.allocated_gpus + snapshot.releasing_gpus,
        tuple(free + coming for free, coming in releasing),
    )
    for job in snapshot.jobs:
        if job.target_workers is not None:
            room = room.give(job.nodes[job.target_workers :], job.gpus_per_worker)
    return room


def _claimed(job: ElasticJob) -> int:
    """Surplus workers that were asked for and hold nothing yet; what a core lacks waits as a gang of its own."""
    surplus = job.nodes[job.min_workers : job.target_workers]
    return surplus.count(NOWHERE) + max(0, (job.target_workers or 0) - job.workers)
