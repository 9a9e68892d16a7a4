# SPDX-License-Identifier: Apache-2.0
"""A queue that lives: Jobs, gangs, nodes and time, and what a policy's decisions do to them; every turn is checked.

Places pods as Volcano would: gangs whole or not at all, by priority and waiting, then surplus; within the limit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from kfp_volcano.elastic.policies.gangs import serve
from kfp_volcano.elastic.policies.memory import Memory
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.room import Room, Spot
from kfp_volcano.elastic.policies.snapshot import (
    NOWHERE,
    UNUSABLE,
    ElasticJob,
    NodeState,
    PendingGang,
    QueueSnapshot,
    Resized,
)
from kfp_volcano.schemas.records import Hold

__all__ = ["World"]


_STILL, _LONG_S = 8, 4000.0
"""Turns in which nothing is to change: at each next change that is announced, and then long after any window."""


@dataclass
class _Gang:
    """One that waits, or runs for ever."""

    pods: tuple[int, ...]
    since: float
    priority: int
    queue: str = ""
    nodes: list[str] = field(default_factory=list)


class World:
    """One queue with a policy that leads it."""

    def __init__(self, policy, sizes, *, limit, deserved):
        self.policy = policy
        self.at = 10_000.0
        self.capacity = {f"node-{at}": gpus for at, gpus in enumerate(sizes)}
        self.cordoned = set()
        self.limit = limit
        self.deserved = deserved
        self.jobs = {}
        self.gangs = {}
        self.memory = Memory()

    # What happens.

    def submit(self, key, *, least, sizes, first, gpus, priority):
        """A Job that runs with the size of this index, or the largest below it that has room now."""
        for size in reversed(sizes[: first + 1]):
            nodes = self._place([gpus] * size)
            if nodes is not None:
                self.jobs[key] = ElasticJob(
                    key=key,
                    workers=size,
                    running=size,
                    min_workers=least,
                    max_workers=max(sizes),
                    sizes=sizes,
                    gpus_per_worker=gpus,
                    nodes=tuple(nodes),
                    priority=priority,
                )
                return

    def arrive(self, key, pods, *, priority=0, queue=""):
        """A gang, of this queue or of another that asks for what is borrowed."""
        self.gangs[key] = _Gang(pods, self.at, priority, queue)

    def end(self, key):
        """A Job or a gang ends, and what it held is free."""
        self.jobs.pop(key, None)
        self.gangs.pop(key, None)
        self.schedule()

    def lose(self, node):
        """A node goes, with all that was on it."""
        self.capacity.pop(node)
        self.cordoned.discard(node)
        for key, job in self.jobs.items():
            nodes = tuple(NOWHERE if each == node else each for each in job.nodes)
            self._change(key, nodes=nodes)
        for gang in self.gangs.values():
            if node in gang.nodes:
                gang.nodes = []  # starts anew
        self.schedule()

    def pass_time(self, seconds):
        """Nothing else happens for a while."""
        self.at += seconds
        self.schedule()

    def finish(self, key, *, well=True, rolled_back=False):
        """The open resize of a Job ends."""
        job = self.jobs[key]
        after = job.target_workers if well else job.workers
        nodes = job.nodes[:after] + (NOWHERE,) * (after - job.workers)
        record = Resized(
            at=self.at,
            from_workers=job.workers,
            to_workers=after,
            failed=not well,
            rolled_back=rolled_back,
            pause_s=1.0 if well else None,
        )
        self._change(
            key,
            workers=after,
            nodes=nodes,
            last_resize_at=self.at,
            last_failed=not well,
            resize_open=False,
            target_workers=None,
            resizes=(*job.resizes, record)[-50:],
        )
        self.schedule()

    def set(self, key, **change):
        """Something about a Job changes: progress, a person's word."""
        self._change(key, **change)

    def hold(self, key, *, override=None, seconds=300.0):
        """A person's word on a Job."""
        self._change(key, hold=Hold(until=self.at + seconds, by="ada", override=override))

    # What is so.

    @property
    def open(self):
        """Jobs with an open resize."""
        return [key for key, job in self.jobs.items() if job.resize_open]

    @property
    def waiting(self):
        """Gangs that wait, also Jobs that lack a part of their own."""
        found = [
            PendingGang(key=key, pods=gang.pods, since=gang.since, priority=gang.priority, queue=gang.queue)
            for key, gang in self.gangs.items()
            if not gang.nodes
        ]
        for key, job in self.jobs.items():
            lacking = job.nodes[: job.min_workers].count(NOWHERE)
            if lacking:
                pods = (job.gpus_per_worker,) * lacking
                found.append(PendingGang(key=key, pods=pods, since=0.0, priority=job.priority))
        return found

    def snapshot(self):
        """What the policy sees."""
        free = self._free()
        jobs = tuple(replace(job, nodes=tuple(map(self._seen, job.nodes))) for job in self.jobs.values())
        hosts = {node for job in jobs for node in job.nodes}
        usable = {node: NodeState(left) for node, left in free.items() if node not in self.cordoned}
        waiting = self.waiting
        return QueueSnapshot(
            queue="research",
            at=self.at,
            limit_gpus=min(self.limit, sum(self.capacity.values())),
            allocated_gpus=self._allocated(),
            deserved_gpus=self.deserved,
            nodes={node: state for node, state in usable.items() if node in hosts},
            crowd=Counter(state for node, state in usable.items() if node not in hosts),
            jobs=jobs,
            pending=tuple(gang for gang in waiting if not gang.queue),
            claims=tuple(gang for gang in waiting if gang.queue),
            memory=self.memory,
        )

    def turn(self):
        """The policy decides; its decisions are checked and become open resizes. Returns those that resize."""
        snapshot = self.snapshot()
        decisions = self.policy.decide(snapshot)
        check(snapshot, decisions)
        self.memory = self.policy.remember(snapshot, decisions)
        resizing = [decision for decision in decisions if decision.resizes]
        for decision in resizing:
            self._change(decision.job, resize_open=True, target_workers=decision.to_workers)
        return resizing

    def schedule(self):
        """Whatever fits is placed."""
        for gang in sorted(self.waiting, key=lambda gang: (-gang.priority, gang.since, gang.key)):
            nodes = self._place(gang.pods, own=not gang.queue)
            if nodes is None:
                continue
            if gang.key in self.gangs:
                self.gangs[gang.key].nodes = nodes
            else:
                job, found = self.jobs[gang.key], iter(nodes)
                core = tuple(next(found) if node == NOWHERE else node for node in job.nodes[: job.min_workers])
                self._change(gang.key, nodes=core + job.nodes[job.min_workers :])
        for key, job in sorted(self.jobs.items()):
            nodes = list(job.nodes)
            for index in range(job.min_workers, len(nodes)):
                if nodes[index] == NOWHERE and (found := self._place([job.gpus_per_worker])):
                    nodes[index] = found[0]
                    self._change(key, nodes=tuple(nodes))
            lacking = NOWHERE in self.jobs[key].nodes[job.min_workers :]
            since = self.at if job.waiting_since is None else job.waiting_since
            self._change(key, waiting_since=since if lacking else None)

    def come_to_rest(self, rounds=100):
        """Everything goes well from now on and nothing new happens, until nothing changes any more.

        Fails where that takes too long, or a gang waits that Jobs could have given way for.
        """
        for key in self.jobs:
            self._change(key, hold=None, diverging=False)
        still = 0
        for _ in range(rounds):
            if self.turn():
                still = 0
                for key in self.open:
                    self.finish(key)
                self.pass_time(61.0)
                continue
            for key in self.open:
                self.finish(key)
            still += 1
            if still > _STILL:
                break
            change = self.policy.next_change(self.snapshot())
            soon = change is not None and still <= _STILL - 2
            self.pass_time(change - self.at if soon else _LONG_S)
        assert still > _STILL, "sizes do not settle"
        service = serve(self.snapshot())
        assert not service.served, f"waits in vain: {service.served}"

    def _change(self, key, **change):
        self.jobs[key] = replace(self.jobs[key], **change)

    def _seen(self, node):
        return UNUSABLE if node in self.cordoned else node

    def _held(self):
        """(node, GPUs, whether of this queue) of each pod."""
        for job in self.jobs.values():
            yield from ((node, job.gpus_per_worker, True) for node in job.nodes if node != NOWHERE)
        for gang in self.gangs.values():
            yield from ((node, gpus, not gang.queue) for node, gpus in zip(gang.nodes, gang.pods, strict=False))

    def _free(self):
        free = dict(self.capacity)
        for node, gpus, _ in self._held():
            free[node] -= gpus
        assert all(left >= 0 for left in free.values()), "more than there is"
        return free

    def _allocated(self):
        return sum(gpus for _, gpus, own in self._held() if own)

    def _place(self, pods, *, own=True):
        """A node for each of these pods, largest first and each where it fits best; None where they do not all fit."""
        limit = min(self.limit, sum(self.capacity.values()))
        if own and self._allocated() + sum(pods) > limit:
            return None
        free = {node: left for node, left in self._free().items() if node not in self.cordoned}
        nodes = {}
        for index, gpus in sorted(enumerate(pods), key=lambda pod: -pod[1]):
            fitting = [(left, node) for node, left in free.items() if left >= gpus]
            if not fitting:
                return None
            nodes[index] = min(fitting)[1]
            free[nodes[index]] -= gpus
        return [nodes[index] for index in range(len(pods))]


