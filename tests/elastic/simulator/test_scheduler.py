# SPDX-License-Identifier: Apache-2.0
"""Laws of the scheduler that is kept from cycle to cycle."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.elastic.simulator.manifests import node_manifest, pod_spec, queue_manifest
from kfp_volcano.elastic.simulator.scenario import Job, Node, Queue
from kfp_volcano.elastic.simulator.scheduler import Scheduler
from kfp_volcano.elastic.simulator.traced import Traced
from kfp_volcano.schemas.names import CORE, ELASTIC, GPU
from kfp_volcano.volcano.model.objects import Delete, Update
from kfp_volcano.volcano.model.queues import root_queue
from kfp_volcano.volcano.model.scheduler import cycle
from kfp_volcano.volcano.model.tasks import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.elastic.simulator.scheduler import Member
    from kfp_volcano.volcano.model.tasks import Task

_NODES = (
    *(Node(name=f"node-{number}", gpus=4, gpu_class="small") for number in range(4)),
    *(Node(name=f"node-{number}", gpus=8, gpu_class="large") for number in range(4, 6)),
)
_TREES = (
    (Queue(name="a"),),
    (Queue(name="a", capability=20),),
    (Queue(name="a", deserved=16), Queue(name="b", deserved=16)),
    (
        Queue(name="team", capability=28),
        Queue(name="a", parent="team", deserved=12, guarantee=4),
        Queue(name="b", parent="team", deserved=12),
        Queue(name="c", deserved=4, priority=1),
    ),
)


class _History:
    """Random events, and the objects that would have come of them."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.queues = _TREES[seed % len(_TREES)]
        self.leaves = [queue.name for queue in self.queues if queue.name != "team"]
        self.scheduler = Scheduler(_NODES, self.queues)
        self.members: list[Member] = []
        self.leaving: list[tuple[Member, list[Task]]] = []
        self.down: list[str] = []
        self.number = 0

    def happen(self) -> None:
        """One thing."""
        draw, runs = self.draw, [each for each in self.members if each.kind is None]
        what = draw.random()
        if what < 0.45 or not runs:
            self._submit()
        elif what < 0.6:
            member = draw.choice(runs)
            self._forget(member)
            self.scheduler.end(member)
            self.members.remove(member)
        elif what < 0.75:
            member = draw.choice(runs)
            self.scheduler.grow(member, member.core + member.surplus + draw.randint(1, 4))
        elif what < 0.9:
            member = draw.choice(runs)
            left = member.core + draw.randint(0, member.surplus)
            self.leaving.append((member, self.scheduler.let_go(member, left)))
        elif self.leaving:
            self.scheduler.gone(*self.leaving.pop(0))
        elif self.down:
            self.scheduler.up(self.down.pop())
        else:
            self._break(draw.choice(_NODES).name)

    def _submit(self) -> None:
        self.number += 1
        job = Job(
            name=f"job-{self.number}",
            submitted_at=0.0,
            work=Traced(duration_s=1.0, gpus=1),
            workers=1,
            min_workers=1,
            max_workers=1,
            gpus_per_worker=self.draw.choice([1, 1, 2, 4]),
            queue=self.draw.choice(self.leaves),
            priority=self.draw.choice([0, 0, 5]),
            gpu_classes=self.draw.choice([(), (), ("small",), ("large", "small")]),
        )
        self.members.append(self.scheduler.submit(job, self.draw.choice([1, 1, 2, 3, 6]), self.number))

    def _break(self, node: str) -> None:
        for member in [each for each in self.members if node in each.nodes]:
            self._forget(member)
            self.scheduler.end(member)
            self.members.remove(member)
        for member, tasks in self.leaving:
            self.scheduler.gone(member, [task for task in tasks if task.node == node])
        self.leaving = [(member, [task for task in tasks if task.node != node]) for member, tasks in self.leaving]
        self.scheduler.down(node)
        self.down.append(node)

    def _forget(self, gone: Member) -> None:
        for member, tasks in self.leaving:
            if member is gone:
                self.scheduler.gone(member, tasks)
        self.leaving = [each for each in self.leaving if each[0] is not gone]

    def objects(self) -> dict[str, dict[tuple[str, str], Any]]:
        """The same cluster as objects."""
        nodes = [node_manifest(node) for node in _NODES if node.name not in self.down]
        queues = [root_queue(), *map(queue_manifest, self.queues)]
        for queue in queues:
            queue["status"] = {"state": "Open"}
        pods: list[tuple[int, dict[str, Any]]] = []
        groups = []
        for member in sorted(self.members, key=lambda each: each.gang.order):
            groups.append(_group(member))
            going = [task for each, tasks in self.leaving if each is member for task in tasks]
            pods += [(task.order, _pod(member, task)) for task in (*member.gang.tasks, *going)]
        pods.sort(key=lambda each: each[0])
        priorities = [{"metadata": {"name": f"p{value}"}, "value": value} for value in (0, 5)]
        return {
            "Node": {("", node["metadata"]["name"]): node for node in nodes},
            "Queue": {("", queue["metadata"]["name"]): queue for queue in queues},
            "PodGroup": {("ml", group["metadata"]["name"]): group for group in groups},
            "Pod": {("ml", pod["metadata"]["name"]): pod for _, pod in pods},
            "PriorityClass": {("", each["metadata"]["name"]): each for each in priorities},
        }

    def placed(self) -> dict[str, str]:
        """The node of each pod that has one."""
        return {
            _name(member, task): task.node
            for member in self.members
            for task in member.gang.tasks
            if task.status is Status.RUNNING
        }


