"""Room for pods: GPUs that are free node by node, now and once what is leaving is gone, within the queue's limit. Pure.

Nodes are told apart where workers may leave them (`named`); all others are only counted by their state (`crowd`), so
that the cost follows the queue and not the cluster.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.elastic.policies.snapshot import ElasticJob, NodeState, QueueSnapshot, Shape

__all__ = ["Room", "Spot", "room_of", "unclaimed"]


class Spot(NamedTuple):
    """What is left on a node."""

    now: int
    """GPUs that are free."""
    later: int
    """GPUs that are free once all that is leaving is gone; never less than `now`."""
    fits: tuple[tuple[str, int], ...] = ()
    """As in `NodeState`."""
    gpu_class: str = ""

    def pods(self, shape: str, gpus: int, *, later: bool = False) -> int:
        """How many pods of a shape with so many GPUs each, more than none, it can take."""
        free = (self.later if later else self.now) // gpus
        return min(free, max(0, most)) if (most := dict(self.fits).get(shape)) is not None else free


@dataclass(frozen=True)
class Room:
    """What could be taken: at most `limit` GPUs now and `limit_later` in the end, and no pod across two nodes."""

    limit: int
    limit_later: int
    named: Mapping[str, Spot] = field(default_factory=dict)
    crowd: Mapping[Spot, int] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """GPUs that are free now for pods of one GPU that may go anywhere."""
        return max(0, min(self.limit, sum(spot.now * count for spot, count in self._spots())))

    def workers(self, shape: str, gpus: int, *, later: bool = False) -> int:
        """How many pods of a shape with `gpus` > 0 GPUs fit; rounded down, for a part of a worker cannot run."""
        limit = self.limit_later if later else self.limit
        return min(
            max(0, limit) // gpus,
            sum(spot.pods(shape, gpus, later=later) * count for spot, count in self._spots()),
        )

    def take(self, pods: Iterable[tuple[str, int]], *, later: bool = False) -> Room | None:
        """The room that remains when these pods (shape, GPUs) are placed, None where they do not all fit.

        Largest pod first, each onto the node it fills best: exact for pods of one size, for mixed sizes a heuristic
        that may miss a tight packing. `later`: pods that may wait for what is leaving; what they get is not free for
        others now either.
        """
        wanted = sorted((pod for pod in pods if pod[1]), key=lambda pod: (-pod[1], pod[0]))
        total = sum(gpus for _, gpus in wanted)
        limit = self.limit_later if later else self.limit
        if total > limit:
            return None
        named, crowd = dict(self.named), Counter(self.crowd)
        for shape, gpus in wanted:
            best: tuple[int, str, Spot] | None = None
            for name, spot in _candidates(named, crowd):
                if spot.pods(shape, gpus, later=later):
                    key = (spot.later if later else spot.now, name, spot)
                    best = key if best is None or key < best else best
            if best is None:
                return None
            _, name, spot = best
            after = self._taken(spot, shape, gpus, later=later)
            if name:
                named[name] = after
            else:
                crowd[spot] -= 1
                crowd[after] += 1
                if not crowd[spot]:
                    del crowd[spot]
        limit_later = self.limit_later - total
        limit = min(self.limit, limit_later) if later else self.limit - total
        return replace(self, limit=limit, limit_later=limit_later, named=named, crowd=dict(crowd))

    def without(self, pod: tuple[str, int]) -> Room:
        """The room beside a pod of another queue, which takes of the nodes and not of this queue's limit."""
        whole = replace(self, limit=self.limit_later + pod[1], limit_later=self.limit_later + pod[1])
        left = whole.take([pod], later=True)
        return self if left is None else replace(left, limit=self.limit, limit_later=self.limit_later)

    def give(self, nodes: Iterable[str], gpus: int, shape: str = "") -> Room:
        """The room when workers of so many GPUs each leave these nodes: theirs come free later, not now."""
        limit, named = self.limit_later, dict(self.named)
        for node in nodes:
            if node != NOWHERE:
                limit += gpus
            if node not in {NOWHERE, UNUSABLE} and node in named:
                spot = named[node]
                fits = tuple((name, most + (name == shape)) for name, most in spot.fits)
                named[node] = spot._replace(later=spot.later + gpus, fits=fits)
        return replace(self, limit_later=limit, named=named)

    def _taken(self, spot: Spot, shape: str, gpus: int, *, later: bool) -> Spot:
        left = spot.later - gpus
        now = min(spot.now, left) if later else spot.now - gpus
        fits = tuple((name, most - self._weight(shape, name)) for name, most in spot.fits)
        return Spot(now, left, fits, spot.gpu_class)

    def _weight(self, taken: str, other: str) -> int:
        """How many pods of another shape fewer fit beside one that is placed, at most."""
        if taken == other:
            return 1
        one, two = self.shapes.get(taken), self.shapes.get(other)
        if one is None or two is None:
            return 1
        return max(
            (-(-need // two.requests[each]) for each, need in one.requests.items() if two.requests.get(each)), default=0
        )

    def _spots(self) -> Iterator[tuple[Spot, int]]:
        yield from ((spot, 1) for spot in self.named.values())
        yield from self.crowd.items()


def room_of(snapshot: QueueSnapshot) -> Room:
    """What the queue could take, beside what other queues' Jobs were promised and do not hold yet."""
    crowd: Counter[Spot] = Counter()
    for state, count in snapshot.crowd.items():
        crowd[_spot(state)] += count
    room = Room(
        limit=snapshot.limit_gpus - snapshot.allocated_gpus,
        limit_later=snapshot.limit_gpus - snapshot.allocated_gpus + snapshot.releasing_gpus,
        named={name: _spot(state) for name, state in snapshot.nodes.items()},
        crowd=crowd,
        shapes=snapshot.shapes,
    )
    for job in sorted(snapshot.jobs, key=lambda job: job.key):
        if job.target_workers is not None:
            room = room.give(job.nodes[job.target_workers :], job.gpus_per_worker, job.shape)
    for pod in snapshot.reserved:
        room = room.without(pod)
    return room


def unclaimed(room: Room, snapshot: QueueSnapshot) -> Room:
    """What remains beside the surplus that the queue's own Jobs were promised and that has no node yet.

    Without that, two decisions in a row would hand out the same GPUs twice: pods take a while to be placed. Gangs go
    before it: they are served from the whole room.
    """
    for job in sorted(snapshot.jobs, key=lambda job: job.key):
        for _ in range(_claimed(job)):
            room = room.take([(job.shape, job.gpus_per_worker)], later=True) or room
    return room


def _spot(state: NodeState) -> Spot:
    return Spot(state.free, state.free + state.releasing, state.fits, state.gpu_class)


def _candidates(named: Mapping[str, Spot], crowd: Mapping[Spot, int]) -> Iterator[tuple[str, Spot]]:
    yield from named.items()
    yield from (("", spot) for spot in crowd)


def _claimed(job: ElasticJob) -> int:
    """Surplus workers that were asked for and hold nothing yet; what a core lacks waits as a gang of its own."""
    surplus = job.nodes[job.min_workers : job.target_workers]
    return surplus.count(NOWHERE) + max(0, (job.target_workers or 0) - job.workers)
