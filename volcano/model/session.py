"""What one scheduling cycle works on: gangs, nodes and queues, as the objects say they are.

Sources: pkg/scheduler/api (JobInfo, NodeInfo) of Volcano 1.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.objects import (
    Key,
    Manifest,
    Objects,
    key_of,
    labels_of,
    phase_of,
    status_of,
    terminating,
)
from kfp_volcano.volcano.model.pods import GROUP, INDEX, task_of
from kfp_volcano.volcano.model.queues import QueueShare, queue_tree
from kfp_volcano.volcano.model.resources import Resources, add, minus, pod_request, resources

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Gang", "Node", "Session", "Task", "open_session"]

_POD = {"pods": 1000}
_QUOTA_PREFIXES = ("requests.", "limits.", "count/")


@dataclass(slots=True)
class Task:
    """One pod, as the scheduler sees it."""

    pod: Manifest
    name: str
    """The task of the Job that it belongs to."""
    request: Resources
    priority: int
    node: str
    """Empty while it has none."""
    phase: str
    releasing: bool
    message: str = ""
    """Why this cycle found no place for it."""

    @property
    def key(self) -> Key:
        """Where its pod is."""
        return key_of(self.pod)

    @property
    def index(self) -> int:
        """Its number within its task."""
        return int(self.pod["metadata"]["annotations"].get(INDEX, 0))

    @property
    def pending(self) -> bool:
        """Whether it waits for a node."""
        return not self.node and not self.releasing and self.phase == "Pending"

    @property
    def allocated(self) -> bool:
        """Whether it counts against its queue: on a node, not ended, not going."""
        return bool(self.node) and not self.releasing and self.phase in {"Pending", "Running"}

    @property
    def holds_node(self) -> bool:
        """Whether its node's resources are taken: also while it is going."""
        return bool(self.node) and self.phase in {"Pending", "Running"}


@dataclass(slots=True)
class Gang:
    """A PodGroup and its pods."""

    group: Manifest
    priority: int
    tasks: list[Task]
    order: int
    """Rank by age."""

    @property
    def queue(self) -> str:
        """The queue it is in."""
        return str(self.group["spec"]["queue"])

    @property
    def minimum(self) -> int:
        """Pods without which it does not run."""
        return int(self.group["spec"].get("minMember", 0))

    @property
    def min_resources(self) -> dict[str, int]:
        """What its minimum asks for."""
        stated = resources(self.group["spec"].get("minResources"))
        return {name: amount for name, amount in stated.items() if not name.startswith(_QUOTA_PREFIXES)}

    @property
    def allocated(self) -> dict[str, int]:
        """What its pods hold in its queue."""
        total: dict[str, int] = {}
        for task in self.tasks:
            if task.allocated:
                total = add(total, task.request)
        return total

    @property
    def allocated_count(self) -> int:
        """How many of its pods are on a node, and not going."""
        return sum(task.allocated for task in self.tasks)

    @property
    def ready_count(self) -> int:
        """Pods that have a node or have succeeded (ReadyTaskNum)."""
        return sum(task.allocated or task.phase == "Succeeded" for task in self.tasks)

    @property
    def ready(self) -> bool:
        """Whether the minimum is reached (IsReady)."""
        return self.ready_count >= self.minimum

    @property
    def committable(self) -> bool:
        """Whether it may start: the minimum of the whole, and of each task where those bind (CheckTaskReady)."""
        return self.ready and all(
            self._task_count(name, pending=False) >= least for name, least in self._task_minimums()
        )

    @property
    def shortage(self) -> str:
        """What keeps it from being a valid gang at all (validJobFn), or nothing."""
        if any(self._task_count(name, pending=True) < least for name, least in self._task_minimums()):
            return "Not enough valid pods of each task for gang-scheduling"
        valid = sum(task.pending or task.allocated or task.phase == "Succeeded" for task in self.tasks)
        if valid < self.minimum:
            return f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {self.minimum}"
        return ""

    def pending(self) -> list[Task]:
        """Its pods that wait for a node: by priority, then index, then task."""
        return sorted(
            (task for task in self.tasks if task.pending), key=lambda task: (-task.priority, task.index, task.name)
        )

    def _task_minimums(self) -> Iterator[tuple[str, int]]:
        minimums = self.group["spec"].get("minTaskMember") or {}
        return iter(minimums.items()) if self.minimum >= sum(minimums.values()) else iter(())

    def _task_count(self, name: str, *, pending: bool) -> int:
        return sum(
            task.name == name and (task.allocated or task.phase == "Succeeded" or (pending and task.pending))
            for task in self.tasks
        )


