# SPDX-License-Identifier: Apache-2.0
"""Jobs and outages that are drawn by chance, as a Scenario says. Pure: equal seeds give equal draws.

Each load, and each node, draws from a generator of its own: what is changed in one leaves the others as they were.
"""

from __future__ import annotations

import math
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.reading.assumed import shape_of
from kfp_volcano.elastic.simulator.scenario import Job, Outage
from kfp_volcano.elastic.simulator.traced import Scaling, Traced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.schemas.scenario import Arrivals, Cluster, Durations, JobClass, Load, ScalingSpec, StatedJob

__all__ = ["drawn_jobs", "drawn_outages", "scaling_of", "stated_job"]

_DAY = 86400.0
_HOUR = 3600.0


def drawn_jobs(load: Load, *, seed: int, until_s: float, node_gpus: int) -> Iterator[Job]:
    """The jobs of a load, burst by burst, or in the order in which they come."""
    random = Random(f"{seed}/load/{load.name}")  # noqa: S311 - draws are to be repeated
    weights = [each.weight for each in load.jobs]
    for number, at in enumerate(islice(_times(load.arrivals, random, until_s), load.most)):
        (kind,) = random.choices(load.jobs, weights)
        yield _job(kind, f"{load.name}-{kind.name}-{number}", at, random, node_gpus)


def _times(arrivals: Arrivals, random: Random, until_s: float) -> Iterator[float]:
    """When jobs come, within the time."""
    if arrivals.at_s is not None:
        yield from (at for at in sorted(arrivals.at_s) if at < until_s)
    elif arrivals.bursts is not None:
        bursts = arrivals.bursts
        for index in range(math.ceil(until_s / bursts.every_s)):
            begin = index * bursts.every_s
            yield from sorted(begin + random.random() * bursts.within_s for _ in range(bursts.jobs))
    elif arrivals.poisson is not None:
        yield from _poisson(arrivals.poisson.per_hour / _HOUR, random, until_s)
    elif arrivals.diurnal is not None:
        daily = arrivals.diurnal
        most = daily.per_hour / _HOUR * (1.0 + daily.swing)
        for at in _poisson(most, random, until_s):  # thinned out (Lewis and Shedler 1979)
            now = 1.0 + daily.swing * math.cos(2.0 * math.pi * (at - daily.peak_s) / _DAY)
            if random.random() * (1.0 + daily.swing) < now:
                yield at


def _poisson(rate: float, random: Random, until_s: float) -> Iterator[float]:
    at = random.expovariate(rate)
    while at < until_s:
        yield at
        at += random.expovariate(rate)


def _job(kind: JobClass, name: str, at: float, random: Random, node_gpus: int) -> Job:
    gpus, duration_s = random.choice(kind.gpus), max(1.0, _lasting(kind.duration, random))
    elastic = (kind.elastic.least, kind.elastic.most) if kind.elastic else None
    per_worker, workers, least, most = shape_of(gpus, elastic, node_gpus)
    work = Traced(
        duration_s=duration_s,
        gpus=gpus,
        scaling=scaling_of(kind.scaling),
        gpus_per_worker=per_worker,
        node_gpus=node_gpus,
    )
    return Job(
        name=name,
        submitted_at=at,
        work=work,
        workers=workers,
        min_workers=least,
        max_workers=most,
        gpus_per_worker=per_worker,
        queue=kind.queue,
        team=kind.team,
        priority=kind.priority,
        gpu_classes=kind.classes,
        start_s=kind.start_s,
        resize_s=kind.resize_s,
        restart_s=kind.restart_s,
    )


def _lasting(durations: Durations, random: Random) -> float:
    if durations.lognormal is not None:
        return random.lognormvariate(math.log(durations.lognormal.median_s), durations.lognormal.sigma)
    return random.choice(durations.empirical_s) if durations.empirical_s else durations.fixed_s or 0.0


def stated_job(job: StatedJob, *, node_gpus: int) -> Job:
    """A job that is stated."""
    each = job.gpus_per_worker
    work = Traced(
        duration_s=job.duration_s,
        gpus=job.gpus,
        scaling=scaling_of(job.scaling),
        gpus_per_worker=each,
        node_gpus=node_gpus,
    )
    return Job(
        name=job.name,
        submitted_at=job.at_s,
        work=work,
        workers=job.gpus // each,
        min_workers=(job.least or job.gpus) // each,
        max_workers=(job.most or job.gpus) // each,
        gpus_per_worker=each,
        queue=job.queue,
        team=job.team,
        priority=job.priority,
        gpu_classes=job.classes,
        start_s=job.start_s,
        resize_s=job.resize_s,
        restart_s=job.restart_s,
    )


def scaling_of(spec: ScalingSpec) -> Scaling:
    """How speed follows size, as it is written."""
    points = tuple((point.gpus, point.speed) for point in spec.points)
    return Scaling(serial=spec.serial, points=points, spread=spec.spread, classes=spec.classes)


def drawn_outages(cluster: Cluster, *, seed: int, until_s: float) -> Iterator[Outage]:
    """The outages of a cluster's nodes: those that are stated, and those that are drawn."""
    yield from (Outage(node=each.node, at=each.at_s, until=each.until_s) for each in cluster.outages)
    if cluster.failures is None:
        return
    for name, _ in cluster.walk():
        random = Random(f"{seed}/node/{name}")  # noqa: S311 - draws are to be repeated
        at = random.expovariate(1.0 / cluster.failures.mtbf_s)
        while at < until_s:
            back = at + random.expovariate(1.0 / cluster.failures.mttr_s)
            yield Outage(node=name, at=at, until=back)
            at = back + random.expovariate(1.0 / cluster.failures.mtbf_s)
