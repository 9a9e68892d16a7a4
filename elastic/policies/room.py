# SPDX-License-Identifier: Apache-2.0
"""Room for pods: GPUs that are free node by node, now and once what is leaving is gone, within the queue's limit. Pure.

Nodes are told apart where workers may leave them (`named`); all others are only counted by their state (`crowd`), so
that the cost follows the queue and not the cluster.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.draft import Draft, Spot
from kfp_volcano.elastic.policies.settings import RESERVE_S
from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfp_volcano.elastic.policies.snapshot import ElasticJob, NodeState, QueueSnapshot, Shape

__all__ = ["Room", "Spot", "room_of", "unclaimed"]


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
        return self._counted.gpus

    @property
    def gpus_later(self) -> int:
        """GPUs that are free for such pods once all that is leaving is gone."""
        return max(0, self._counted.most_later())

    def workers(self, shape: str, gpus: int, *, later: bool = False) -> int:
        """How many pods of a shape with `gpus` > 0 GPUs fit; rounded down, for a part of a worker cannot run."""
        return self._counted.workers(shape, gpus, later=later)

    def take(self, pods: Iterable[tuple[str, int]], *, later: bool = False) -> Room | None:
        """The room that remains when these pods are placed, None where they do not all fit; see `Draft.take`."""
        draft = self.draft()
        return self.after(draft) if draft.take(pods, later=later) else None

    def give(self, nodes: Iterable[str], gpus: int, shape: str = "") -> Room:
        """The room when workers of so many GPUs each leave these nodes: theirs come free later, not now."""
        draft = self.draft()
        draft.give(nodes, gpus, shape)
        return self.after(draft)

    def within(self, fewer: int) -> Room:
        """The room under a limit that is so many GPUs lower."""
        draft = self.draft()
        draft.limit -= fewer
        draft.limit_later -= fewer
        return self.after(draft)

    def draft(self) -> Draft:
        """A copy to plan in; many steps there cost less than as many rooms."""
        return self._counted.copy()

    def after(self, draft: Draft) -> Room:
        """What a draft of this room has become; the draft is not to be changed any more."""
        room = Room(draft.limit, draft.limit_later, draft.named, draft.crowd, self.shapes)
        room.__dict__["_counted"] = draft  # counted already
        return room

    @cached_property
    def _counted(self) -> Draft:
        return Draft(self.limit, self.limit_later, self.named, self.crowd, self.shapes)


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
    leaving = [job for job in snapshot.jobs if job.target_workers is not None and job.target_workers < job.workers]
    if not leaving and not snapshot.reserved:
        return room
    draft = room.draft()
    for job in sorted(leaving, key=lambda job: job.key):
        draft.give(job.nodes[job.target_workers :], job.gpus_per_worker, job.shape)
    for (shape, gpus), count in sorted(Counter(snapshot.reserved).items()):
        draft.take_all_that_fit(shape, gpus, count, own=False)
    return room.after(draft)


def unclaimed(room: Room, snapshot: QueueSnapshot, *, reserve_s: float = RESERVE_S) -> Room:
    """What remains beside the surplus that the queue's own Jobs were promised and that has no node yet.

    Without that, two decisions in a row would hand out the same GPUs twice: pods take a while to be placed. It is kept
    for `reserve_s`: what has found no node by then is not going to. Gangs go before it: they are served from the whole
    room.
    """
    claims = [(job, count) for job in snapshot.jobs if (count := _claimed(job, snapshot.at - reserve_s))]
    if not claims:
        return room
    draft = room.draft()
    for job, count in sorted(claims, key=lambda claim: claim[0].key):
        draft.take_all_that_fit(job.shape, job.gpus_per_worker, count)
    return room.after(draft)


def _spot(state: NodeState) -> Spot:
    return Spot(state.free, state.free + state.releasing, state.fits, state.gpu_class)


def _claimed(job: ElasticJob, kept_since: float) -> int:
    """Surplus workers that were asked for and hold nothing yet; what a core lacks waits as a gang of its own."""
    more = max(0, (job.target_workers or 0) - job.workers)
    if job.waiting_since is not None and job.waiting_since <= kept_since:
        return more
    return max(0, job.nodes[job.min_workers : job.target_workers].count(NOWHERE) - job.ended) + more
