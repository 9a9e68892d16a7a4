# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's turns under the virtual clock, paced as those of `elastic.autoscaler.fleet`.

A queue in which something has changed has its turn at once; one that only shares nodes or a parent with a change has
one when it is hungry, at most once a second and all together at a steady rate; every queue has one now and then.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kfp_volcano.elastic.autoscaler.agenda import Agenda, Pace
from kfp_volcano.elastic.autoscaler.fleet import HUNGRY_AT_ONCE, HUNGRY_PER_S, HUNGRY_S, LOOK_S
from kfp_volcano.elastic.autoscaler.turns import Standpoint, is_hungry
from kfp_volcano.elastic.policies.memory import Breaker
from kfp_volcano.elastic.policies.outlook import Resting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.elastic.policies.memory import Memory, Mode
    from kfp_volcano.elastic.policies.outlook import Outlook
    from kfp_volcano.elastic.policies.policy import Decision, Policy
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.elastic.simulator.observer import Observer

__all__ = ["Autoscaler", "Deciding", "Sight"]


class Deciding(Protocol):
    """What decides for a queue: a policy within its guards, or one without."""

    @property
    def policy(self) -> Policy:
        """The policy itself."""

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """See `Policy`."""

    def remember(self, snapshot: QueueSnapshot, decisions: Sequence[Decision]) -> Memory:
        """What the next snapshot is to hold of this one."""

    def next_change(self, snapshot: QueueSnapshot) -> float | None:
        """When something changes by itself."""


class Sight(Protocol):
    """What the autoscaler asks the virtual cluster for."""

    def snapshot(self, queue: str, at: float) -> QueueSnapshot:
        """A queue as it is now, without a memory."""

    def outlook(self, queue: str, at: float, mode: Mode | None) -> Outlook | None:
        """The same in sums; None where it takes a look at single jobs."""


class Autoscaler:
    """Turns of the queues that have elastic jobs.

    Args:
        observer: Is told of changes.
        sight: The virtual cluster.
        policies: The policy of each queue.
        every_s: Only at multiples of so many seconds; None: as in production.
    """

    def __init__(
        self, observer: Observer, sight: Sight, policies: Mapping[str, Deciding], *, every_s: float | None = None
    ) -> None:
        self._observer = observer
        self._sight = sight
        self._policies = policies
        self._every_s = every_s
        self._looks = Agenda()
        self._pace = Pace(per_s=HUNGRY_PER_S, burst=HUNGRY_AT_ONCE)
        self._standpoints = {queue: Standpoint(queue) for queue in policies}
        for queue in policies:
            self._looks.put(queue, 0.0)

    def next_at(self) -> float:
        """When a turn is due; infinity: never."""
        at = self._looks.next_at()
        return math.inf if at is None else at

    def turns(self, now: float) -> Iterator[tuple[QueueSnapshot, Sequence[Decision]]]:
        """The turns that are due, one after another; what one decides is to be done before the next is asked for."""
        touched, freed = self._observer.changes()
        if freed:
            self._call_hungry(touched, now)
        for queue in sorted(touched & self._policies.keys()):
            self._looks.put(queue, self._paced(now))
        while (due := self._looks.due(now)) is not None:
            if not self._rests(due, now):
                yield self._take(due, now)

    def _call_hungry(self, touched: set[str], now: float) -> None:
        hungry = [
            each
            for queue, each in self._standpoints.items()
            if each.hungry and not each.called and queue not in touched
        ]
        for standpoint in sorted(hungry, key=lambda each: each.turned_at):
            standpoint.called = True
            at = max(self._pace.next(now), standpoint.turned_at + HUNGRY_S)
            self._looks.hasten(standpoint.queue, self._paced(at))

    def _rests(self, queue: str, now: float) -> bool:
        """Whether a queue's turn would come to nothing; its memory is then what it would be after that."""
        standpoint, policy = self._standpoints[queue], self._policies[queue]
        memory = standpoint.memory
        if memory.jobs or memory.breaker != Breaker() or not isinstance(policy.policy, Resting):
            return False
        outlook = self._sight.outlook(queue, now, memory.mode)
        rest = policy.policy.rest(outlook) if outlook is not None else None
        if outlook is None or rest is None:
            return False
        standpoint.called, standpoint.turned_at = False, now
        standpoint.memory = replace(memory, mode=rest.mode)
        standpoint.hungry = outlook.growing or outlook.waiting_gpus > 0
        if rest.until is None:
            self._looks.drop(queue)
        else:
            self._looks.put(queue, self._paced(rest.until))
        return True

    def _take(self, queue: str, now: float) -> tuple[QueueSnapshot, Sequence[Decision]]:
        standpoint, policy = self._standpoints[queue], self._policies[queue]
        standpoint.called = False
        snapshot = replace(self._sight.snapshot(queue, now), memory=standpoint.memory)
        decisions = policy.decide(snapshot)
        standpoint.memory = policy.remember(snapshot, decisions)
        standpoint.hungry = is_hungry(snapshot, decisions)
        standpoint.turned_at = now
        again = policy.next_change(snapshot)
        steadfast = isinstance(policy.policy, Resting) and policy.policy.steadfast
        look_at = math.inf if steadfast else now + LOOK_S
        at = look_at if again is None else min(look_at, again)
        if at < math.inf:
            self._looks.put(queue, self._paced(max(at, math.nextafter(now, math.inf))))
        else:
            self._looks.drop(queue)
        return snapshot, decisions

    def _paced(self, at: float) -> float:
        if self._every_s is None:
            return at
        return -(-at // self._every_s) * self._every_s
