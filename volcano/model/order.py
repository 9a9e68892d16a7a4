# SPDX-License-Identifier: Apache-2.0
"""Who comes first: queues, gangs and victims.

Sources: QueueOrderFn, JobOrderFn, VictimQueueOrderFn, BuildVictimsPriorityQueue
(pkg/scheduler/framework/session_plugins.go) with the plugins capacity, priority, gang and drf, Volcano 1.15.1. The
order of a gang's own pods is `Gang.pending`'s. Where Volcano compares uids of things of the same second, age decides.
"""

from __future__ import annotations

import heapq
from functools import cmp_to_key
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.queues import QueueShare
    from kfp_volcano.volcano.model.session import Session
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["GangLine", "QueueLine", "compare_queues", "gang_key", "lines", "victim_queue_order", "victims_in_order"]


def compare_queues(left: QueueShare, right: QueueShare) -> int:
    """Negative if `left` comes first: by priority, then by the share in use where the two lines part, then by age."""
    if left.priority != right.priority:
        return right.priority - left.priority
    ours, theirs = _branches(left, right)
    if ours.share != theirs.share:
        return -1 if ours.share < theirs.share else 1
    if ours.has_deserved != theirs.has_deserved:
        return -1 if ours.has_deserved else 1
    return left.order - right.order


class QueueLine:
    """Queues in line for service; their order is that of the moment in which one joins or leaves."""

    def __init__(self, queues: Iterable[QueueShare]) -> None:
        self._heap = [(_queue_order(queue), queue) for queue in queues]
        heapq.heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, queue: QueueShare) -> None:
        """Let a queue join."""
        heapq.heappush(self._heap, (_queue_order(queue), queue))

    def pop(self) -> QueueShare:
        """The first in line, which leaves it."""
        return heapq.heappop(self._heap)[1]


class GangLine:
    """Gangs of one queue in line for service, each at the place it had when it joined."""

    def __init__(self, gangs: Iterable[Gang]) -> None:
        self._heap = [(gang_key(gang), gang) for gang in gangs]
        heapq.heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, gang: Gang) -> None:
        """Let a gang join."""
        heapq.heappush(self._heap, (gang_key(gang), gang))

    def pop(self) -> Gang:
        """The first in line, which leaves it."""
        return heapq.heappop(self._heap)[1]


def gang_key(gang: Gang) -> tuple[int, bool, float, int]:
    """Priority, incomplete gangs before complete ones, the smaller dominant share, age."""
    return -gang.priority, gang.ready, gang.share, gang.order


def lines(session: Session, gangs: Iterable[Gang]) -> tuple[QueueLine, dict[str, GangLine]]:
    """Gangs in line, queue by queue, and these queues in line."""
    found: dict[str, list[Gang]] = {}
    for gang in gangs:
        found.setdefault(gang.queue, []).append(gang)
    return QueueLine(session.queues[name] for name in found), {name: GangLine(each) for name, each in found.items()}


def victim_queue_order(preemptor: QueueShare) -> Callable[[QueueShare], object]:
    """A key for queues whose pods are taken: the nearest relatives first, then the last to be served."""

    def compare(left: QueueShare, right: QueueShare) -> int:
        nearer = _common_level(right, preemptor) - _common_level(left, preemptor)
        return nearer or compare_queues(right, left)

    return cmp_to_key(compare)


def victims_in_order(session: Session, victims: Iterable[Task], preemptor: Task) -> Iterator[Task]:
    """Victims, the first to go first: by queue, then the last gang to be served, then its last pod to be served.

    Each is chosen when it is asked for, as its gang's place shifts with those that went before.
    """
    by_queue = victim_queue_order(session.queues[session.gang_of[preemptor].queue])

    def key(task: Task) -> tuple[object, ...]:
        gang = session.gang_of[task]
        rank = (gang.priority, not gang.ready, -gang.share)
        return by_queue(session.queues[gang.queue]), rank, task.priority, -task.index, -task.order

    left = list(victims)
    while left:
        first = min(left, key=key)
        left.remove(first)
        yield first


def _branches(left: QueueShare, right: QueueShare) -> tuple[QueueShare, QueueShare]:
    """The two queues' ancestors, or themselves, just below their last common ancestor."""
    level = _common_level(left, right) + 1
    ours, theirs = left.lineage[::-1], right.lineage[::-1]
    return ours[min(level, len(ours) - 1)], theirs[min(level, len(theirs) - 1)]


def _common_level(left: QueueShare, right: QueueShare) -> int:
    """The depth of the last ancestor that both have, the root's being 0."""
    level = 0
    for depth, (ours, theirs) in enumerate(zip(left.lineage[:0:-1], right.lineage[:0:-1], strict=False)):
        if ours is not theirs:
            break
        level = depth
    return level


_queue_order = cmp_to_key(compare_queues)