@dataclass(slots=True)
class Node:
    """A node and what is free on it."""

    manifest: Manifest
    idle: dict[str, int]

    @property
    def name(self) -> str:
        """The node's name."""
        return key_of(self.manifest)[1]

    def refusal(self, task: Task) -> str:
        """Why it cannot take a pod, or nothing."""
        if self.manifest.get("spec", {}).get("unschedulable"):
            return "node(s) were unschedulable"
        wanted = task.pod["spec"].get("nodeSelector") or {}
        if not wanted.items() <= dict(labels_of(self.manifest)).items():
            return "node(s) didn't match Pod's node affinity/selector"
        short = [name for name, amount in task.request.items() if amount > self.idle.get(name, 0)]
        return f"Insufficient {', '.join(short)}" if short else ""

    def take(self, task: Task, *, times: int = 1) -> None:
        """Give a pod's share to it, or take it back with `times=-1`."""
        self.idle = add(self.idle, task.request, times=-times)


@dataclass(slots=True)
class Session:
    """Everything a cycle reads, and what it has decided so far."""

    queues: dict[str, QueueShare]
    gangs: list[Gang]
    nodes: list[Node]
    total: dict[str, int]
    enqueued: set[Key] = field(default_factory=set)
    """PodGroups that this cycle let in."""

    def lineage(self, queue: str) -> Iterator[QueueShare]:
        """A queue and its ancestors."""
        name: str | None = queue
        while name is not None and name in self.queues:
            share = self.queues[name]
            yield share
            name = share.parent

    def allocate(self, gang: Gang, task: Task, node: Node) -> None:
        """Place a pod, for now in this session only."""
        node.take(task)
        task.node, task.message = node.name, ""
        for share in self.lineage(gang.queue):
            share.allocated = add(share.allocated, task.request)

    def release(self, gang: Gang, task: Task) -> None:
        """Undo `allocate`."""
        next(node for node in self.nodes if node.name == task.node).take(task, times=-1)
        task.node = ""
        for share in self.lineage(gang.queue):
            share.allocated = add(share.allocated, task.request, times=-1)


def open_session(objects: Objects) -> Session:
    """A session over the objects as they are now."""
    tasks = [_task(pod) for pod in objects.get("Pod", {}).values()]
    by_group: dict[Key, list[Task]] = {}
    for task in tasks:
        group = (task.pod["metadata"].get("annotations") or {}).get(GROUP)
        if group:
            by_group.setdefault((task.key[0], group), []).append(task)
    classes = objects.get("PriorityClass", {})
    gangs = []
    for order, (key, group) in enumerate(objects.get("PodGroup", {}).items()):
        known = classes.get(("", group["spec"].get("priorityClassName", "")))
        gangs.append(Gang(group, int(known["value"]) if known else 0, by_group.get(key, []), order))
    nodes, total = _nodes(objects, tasks)
    session = Session(queue_tree(objects), gangs, nodes, total)
    for gang in gangs:
        _account(session, gang)
    return session


def _task(pod: Manifest) -> Task:
    return Task(
        pod=pod,
        name=task_of(pod),
        request=add(pod_request(pod["spec"]), _POD),
        priority=pod["spec"].get("priority", 0),
        node=pod["spec"].get("nodeName", ""),
        phase=phase_of(pod),
        releasing=terminating(pod),
    )


def _nodes(objects: Objects, tasks: list[Task]) -> tuple[list[Node], dict[str, int]]:
    total: dict[str, int] = {}
    nodes = {}
    for (_, name), manifest in objects.get("Node", {}).items():
        room = resources(status_of(manifest).get("allocatable"))
        total = add(total, room)
        nodes[name] = Node(manifest, room)
    for task in tasks:
        if task.holds_node and task.node in nodes:
            nodes[task.node].take(task)
    return list(nodes.values()), total


def _account(session: Session, gang: Gang) -> None:
    """Book what a gang holds and is owed on its queue and that queue's ancestors."""
    allocated, minimum = gang.allocated, gang.min_resources
    phase = phase_of(gang.group)
    owed: dict[str, int] = {}
    if phase == "Inqueue" or (phase == "Running" and gang.allocated_count >= gang.minimum):
        owed = minus(minimum, allocated)
    for share in session.lineage(gang.queue):
        share.allocated = add(share.allocated, allocated)
        share.inqueue = add(share.inqueue, owed)
        share.elastic = add(share.elastic, minus(allocated, minimum))
