# SPDX-License-Identifier: Apache-2.0
"""A scenario written down: the Scenario document that gives it back, with every job stated. Pure.

What a document cannot say is simplified: jobs that are under way come at once, sizes between least and most are all
allowed, and work that is known by profiles is written as speeds at powers of two.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.simulator.scenario import ROOT
from kfp_volcano.elastic.simulator.traced import Traced
from kfp_volcano.schemas.names import DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.elastic.simulator.scenario import Job, Queue, Scenario

__all__ = ["document_of"]


def document_of(scenario: Scenario, name: str) -> dict[str, Any]:
    """The document of a scenario, as JSON."""
    names = {node.name: f"node-{index}" for index, node in enumerate(scenario.nodes)}
    alike = groupby(scenario.nodes, key=lambda node: (node.gpus, node.gpu_class, node.zone))
    cluster: dict[str, Any] = {
        "nodes": [
            _said(count=len(list(nodes)), gpus=gpus, **{"class": kind or None}, zone=zone or None)
            for (gpus, kind, zone), nodes in alike
        ]
    }
    if scenario.outages:
        cluster["outages"] = [
            {"node": names[each.node], "at": each.at, "until": each.until}
            for each in scenario.outages
            if each.node in names and each.until > each.at
        ]
    spec = {"interval": scenario.interval_s, "cluster": cluster}
    if any(queue.name not in (ROOT, DEFAULT_QUEUE) for queue in scenario.queues):
        spec["queues"] = {"plugin": "capacity", "queues": list(_queues(scenario.queues, ROOT))}
    spec["jobs"] = [_job(each) for each in scenario.jobs]
    return {"apiVersion": "kfp-volcano/v1", "kind": "Scenario", "metadata": {"name": name}, "spec": spec}


def _queues(queues: Sequence[Queue], parent: str) -> Iterator[dict[str, Any]]:
    for queue in queues:
        if queue.parent == parent and queue.name != ROOT:
            below = list(_queues(queues, queue.name))
            yield _said(
                name=queue.name,
                capability=_gpus(queue.capability),
                deserved=_gpus(queue.deserved),
                guarantee=_gpus(queue.guarantee or None),
                priority=queue.priority or None,
                reclaimable=None if queue.reclaimable else False,
                queues=below or None,
            )


def _gpus(amount: int | None) -> dict[str, int] | None:
    return None if amount is None else {"gpu": amount}


def _job(job: Job) -> dict[str, Any]:
    gpus = job.workers * job.gpus_per_worker
    duration_s = job.work.alone_s(gpus)
    if isinstance(job.work, Traced):
        duration_s *= 1.0 - job.work.done
    least, most = job.min_workers * job.gpus_per_worker, job.max_workers * job.gpus_per_worker
    return _said(
        name=job.name,
        at=job.submitted_at,
        gpus=gpus,
        gpusPerWorker=_unless(1, job.gpus_per_worker),
        duration=duration_s,
        least=least if least != gpus else None,
        most=most if most != gpus else None,
        scaling=_scaling(job, least, most) if job.elastic else None,
        queue=job.queue,
        team=job.team or None,
        priority=job.priority or None,
        classes=list(job.gpu_classes) or None,
        start=_unless(0.0, job.start_s),
        resize=_unless(30.0, job.resize_s),
        restart=_unless(60.0, job.restart_s),
    )


def _scaling(job: Job, least: int, most: int) -> dict[str, Any]:
    if isinstance(job.work, Traced):
        scaling = job.work.scaling
        points = [{"gpus": gpus, "speed": speed} for gpus, speed in scaling.points]
        said = {"spread": _unless(1.0, scaling.spread), "classes": dict(scaling.classes) or None}
        return _said(**(said | ({"points": points} if points else {"serial": scaling.serial})))
    sizes = sorted({least, most, *(2**power for power in range(most.bit_length()) if least <= 2**power <= most)})
    times = [(gpus, job.work.alone_s(gpus)) for gpus in sizes]
    return {"points": [{"gpus": gpus, "speed": 1.0 / time} for gpus, time in times if 0 < time < math.inf]}


def _unless(usual: float, value: float) -> float | None:
    """A value, unless it is the one that counts where nothing is written."""
    return None if value == usual else value


def _said(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
