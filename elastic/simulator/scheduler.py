# SPDX-License-Identifier: Apache-2.0
"""Volcano's scheduler over the virtual cluster: the model's own actions, on values that live from cycle to cycle.

`volcano.model.scheduler.cycle` reads all objects anew each time; here gangs, pods, nodes and queues are kept, and a
cycle is shown only gangs that it could do something for. What it decides is the same: a gang that what is free, or
coming free, cannot hold as a cycle begins gets nothing in it, and of equal gangs in a queue the elder is served first.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.simulator.manifests import node_manifest, pod_spec, queue_manifest
from kfp_volcano.schemas.names import CORE, ELASTIC, GPU
from kfp_volcano.volcano.model.alike import Alike
from kfp_volcano.volcano.model.allocate import allocate
from kfp_volcano.volcano.model.configuration import CLASSIC
from kfp_volcano.volcano.model.enqueue import enqueue
from kfp_volcano.volcano.model.gangs import Gang
from kfp_volcano.volcano.model.nodes import Node
from kfp_volcano.volcano.model.preempt import preempt
from kfp_volcano.volcano.model.queues import queue_tree, root_queue
from kfp_volcano.volcano.model.reclaim import reclaim
from kfp_volcano.volcano.model.resources import POD, add, minus, put
from kfp_volcano.volcano.model.session import Session, dominant
from kfp_volcano.volcano.model.tasks import Status, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kfp_volcano.elastic.simulator import scenario
    from kfp_volcano.volcano.model.objects import Manifest

__all__ = ["Cycle", "Member", "Scheduler"]

_MILLI = 1000


class _Kind(NamedTuple):
    """Waiting gangs that need the same."""

    queue: str
    priority: int
    classes: tuple[str, ...]
    gpus: int
    pods: int
    let_in: bool


@dataclass(slots=True, eq=False)
class Member:
    """A job's gang as the scheduler has it."""

    job: scenario.Job
    gang: Gang
    spec: Manifest
    core: int
    surplus: int = 0
    """Workers above the core that are asked for, with a node or without."""
    kind: _Kind | None = None
    """While it waits."""
    owed: dict[str, int] = field(default_factory=dict)
    elastic: dict[str, int] = field(default_factory=dict)
    """What is booked of it in its queues beside what it holds."""

    @property
    def nodes(self) -> list[str]:
        """The node of each worker, empty for one that has none: the core first."""
        return [task.node if task.status is Status.RUNNING else "" for task in self.gang.tasks]

    @property
    def complete(self) -> bool:
        """Whether all workers that are asked for have nodes."""
        return self.gang.count(Status.RUNNING) >= self.core + self.surplus


class Cycle(NamedTuple):
    """What a cycle did."""

    placed: list[Member]
    """Whose workers got nodes."""
    robbed: list[Member]
    """Whose workers were taken by reclaim or preemption."""