def _name(member: Member, task: Task) -> str:
    return f"{member.job.name}-{task.role}-{task.order}"


def _group(member: Member) -> dict[str, Any]:
    gang = member.gang
    return {
        "metadata": {"name": member.job.name, "namespace": "ml"},
        "spec": {
            "queue": gang.queue,
            "minMember": gang.minimum,
            "minTaskMember": {CORE: gang.minimum, ELASTIC: 0},
            "minResources": {
                GPU: str(gang.minimum * member.job.gpus_per_worker),
                "pods": str(gang.minimum),
            },
            "priorityClassName": f"p{gang.priority}",
        },
        "status": dict(gang.group["status"]),
    }


def _pod(member: Member, task: Task) -> dict[str, Any]:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if task.status is Status.RELEASING else {}
    return {
        "metadata": {
            "name": _name(member, task),
            "namespace": "ml",
            "annotations": {
                "scheduling.k8s.io/group-name": member.job.name,
                "volcano.sh/task-index": str(task.index),
                "volcano.sh/task-spec": task.role,
            },
            "labels": {"volcano.sh/task-spec": task.role},
            **going,
        },
        "spec": {
            **pod_spec(member.job),
            "priority": task.priority,
            **({"nodeName": task.node} if task.node else {}),
        },
        "status": {"phase": "Running" if task.node else "Pending"},
    }


def _expected(objects: dict[str, dict[tuple[str, str], Any]]) -> tuple[dict[str, str], set[str]]:
    """Where the model's own cycle over objects has pods, and whom it takes."""
    changes = cycle(objects, 0.0)
    nodes = {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in objects["Pod"].values()
        if "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]
    }
    for change in changes:
        if isinstance(change, Update) and "nodeName" in change.manifest["spec"]:
            nodes[change.manifest["metadata"]["name"]] = change.manifest["spec"]["nodeName"]
    taken = {change.key[1] for change in changes if isinstance(change, Delete)}
    return {name: node for name, node in nodes.items() if name not in taken}, taken


@pytest.mark.parametrize("seed", range(8))
def test_it_places_and_takes_whom_a_cycle_over_the_objects_does(seed: int) -> None:
    """After each of many random events: the same pods on the same nodes, and the same pods taken from others."""
    history = _History(seed)
    for _ in range(40):
        for _ in range(history.draw.randint(1, 3)):
            history.happen()
        expected, taken = _expected(history.objects())
        before = history.placed()
        history.scheduler.cycle()
        assert history.placed() == expected
        assert before.keys() - history.placed().keys() == taken


@pytest.mark.parametrize("seed", range(8))
def test_no_node_gives_more_gpus_than_it_has(seed: int) -> None:
    """Whoever holds them, those that are let go still count."""
    history = _History(seed)
    for _ in range(80):
        history.happen()
        history.scheduler.cycle()
        held = _held(history.members, [task for _, tasks in history.leaving for task in tasks])
        assert all(held.get(node.name, 0) <= node.gpus for node in _NODES)


def _held(members: Iterable[Member], leaving: Iterable[Task]) -> dict[str, int]:
    found: dict[str, int] = {}
    tasks = [task for member in members for task in member.gang.tasks if task.status is Status.RUNNING]
    for task in (*tasks, *leaving):
        found[task.node] = found.get(task.node, 0) + task.request[GPU] // 1000
    return found
