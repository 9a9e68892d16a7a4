# SPDX-License-Identifier: Apache-2.0
"""What one scheduling cycle works on: gangs, nodes and queues, as the objects say they are.

Sources: openSession (pkg/scheduler/framework/session.go), buildHierarchicalQueueAttrs
(pkg/scheduler/plugins/capacity/capacity.go), GetInqueueResource (pkg/scheduler/plugins/util/util.go) and the shares of
pkg/scheduler/plugins/drf, Volcano 1.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.gangs import Gang, gang_for
from kfp_volcano.volcano.model.nodes import Node, is_ready
from kfp_volcano.volcano.model.objects import Key, Objects, phase_of
from kfp_volcano.volcano.model.priorities import priority_value
from kfp_volcano.volcano.model.queues import QueueShare, queue_tree
from kfp_volcano.volcano.model.resources import POD, Resources, add, minus
from kfp_volcano.volcano.model.tasks import Status, Task, group_of, task_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kfp_volcano.volcano.model.alike import Alike
    from kfp_volcano.volcano.model.configuration import Configuration

__all__ = ["Session", "dominant", "open_session"]

_ALWAYS_THERE = frozenset({"cpu", "memory", POD})
_HOLDING = frozenset({Status.BOUND, Status.RUNNING, Status.RELEASING, Status.UNKNOWN})


@dataclass(slots=True)
class Session:
    """Everything a cycle reads, and what it has decided so far."""

    configuration: Configuration
    queues: dict[str, QueueShare]
    gangs: list[Gang]
    nodes: dict[str, Node]
    total: dict[str, int]
    enqueued: set[Gang] = field(default_factory=set)
    """Gangs that this cycle let in."""
    refused: dict[Gang, str] = field(default_factory=dict)
    """Why it did not let the others in."""
    gang_of: dict[Task, Gang] = field(default_factory=dict)
    alike: Alike | None = None
    """Which nodes stand for each other; None where each is looked at."""

    def spots(self) -> Iterable[tuple[Node, int]]:
        """Nodes to look at for a pod, in their order where that is all that tells two apart, and how many are the same.

        Of nodes in one state the first stands for the others: it is the one that would be taken.
        """
        if self.alike is not None:
            return self.alike.firsts()
        return ((node, 1) for node in self.nodes.values())

    @property
    def sound(self) -> bool:
        """Whether the tree of queues is one: nothing at all is scheduled while a queue with children has gangs."""
        return all(not self.queues[gang.queue].children for gang in self.gangs)

    def active(self) -> Iterator[Gang]:
        """Gangs that have been let in and have the pods they need."""
        if self.sound:
            for gang in self.gangs:
                if (phase_of(gang.group) not in {"", "Pending"} or gang in self.enqueued) and not gang.shortage:
                    yield gang

    def refusal(self, queue: QueueShare, request: Resources) -> str:
        """Why a queue cannot take a pod, or nothing (Allocatable)."""
        if not queue.open:
            return f"queue {queue.name} is not open"
        for share in queue.lineage:
            over = share.exceeds(request)
            if over:
                return f"queue {share.name} may not use more {', '.join(over)}"
        unknown = self.unknown(request)
        return f"no node has {', '.join(unknown)}" if unknown else ""

    def unknown(self, request: Resources) -> list[str]:
        """Resources that no node has: the root queue may use none of them."""
        return [name for name, amount in request.items() if amount and name not in self.total.keys() | _ALWAYS_THERE]

    def charge(self, task: Task, *, times: int = 1) -> None:
        """Account for a pod in its gang and its queue, or with `times=-1` take it off."""
        gang = self.gang_of[task]
        gang.held = add(gang.held, task.request, times=times)
        gang.share = dominant(gang.held, self.total)
        self.queues[gang.queue].charge(task.request, times=times)


def open_session(objects: Objects, configuration: Configuration) -> Session:
    """A session over the objects as they are now."""
    queues = queue_tree(objects)
    nodes = {name: Node.of(manifest) for (_, name), manifest in objects.get("Node", {}).items() if is_ready(manifest)}
    total: dict[str, int] = {}
    for node in nodes.values():
        total = add(total, node.allocatable)
    gangs = {key: gang for key, gang in _gangs(objects) if gang.queue in queues}
    session = Session(configuration, queues, list(gangs.values()), nodes, total)
    for order, pod in enumerate(objects.get("Pod", {}).values()):
        task = task_for(pod, order)
        if task.status in _HOLDING and task.node in nodes:
            nodes[task.node].place(task)
        group = group_of(pod)
        gang = gangs.get(group) if group else None
        if gang is not None:
            gang.join(task)
            session.gang_of[task] = gang
    for gang in session.gangs:
        _account(session, gang)
    for queue in session.queues.values():
        queue.update_share()
    return session


def _gangs(objects: Objects) -> Iterable[tuple[Key, Gang]]:
    for order, (key, group) in enumerate(objects.get("PodGroup", {}).items()):
        priority = priority_value(objects, group["spec"].get("priorityClassName", ""))
        yield key, gang_for(group, priority, order)


def _account(session: Session, gang: Gang) -> None:
    """Book what a gang holds and is owed on its queue and that queue's ancestors."""
    allocated: dict[str, int] = {}
    for task in gang.tasks:
        if task.status.allocated:
            allocated = add(allocated, task.request)
    gang.held, gang.share = allocated, dominant(allocated, session.total)
    queue, phase = session.queues[gang.queue], phase_of(gang.group)
    complete = gang.count(Status.BOUND, Status.RUNNING) >= gang.minimum
    owed = minus(gang.min_resources, allocated) if phase == "Inqueue" or (phase == "Running" and complete) else {}
    for share in queue.lineage:
        share.inqueue = add(share.inqueue, owed)
        share.elastic = add(share.elastic, minus(allocated, gang.min_resources))
    queue.charge(allocated)


def dominant(held: Resources, total: Resources) -> float:
    """The largest part of a total in any resource."""
    return max((amount / total[name] for name, amount in held.items() if total.get(name)), default=0.0)
