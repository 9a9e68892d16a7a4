# SPDX-License-Identifier: Apache-2.0
"""Advice on a training's CPU and memory requests, from what its workers used. Pure.

What is written too high keeps others off the node, what is written too low starves the worker or has it evicted. As in
Kubernetes' Vertical Pod Autoscaler (pkg/recommender/logic: the peak of memory, a margin of 15 %) the advice is the peak
of any worker and a margin; CPU counts by its peak too, for all workers of a synchronous step wait for the slowest. A
running pod keeps its requests: the advice is for the training's next start, where its spec allows that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.policies.memory import JobMemory
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["RESOURCES", "RequestAdvice", "RequestSettings", "advised", "peaks"]

RESOURCES = ("cpu", "memory")

_MILLI = 1000
"""What is measured comes in cores and bytes; requests are kept in thousandths of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """When requests are advised on; block `requests` of a Policy."""

    margin: float = 0.15
    """What is added to the peak, as a share of it."""
    after_s: float = 600.0
    """How long use must have been measured: the first minutes of a training are not like the rest."""
    least_change: float = 0.1
    """Difference to what is requested, as a share of that, below which nothing is advised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAdvice:
    """Another request for each worker of a Job."""

    job: str
    """namespace/name."""
    resource: str
    """cpu or memory."""
    requested: int
    """In thousandths, as all of these."""
    peak: int
    advised: int
    explanation: str


def peaks(job: ElasticJob, before: Mapping[str, int]) -> dict[str, int]:
    """The most that any worker of a Job has used, in thousandths, by resource, with what is measured now."""
    found = dict(before)
    for pod in job.pods:
        for resource in RESOURCES:
            sample = pod.samples.get(resource)
            if sample is not None:
                found[resource] = max(found.get(resource, 0), math.ceil(sample.value * _MILLI))
    return found


def advised(job: ElasticJob, memory: JobMemory, settings: RequestSettings, at: float) -> tuple[RequestAdvice, ...]:
    """What to request for each worker instead, by resource; nothing while too little is known or it is about right."""
    if memory.measured_since is None or at - memory.measured_since < settings.after_s:
        return ()
    found = []
    for resource in RESOURCES:
        requested = max((pod.requests.get(resource, 0) for pod in job.pods), default=0)
        peak = memory.peaks.get(resource, 0)
        if not requested or not peak:
            continue
        advice = _rounded(peak * (1 + settings.margin), resource)
        if abs(advice - requested) < settings.least_change * requested:
            continue
        found.append(
            RequestAdvice(
                job=job.key,
                resource=resource,
                requested=requested,
                peak=peak,
                advised=advice,
                explanation=f"workers of {job.name} request {_shown(requested, resource)} and used at most "
                f"{_shown(peak, resource)}: {_shown(advice, resource)} would do",
            )
        )
    return tuple(found)


_MIB = 2**20 * _MILLI


def _rounded(value: float, resource: str) -> int:
    """Up to a tenth of a CPU, or a MiB."""
    unit = _MIB if resource == "memory" else 100
    return math.ceil(value / unit) * unit


def _shown(value: int, resource: str) -> str:
    if resource == "cpu":
        return f"{value / 1000:.1f} CPUs"
    return f"{value / _MIB / 1024:.1f} GiB"
