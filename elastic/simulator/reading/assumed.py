# SPDX-License-Identifier: Apache-2.0
"""From what a trace tells of its jobs to a scenario, by stating what it does not tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.reading.shape import FULL, largest_node, nodes_for
from kfp_volcano.elastic.simulator.scenario import Job, Scenario
from kfp_volcano.elastic.simulator.traced import Scaling, Traced
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.elastic.simulator.scenario import Node
    from kfp_volcano.elastic.simulator.work import Work

__all__ = ["Assumed", "TraceJob", "scenario_of", "shape_of"]

_NAMED = 5
"""Jobs that a note names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What a trace does not tell, and what of it is wanted."""

    nodes: tuple[Node, ...] = ()
    """The cluster; empty: what the format says, or as many nodes as the trace needs."""
    gpus_per_node: int = 8
    """Of a cluster that is made up."""
    elastic: tuple[float, float] | None = None
    """The least and the most that a job may have, as parts of the GPUs it asked for; None: its own size alone."""
    scaling: Scaling = field(default_factory=lambda: Scaling(serial=0.01))
    """How its speed follows its size."""
    start_s: float = 0.0
    resize_s: float = 30.0
    """What a resize costs (30 s: Pollux' simulator)."""
    restart_s: float = 60.0
    load: float = 1.0
    """How much faster jobs come than they did: times of submission are divided by it."""
    origin_s: float | None = None
    """Which of the trace's times is the scenario's beginning; None: its first submission."""
    since_s: float = 0.0
    """From where in the trace, seconds after its first submission."""
    until_s: float = math.inf
    limit: int | None = None
    """The most jobs, the first ones."""
    only: frozenset[str] = frozenset()
    """Names of the jobs that are wanted; empty: all."""
    queue: str = "default"
    """Where jobs go whose trace does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """A job as a trace tells it."""

    name: str
    at: float
    """When it was submitted, seconds from wherever the trace counts."""
    duration_s: float
    gpus: int
    team: str = ""
    gpu_classes: tuple[str, ...] = ()
    work: Work | None = None
    """Where more is known of it than its duration; such a job is elastic from one GPU on."""
    most_gpus: int = 0
    """With `work`: the most that it can use."""


def _windowed(jobs: Iterable[TraceJob], assumed: Assumed) -> list[TraceJob]:
    """The jobs that are wanted, by time from the first that there is, at the load that is wanted."""
    ordered = sorted(jobs, key=lambda job: job.at)
    if not ordered:
        return []
    begin = ordered[0].at + assumed.since_s
    end = ordered[0].at + assumed.until_s
    chosen = [job for job in ordered if begin <= job.at < end and (not assumed.only or job.name in assumed.only)][
        : assumed.limit
    ]
    zero = begin if assumed.since_s else ordered[0].at if assumed.origin_s is None else assumed.origin_s
    return [_at(job, (job.at - zero) / assumed.load) for job in chosen]


def _at(job: TraceJob, at: float) -> TraceJob:
    """The same at another time: `replace` looks every field up by name, which shows with many jobs."""
    return TraceJob(
        name=job.name,
        at=at,
        duration_s=job.duration_s,
        gpus=job.gpus,
        team=job.team,
        gpu_classes=job.gpu_classes,
        work=job.work,
        most_gpus=job.most_gpus,
    )


def scenario_of(
    name: str,
    jobs: Sequence[TraceJob],
    assumed: Assumed,
    *,
    source: str,
    notes: Sequence[str] = (),
    nodes: tuple[Node, ...] = (),
) -> Scenario:
    """The scenario of a trace's jobs.

    Args:
        name: What it is called.
        jobs: In the trace's order.
        assumed: What else there is to know.
        source: What messages call the trace.
        notes: What was left out in reading it.
        nodes: The trace's own cluster, where it tells one.

    Raises:
        SpecError: No job is left, or one that is wanted by name is not there.
    """
    told = list(notes)
    if any(later.at < earlier.at for earlier, later in pairwise(jobs)):
        told.append("the trace was not in the order of submission: sorted")
    _all_there(jobs, assumed, source)
    chosen = _windowed(jobs, assumed)
    if assumed.load != 1.0:
        told.append(f"jobs come {assumed.load:g} times as fast as they did")
    if len(chosen) < len(jobs):
        told.append(f"{len(chosen)} of its {len(jobs)} jobs were chosen")
    cluster = assumed.nodes or nodes
    if not cluster and chosen:
        cluster = _made_up(chosen, assumed)
        told.append(
            f"the trace does not tell its cluster: {len(cluster)} nodes of {assumed.gpus_per_node} GPUs are assumed, "
            f"which hold its largest job and are {FULL:.0%} full on average"
        )
    if assumed.elastic is not None:
        least, most = assumed.elastic
        told.append(f"jobs may have {least:g} to {most:g} times the GPUs that they asked for")
    chosen, left_out = _fitting(chosen, cluster)
    told += left_out
    if not chosen:
        raise SpecError("holds no job that could be replayed" + "".join(f"; {note}" for note in told), source=source)
    node_gpus, total = largest_node(cluster), sum(node.gpus for node in cluster)
    return Scenario(
        name=name,
        nodes=cluster,
        jobs=tuple(_job(each, assumed, node_gpus, total) for each in chosen),
        source=source,
        notes=tuple(told),
    )


def _all_there(jobs: Sequence[TraceJob], assumed: Assumed, source: str) -> None:
    """Raises SpecError with every job that is wanted by name and is not in the trace."""
    missing = assumed.only - {job.name for job in jobs} if assumed.only else ()
    if missing:
        wrong = [
            Problem(name, "is no job of the trace", "a job's name as the trace has it") for name in sorted(missing)
        ]
        raise SpecError(wrong, source=source)


def _made_up(jobs: Sequence[TraceJob], assumed: Assumed) -> tuple[Node, ...]:
    most = assumed.elastic[1] if assumed.elastic else 1.0
    span = max(job.at + job.duration_s for job in jobs) - jobs[0].at
    largest = math.ceil(max(job.gpus for job in jobs) * max(1.0, most))
    return nodes_for(sum(job.gpus * job.duration_s for job in jobs), span, largest, assumed.gpus_per_node)


def _fitting(jobs: Sequence[TraceJob], nodes: Sequence[Node]) -> tuple[list[TraceJob], list[str]]:
    """The jobs that the cluster could ever run, and what to say of the others."""
    by_class: dict[str, int] = {}
    for node in nodes:
        by_class[node.gpu_class] = by_class.get(node.gpu_class, 0) + node.gpus
    total, notes = sum(by_class.values()), []
    if set(by_class) == {""} and any(job.gpu_classes for job in jobs):
        jobs = [replace(job, gpu_classes=()) for job in jobs]
        notes.append("jobs asked for kinds of GPUs, and the cluster has but one: they run on any")
    fit: list[TraceJob] = []
    too_large: list[TraceJob] = []
    for job in jobs:
        there = sum(by_class.get(each, 0) for each in job.gpu_classes) if job.gpu_classes else total
        (fit if job.gpus <= there else too_large).append(job)
    if too_large:
        named = ", ".join(job.name for job in too_large[:_NAMED]) + (", …" if len(too_large) > _NAMED else "")
        notes.append(f"{len(too_large)} jobs ask for more GPUs than the cluster has, and are left out: {named}")
    return fit, notes


def _job(each: TraceJob, assumed: Assumed, node_gpus: int, total: int) -> Job:
    if each.work is not None:
        shape, work = (1, each.gpus, 1, max(each.gpus, min(each.most_gpus, total))), each.work
    else:
        shape = shape_of(each.gpus, assumed.elastic, node_gpus)
        work = Traced(
            duration_s=each.duration_s,
            gpus=each.gpus,
            scaling=assumed.scaling,
            gpus_per_worker=shape[0],
            node_gpus=node_gpus,
        )
    per_worker, workers, least, most = shape
    return Job(
        name=each.name,
        submitted_at=each.at,
        work=work,
        workers=workers,
        min_workers=least,
        max_workers=most,
        gpus_per_worker=per_worker,
        queue=assumed.queue,
        team=each.team,
        gpu_classes=each.gpu_classes,
        start_s=assumed.start_s,
        resize_s=assumed.resize_s,
        restart_s=assumed.restart_s,
    )


@lru_cache(maxsize=1024)
def shape_of(gpus: int, elastic: tuple[float, float] | None, node_gpus: int) -> tuple[int, int, int, int]:
    """GPUs of a worker; workers, the least and the most of them.

    A job that stays as it is has as few workers as nodes it takes; one that may change, of one node, a worker a GPU.
    """
    largest = max(size for size in range(1, min(gpus, node_gpus) + 1) if gpus % size == 0)
    if elastic is None or elastic == (1.0, 1.0):
        return largest, gpus // largest, gpus // largest, gpus // largest
    per_worker = 1 if gpus <= node_gpus else largest
    workers = gpus // per_worker
    least, most = elastic
    return per_worker, workers, max(1, min(workers, math.ceil(workers * least))), max(workers, int(workers * most))