class Scheduler:
    """Gangs on nodes.

    Args:
        nodes: In their order.
        queues: Of the scenario; the root's is there beside them.
        by_priority: Whether jobs have the priorities of the scenario; else all have the same.
    """

    def __init__(
        self, nodes: Sequence[scenario.Node], queues: Iterable[scenario.Queue], *, by_priority: bool = True
    ) -> None:
        manifests = [root_queue(), *map(queue_manifest, queues)]
        tree = queue_tree({"Queue": {("", each["metadata"]["name"]): each for each in manifests}})
        self._order = {node.name: number for number, node in enumerate(nodes)}
        self._stated = {node.name: node for node in nodes}
        self._by_priority = by_priority
        self._session = Session(CLASSIC, tree, [], {}, {})
        self._members: dict[str, Member] = {}
        self._by_gang: dict[Gang, Member] = {}
        self._waiting: dict[_Kind, list[tuple[int, Member]]] = {}
        """By what they need, the eldest first."""
        self._lacking: dict[Member, None] = {}
        """Running jobs some of whose workers wait for nodes."""
        self._running: dict[str, dict[int, int]] = {name: {} for name in tree}
        """How many running gangs there are of each priority, by queue."""
        self._tasks = 0
        for share in tree.values():
            share.update_share()
        self._renew([node.name for node in nodes])

    @property
    def lacking(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting or self._lacking)

    def submit(self, job: scenario.Job, workers: int, order: int) -> Member:
        """A job comes, and waits for so many workers together."""
        request = {GPU: job.gpus_per_worker * _MILLI, POD: _MILLI}
        spec = pod_spec(job)
        gang = Gang(
            group={"metadata": {"name": job.name, "namespace": ""}, "spec": {}, "status": {"phase": "Pending"}},
            queue=job.queue,
            priority=job.priority if self._by_priority else 0,
            order=order,
            minimum=workers,
            role_minimums={CORE: workers, ELASTIC: 0},
            min_resources={name: amount * workers for name, amount in request.items()},
        )
        member = Member(job, gang, {"metadata": {"name": job.name, "namespace": ""}, "spec": spec}, workers)
        self._members[job.name], self._by_gang[gang] = member, member
        for index in range(workers):
            self._join(member, CORE, index)
        self._queue_up(member)
        return member

    def begin(self, member: Member, nodes: Sequence[str]) -> None:
        """A job that waits is on these nodes, whoever put it there: as the simulation begins."""
        self._leave_line(member)
        self.grow(member, len(nodes))
        for task, node in zip(member.gang.tasks, nodes, strict=True):
            member.gang.set_status(task, Status.RUNNING)
            task.node = node
            self._session.nodes[node].place(task)
            self._session.charge(task)
        self._lacking.pop(member, None)
        self._has_started(member)

    def grow(self, member: Member, workers: int) -> None:
        """A running job asks for so many workers, more than it has."""
        for index in range(member.surplus, workers - member.core):
            self._join(member, ELASTIC, index)
        member.surplus = workers - member.core
        self._lacking[member] = None

    def let_go(self, member: Member, workers: int) -> list[Task]:
        """A running job asks for so many workers, fewer than it has; those that have nodes hold them until `gone`."""
        leaving = []
        for task in member.gang.tasks[workers:]:
            if task.status is Status.RUNNING:
                leaving.append(task)
                member.gang.set_status(task, Status.RELEASING)
                self._session.charge(task, times=-1)
                self._session.nodes[task.node].place(task)
        staying = member.gang.tasks[:workers]
        for task in member.gang.tasks[workers:]:
            if task.status is Status.PENDING:
                self._drop(member, task)
        member.gang.tasks = staying
        member.surplus = workers - member.core
        if member.complete:
            self._lacking.pop(member, None)
        self._book(member)
        return leaving

    def gone(self, member: Member, leaving: Iterable[Task]) -> None:
        """Workers that were let go are gone."""
        for task in leaving:
            node = self._session.nodes.get(task.node)
            if node is not None:
                node.remove(task)
            self._drop(member, task)

    def end(self, member: Member) -> None:
        """A job is over, or its gang is broken: nothing of it is left."""
        gang, session = member.gang, self._session
        if member.kind is not None:
            self._leave_line(member)
        else:
            counts = self._running[gang.queue]
            counts[gang.priority] -= 1
            if not counts[gang.priority]:
                del counts[gang.priority]
        for task in gang.tasks:
            if task.status is Status.RUNNING:
                session.charge(task, times=-1)
                session.nodes[task.node].remove(task)
            session.gang_of.pop(task, None)
        gang.tasks.clear()
        self._lacking.pop(member, None)
        self._unbook(member)
        del self._members[member.job.name], self._by_gang[gang]

    def down(self, name: str) -> None:
        """A node goes; nothing may be on it any more."""
        self._renew([each for each in self._session.nodes if each != name])

    def up(self, name: str) -> None:
        """A node comes back, empty."""
        self._renew(sorted([*self._session.nodes, name], key=self._order.__getitem__))

    def cycle(self) -> Cycle:
        """One cycle of the scheduler."""
        session = self._session
        members = list(self._candidates())
        if not members:
            return Cycle([], [])
        members.sort(key=lambda member: member.gang.order)
        session.gangs = [member.gang for member in members]
        for share in session.queues.values():
            share.update_share()
        taking = any(map(self._could_take, members))
        if taking:
            for node in session.nodes.values():
                node.tasks = dict(sorted(node.tasks.items(), key=lambda each: each[0].order))
        enqueue(session)
        allocate(session)
        if taking and any(member.gang.starving for member in members):
            reclaim(session)
            preempt(session)
        return self._close(members)

    def _candidates(self) -> Iterator[Member]:
        """Whom a cycle could do something for."""
        yield from self._lacking
        rooms: dict[tuple[tuple[str, ...], int], int] = {}
        for kind, line in self._waiting.items():
            first = line[0][1]
            if not kind.let_in and self._refuses(first):
                continue
            key = kind.classes, kind.gpus
            if key not in rooms:
                rooms[key] = self._room(*key)
            fitting = len(line) if self._could_take(first) else rooms[key] // kind.pods
            for number, (_, member) in enumerate(line):
                if kind.let_in and number >= fitting:
                    break
                yield member

    def _refuses(self, member: Member) -> bool:
        """Whether its queue would not let it in: within a cycle, a queue only fills up."""
        gang = member.gang
        return any(share.exceeds_enqueued(gang.min_resources) for share in self._session.queues[gang.queue].lineage)

    def _room(self, classes: tuple[str, ...], gpus: int) -> int:
        """How many pods there are, or will be, GPUs for."""
        if not gpus:
            return _ANY
        found = 0
        for node, count in self._session.spots():
            if not classes or self._stated[node.name].gpu_class in classes:
                found += max(0, node.future_idle().get(GPU, 0)) // (gpus * _MILLI) * count
        return found

    def _could_take(self, member: Member) -> bool:
        """Whether there may be somebody whom a waiting gang may take from.

        In its own queue those of lower priority; in others anybody, if its own deserves anything: how much more it
        deserves may change within a cycle.
        """
        gang = member.gang
        if any(priority < gang.priority for priority in self._running[gang.queue]):
            return True
        others = any(
            counts and name != gang.queue and self._session.queues[name].reclaimable
            for name, counts in self._running.items()
        )
        return others and self._session.queues[gang.queue].has_deserved

    def _close(self, members: Iterable[Member]) -> Cycle:
        """Take over what has been decided, and undo what was only promised."""
        session, done = self._session, Cycle([], [])
        for gang in session.enqueued:  # `_book` counts what they are owed from now on
            for share in session.queues[gang.queue].lineage:
                put(share.inqueue, gang.min_resources, -1)
        for member in members:
            if self._close_gang(member):
                done.placed.append(member)
        for member in self._members.values() if self._taken else ():
            self._give_back(member, done)
        session.enqueued.clear()
        session.refused.clear()
        session.gangs = []
        return done

    def _close_gang(self, member: Member) -> bool:
        """The same for one gang; whether workers of it got nodes."""
        session, gang, placed = self._session, member.gang, False
        for task in gang.tasks:
            if task.status is Status.BINDING:
                gang.set_status(task, Status.RUNNING)
                placed = True
            elif task.status in _PROMISED:
                session.nodes[task.node].remove(task)
                session.charge(task, times=-1)
                gang.set_status(task, Status.PENDING)
                task.node, task.evicting = "", False
        gang.misfits.clear()
        if member.kind is not None and placed:
            self._leave_line(member)
            self._has_started(member)
        elif member.kind is not None and gang in session.enqueued:
            self._leave_line(member)
            gang.group["status"]["phase"] = "Inqueue"
            self._queue_up(member)
        if member.complete:
            self._lacking.pop(member, None)
        self._book(member)
        return placed

    @property
    def _taken(self) -> bool:
        """Whether this cycle took workers from anybody."""
        return any(node.has_evicted for node in self._session.nodes.values())

    def _give_back(self, member: Member, done: Cycle) -> None:
        """Workers that were taken are gone at once, and wait for nodes anew."""
        taken = [task for task in member.gang.tasks if task.status is Status.RELEASING]
        for task in taken:
            self._session.nodes[task.node].remove(task)
            member.gang.set_status(task, Status.PENDING)
            task.node = ""
        if taken:
            done.robbed.append(member)
            self._lacking[member] = None
            self._book(member)

    def _join(self, member: Member, role: str, index: int) -> None:
        self._tasks += 1
        task = Task(
            pod=member.spec,
            role=role,
            index=index,
            order=self._tasks,
            request={GPU: member.job.gpus_per_worker * _MILLI, POD: _MILLI},
            priority=member.gang.priority,
            status=Status.PENDING,
            node="",
            preemptable=True,
            best_effort=False,
        )
        member.gang.join(task)
        self._session.gang_of[task] = member.gang

    def _drop(self, member: Member, task: Task) -> None:
        member.gang.leave(task)
        self._session.gang_of.pop(task, None)

    def _queue_up(self, member: Member) -> None:
        gang, job = member.gang, member.job
        kind = _Kind(
            queue=gang.queue,
            priority=gang.priority,
            classes=job.gpu_classes,
            gpus=job.gpus_per_worker,
            pods=gang.minimum,
            let_in=gang.group["status"]["phase"] != "Pending",
        )
        member.kind = kind
        insort(self._waiting.setdefault(kind, []), (gang.order, member), key=lambda each: each[0])
        self._book(member)

    def _leave_line(self, member: Member) -> None:
        assert member.kind is not None  # noqa: S101 - it waits
        line = self._waiting[member.kind]
        line.remove((member.gang.order, member))
        if not line:
            del self._waiting[member.kind]
        member.kind = None

    def _has_started(self, member: Member) -> None:
        gang = member.gang
        gang.group["status"]["phase"] = "Running"
        counts = self._running[gang.queue]
        counts[gang.priority] = counts.get(gang.priority, 0) + 1
        self._book(member)

    def _book(self, member: Member) -> None:
        """What it is owed, and has above its minimum, in its queues; see `open_session`."""
        gang = member.gang
        self._unbook(member)
        if gang.group["status"]["phase"] == "Inqueue":
            member.owed = minus(gang.min_resources, gang.held)
        member.elastic = minus(gang.held, gang.min_resources)
        self._charge(member, 1)

    def _unbook(self, member: Member) -> None:
        self._charge(member, -1)
        member.owed, member.elastic = {}, {}

    def _charge(self, member: Member, times: int) -> None:
        for share in self._session.queues[member.gang.queue].lineage:
            put(share.inqueue, member.owed, times)
            put(share.elastic, member.elastic, times)

    def _renew(self, names: Iterable[str]) -> None:
        """These are the nodes."""
        session = self._session
        session.nodes = {
            name: session.nodes[name] if name in session.nodes else Node.of(node_manifest(self._stated[name]))
            for name in names
        }
        session.alike = Alike({node: self._stated[name].gpu_class for name, node in session.nodes.items()})
        total: dict[str, int] = {}
        for node in session.nodes.values():
            total = add(total, node.allocatable)
        session.total = total
        for gang in self._by_gang:
            gang.share = dominant(gang.held, total)


_ANY = 1_000_000
"""Pods without GPUs fit anywhere."""
_PROMISED = frozenset({Status.ALLOCATED, Status.PIPELINED})
