# SPDX-License-Identifier: Apache-2.0
"""Where a cluster's jobs stand at a moment: what they hold, what they wait for, and what is left to do."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.scenario import Job
from kfp_volcano.elastic.simulator.traced import Traced
from kfp_volcano.schemas.names import CORE, ELASTIC
from kfp_volcano.volcano.manifests.status import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts, Pace
    from kfp_volcano.elastic.autoscaler.observing.pod_facts import GroupFacts, PodFacts
    from kfp_volcano.elastic.simulator.reading.assumed import Assumed
    from kfp_volcano.elastic.simulator.scenario import Node

__all__ = ["Packing", "Standing", "job_of", "standing_group", "standing_job"]

_LEAST_LEFT_S = 1.0
"""What a job that runs has left at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A job or gang as it stands."""

    key: str
    """namespace/name."""
    queue: str
    team: str
    created: float
    priority_class: str
    workers: int
    """It has, or asks for where it waits."""
    least: int
    most: int
    sizes: tuple[int, ...] = ()
    gpus_per_worker: int
    gpu_classes: tuple[str, ...] = ()
    running: bool
    nodes: tuple[str, ...] = ()
    """Where its workers are, as far as that is known."""
    pace: Pace | None = None
    held: bool = False
    """Whether a person keeps the autoscaler off it at present."""
    pauses: tuple[float, ...] = field(default=())
    """What its resizes have cost, seconds."""


def standing_job(job: JobFacts, pods: Sequence[PodFacts], *, now: float, pods_known: bool) -> Iterator[Standing]:
    """A Volcano Job, if it has GPUs: an elastic one by its workers, any other as a gang of equal parts.

    One that a person holds keeps its size: for how long is not looked at.
    """
    tasks = [task for task in job.tasks if task.needs.gpus and task.replicas]
    if not tasks:
        return
    per_worker = math.gcd(*(task.needs.gpus for task in tasks))
    elastic = job.range if {task.name for task in tasks} <= {CORE, ELASTIC} else None
    held = elastic is not None and job.hold is not None and job.hold.until > now
    holding = sorted(
        (pod for pod in pods if pod.stays and pod.request.gpus),
        key=lambda pod: (pod.task == ELASTIC, pod.task, pod.index),
    )
    nodes = tuple(pod.node for pod in holding for _ in range(pod.request.gpus // per_worker))
    asked = sum(task.replicas * task.needs.gpus for task in tasks) // per_worker
    gang = elastic.least if elastic else min(asked, sum(task.least * task.needs.gpus for task in tasks) // per_worker)
    running = job.state is JobState.RUNNING and (len(nodes) >= max(1, gang) or not pods_known)
    workers = len(nodes) if running and pods_known else asked
    pauses = tuple(each.pause_s for each in job.history.resizes if each.pause_s is not None)
    yield Standing(
        key=job.key,
        queue=job.queue,
        team=job.team,
        created=job.created,
        priority_class=job.priority_class,
        workers=workers,
        least=elastic.least if elastic and not held else workers,
        most=max(elastic.most, workers) if elastic and not held else workers,
        sizes=elastic.sizes if elastic and not held else (),
        gpus_per_worker=per_worker,
        gpu_classes=tasks[0].needs.shape.gpu_classes,
        running=running,
        nodes=nodes if running else (),
        pace=job.pace,
        held=held,
        pauses=pauses,
    )


def standing_group(group: GroupFacts, pods: Sequence[PodFacts]) -> Iterator[Standing]:
    """A gang that no Volcano Job owns: Ray's, Spark's and others'."""
    nodes = tuple(pod.node for pod in pods if pod.stays for _ in range(pod.request.gpus))
    gpus = max(group.gpus, len(nodes))
    if not gpus or not (group.waits or nodes):
        return
    per_worker = 1 if nodes or gpus % group.members else gpus // group.members
    workers = len(nodes) or gpus // per_worker
    yield Standing(
        key=group.key,
        queue=group.queue,
        team=group.key.partition("/")[0],
        created=group.created,
        priority_class=group.priority_class,
        workers=workers,
        least=workers,
        most=workers,
        gpus_per_worker=per_worker,
        running=bool(nodes),
        nodes=nodes,
    )


class Packing:
    """Which GPUs are left for running jobs of which it is not known where they are."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._free = Counter({node.name: node.gpus for node in nodes})

    def place(self, each: Standing) -> tuple[str, ...]:
        """The node of each of its workers: where it is, else wherever there is room; empty where there is none."""
        known = all(node in self._free for node in each.nodes) and len(each.nodes) == each.workers
        nodes = each.nodes if known else self._packed(each.workers, each.gpus_per_worker)
        taken = Counter(nodes)
        if any(self._free[node] < count * each.gpus_per_worker for node, count in taken.items()):
            return ()
        for node, count in taken.items():
            self._free[node] -= count * each.gpus_per_worker
        return nodes

    def _packed(self, workers: int, gpus: int) -> tuple[str, ...]:
        found: list[str] = []
        for node, free in sorted(self._free.items(), key=lambda item: -item[1]):
            found += [node] * min(free // gpus, workers - len(found))
        return tuple(found) if len(found) == workers else ()


def job_of(
    each: Standing,
    assumed: Assumed,
    *,
    at: float,
    now: float,
    usual_s: float,
    placed: tuple[str, ...],
    priority: int,
    node_gpus: int,
) -> Job:
    """A job of the scenario that begins now.

    What it has left follows from its progress; where it reports none, one that runs is taken to run as long again as
    it has, one that waits for `usual_s`.
    """
    per_worker, pace = each.gpus_per_worker, each.pace
    gpus = each.workers * per_worker
    work = Traced(
        duration_s=max(_LEAST_LEFT_S, now - each.created if each.running else usual_s),
        gpus=gpus,
        scaling=assumed.scaling,
        gpus_per_worker=per_worker,
        node_gpus=node_gpus,
    )
    if pace is not None and pace.remaining_s is not None:
        done = min(pace.done or 0.0, 1.0 - 1e-6)
        left = max(_LEAST_LEFT_S, pace.remaining_s)
        work = replace(
            work,
            duration_s=left / (1.0 - done),
            done=done,
            batch=max(1, pace.batch),
            scaling=replace(assumed.scaling, points=_points(pace, each)),
        )
    return Job(
        name=each.key,
        submitted_at=at,
        work=work,
        workers=each.workers,
        min_workers=each.least,
        max_workers=each.most,
        sizes=each.sizes,
        gpus_per_worker=per_worker,
        queue=each.queue,
        team=each.team,
        priority=priority,
        gpu_classes=each.gpu_classes,
        placed=placed,
        start_s=0.0 if placed else assumed.start_s,
        resize_s=median(each.pauses) if each.pauses else assumed.resize_s,
        restart_s=assumed.restart_s,
    )


def _points(pace: Pace, each: Standing) -> tuple[tuple[int, float], ...]:
    """What training measured, samples per second by GPUs; empty where one size says nothing of another."""
    found = {one.workers * each.gpus_per_worker: one.throughput for one in pace.measured if one.throughput > 0}
    if each.running and pace.throughput > 0:
        found[each.workers * each.gpus_per_worker] = pace.throughput
    return tuple(sorted(found.items())) if len(found) > 1 else ()