def check(snapshot, decisions):
    """What holds of every decision of every policy within its guards."""
    jobs = {job.key: job for job in snapshot.jobs}
    assert [decision.job for decision in decisions] == sorted(jobs)
    free = sum(state.free for state in snapshot.nodes.values())
    free += sum(state.free * count for state, count in snapshot.crowd.items())
    named = {node: Spot(state.free, state.free) for node, state in snapshot.nodes.items()}
    crowd = {Spot(state.free, state.free): count for state, count in snapshot.crowd.items()}
    left = snapshot.limit_gpus - snapshot.allocated_gpus
    grown, reclaimed = [], 0
    for decision in decisions:
        job = jobs[decision.job]
        assert decision.from_workers == job.workers
        assert decision.explanation
        assert not (job.resize_open and decision.resizes), "two resizes at once"
        if decision.resizes:
            assert decision.to_workers in job.sizes
            assert job.min_workers <= decision.to_workers <= job.max_workers
            held = job.hold is not None and job.hold.until > snapshot.at
            assert not held or decision.to_workers == job.hold.override
        grown += [(job.shape, job.gpus_per_worker)] * (decision.to_workers - job.workers)
        if decision.reason is Reason.RECLAIMED:
            gone = job.nodes[decision.to_workers :]
            reclaimed += (len(gone) - gone.count(NOWHERE)) * job.gpus_per_worker
    assert not grown or Room(left, left, named, crowd).take(grown) is not None, "more than is free"
    coming = sum(
        len(job.nodes[job.target_workers :]) * job.gpus_per_worker
        for job in snapshot.jobs
        if job.target_workers is not None
    )
    promised = sum(
        max(0, job.target_workers - job.workers) * job.gpus_per_worker
        for job in snapshot.jobs
        if job.target_workers is not None
    )
    more = sum(gpus for _, gpus in grown)
    assert not more or more + promised <= min(left, free) + coming, "promised twice"
    own = sum(gang.gpus for gang in snapshot.pending)
    assert reclaimed <= max(0, snapshot.allocated_gpus + own - snapshot.share_gpus), "more than was borrowed"
