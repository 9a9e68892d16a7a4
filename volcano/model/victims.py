# SPDX-License-Identifier: Apache-2.0
"""Who may be taken: what the plugins say of candidates, and how their answers combine.

Sources: Reclaimable, Preemptable, UnifiedEvictable (pkg/scheduler/framework/session_plugins.go), ValidateVictims
(pkg/scheduler/util/scheduler_helper.go) and the plugins gang, priority, conformance, drf, capacity, Volcano 1.15.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from kfp_volcano.volcano.model.order import victims_in_order
from kfp_volcano.volcano.model.resources import POD, Resources, add, lacking
from kfp_volcano.volcano.model.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.nodes import Node
    from kfp_volcano.volcano.model.queues import QueueShare
    from kfp_volcano.volcano.model.session import Session

__all__ = ["evictable_by_gang", "preemptable", "reclaimable", "suffice"]

_CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
_SYSTEM = "kube-system"
_SAME = 0.000001
"""Shares of less difference are equal (shareDelta)."""

_Opinion: TypeAlias = Callable[[list[Task]], list[Task]]


def reclaimable(session: Session, task: Task, candidates: list[Task]) -> list[Task]:
    """Which pods of other queues may go for a pod."""
    opinions: dict[str, _Opinion] = {
        "gang": lambda each: _above_minimum(session, each),
        "conformance": _not_critical,
        "capacity": lambda each: _above_deserved(session, victims_in_order(session, each, task), task),
    }
    return _agreed(session, "enableReclaimable", opinions, candidates)


def preemptable(session: Session, task: Task, candidates: list[Task]) -> list[Task]:
    """Which pods of the same queue may go for a pod."""
    opinions: dict[str, _Opinion] = {
        "priority": lambda each: _of_lower_priority(session, each, task),
        "gang": lambda each: _above_minimum(session, each),
        "conformance": _not_critical,
        "drf": lambda each: _with_larger_share(session, each, task),
    }
    return _agreed(session, "enablePreemptable", opinions, candidates)


def evictable_by_gang(session: Session, gang: Gang, candidates: list[Task], *, preempt: bool) -> list[Task]:
    """Which pods may go for a whole gang: of the same queue (`preempt`), or of other queues."""

    def priority(each: list[Task]) -> list[Task]:
        return [task for task in each if not preempt or session.gang_of[task].priority < gang.priority]

    opinions: dict[str, _Opinion] = {
        "priority": priority,
        "gang": list,
        "conformance": _not_critical,
        "capacity": list if preempt else lambda each: _above_deserved(session, each, None),
    }
    return _agreed(session, "", opinions, candidates)


def suffice(task: Task, node: Node, victims: Iterable[Task]) -> bool:
    """Whether a pod would fit a node without these."""
    room = node.future_idle()
    for victim in victims:
        room = add(room, victim.request)
    return not lacking(task.request, room)


def _agreed(session: Session, switch: str, opinions: Mapping[str, _Opinion], candidates: list[Task]) -> list[Task]:
    """What all plugins of a tier let go; the first tier with an answer decides, the others are not asked.

    A plugin that lets nobody go ends its tier without an answer. So does one that agrees with those before it on
    nobody, but then a later one of the tier starts afresh.
    """
    for tier in session.configuration.tiers_of(switch):
        agreed: list[Task] | None = None
        for name in tier:
            if name not in opinions:
                continue
            victims = opinions[name](candidates)
            if not victims:
                agreed = None
                break
            if agreed is None:
                agreed = victims
            else:
                allowed = set(victims)
                agreed = [task for task in agreed if task in allowed] or None
        if agreed:
            return agreed
    return []


def _above_minimum(session: Session, candidates: list[Task]) -> list[Task]:
    """gang: as many of each gang as it has above its minimum, whichever come first."""
    left: dict[Gang, int] = {}
    victims = []
    for task in candidates:
        gang = session.gang_of[task]
        left.setdefault(gang, gang.ready_count - gang.minimum)
        if left[gang] > 0:
            left[gang] -= 1
            victims.append(task)
    return victims


def _not_critical(candidates: list[Task]) -> list[Task]:
    """conformance: never the cluster's own pods."""
    return [
        task
        for task in candidates
        if task.key[0] != _SYSTEM and task.pod["spec"].get("priorityClassName") not in _CRITICAL
    ]


def _of_lower_priority(session: Session, candidates: list[Task], preemptor: Task) -> list[Task]:
    """priority: gangs of lower priority; within a gang, pods of lower priority."""
    gang = session.gang_of[preemptor]
    return [
        task
        for task in candidates
        if (
            task.priority < preemptor.priority
            if session.gang_of[task] is gang
            else session.gang_of[task].priority < gang.priority
        )
    ]


def _with_larger_share(session: Session, candidates: list[Task], preemptor: Task) -> list[Task]:
    """drf: pods of gangs that would have no smaller a part of the cluster without them than the preemptor's with it."""
    ours = _share(session, add(session.gang_of[preemptor].held, preemptor.request))
    held: dict[Gang, dict[str, int]] = {}
    victims = []
    for task in candidates:
        gang = session.gang_of[task]
        held[gang] = add(held.get(gang, gang.held), task.request, times=-1)
        theirs = _share(session, held[gang])
        if ours < theirs or abs(ours - theirs) <= _SAME:
            victims.append(task)
    return victims


def _share(session: Session, held: Resources) -> float:
    return max((amount / session.total[name] for name, amount in held.items() if session.total.get(name)), default=0.0)


def _above_deserved(session: Session, candidates: Iterable[Task], preemptor: Task | None) -> list[Task]:
    """capacity: pods of queues that have more than they deserve, down to what is guaranteed to them."""
    allocated: dict[str, dict[str, int]] = {}
    victims = []
    for task in candidates:
        if preemptor is not None and not _asked(task.request).keys() & _asked(preemptor.request).keys():
            continue
        queue = session.queues[session.gang_of[task].queue]
        used = allocated.setdefault(queue.name, queue.allocated)
        without = add(used, task.request, times=-1)
        if lacking(queue.guarantee, without) or not _exceeds_deserved(queue, used, task):
            continue
        allocated[queue.name] = without
        victims.append(task)
    return victims


def _exceeds_deserved(queue: QueueShare, used: Resources, task: Task) -> bool:
    """Whether a queue has more than it deserves of something the pod asks for, or deserves nothing of that kind."""
    asked = {name: amount for name, amount in task.request.items() if amount}
    if not any(queue.deserved.get(name) for name in asked):
        return True
    return any(
        used.get(name, 0) > queue.deserved[name]
        for name in asked
        if name != POD and name in queue.deserved and (queue.deserved[name] or name not in {"cpu", "memory"})
    )


def _asked(request: Resources) -> dict[str, int]:
    return {name: amount for name, amount in request.items() if amount and name != POD}
