# SPDX-License-Identifier: Apache-2.0
"""Figures of an outcome: how long jobs took and waited, what the cluster was used for, how fair it was. Pure.

Finish-time fairness is Themis' (K. Mahajan et al., NSDI 2020): a job's completion time over what it would have taken on
its fair share of the cluster, rho; above 1, it did worse than that. The fair share of a job is its GPUs a part of the
time: with contention c(t), the GPUs that all jobs in the system ask for over those of the cluster, at least 1, its work
would have taken its time alone times the mean of c over its life, as Shockwave (P. Zheng et al., NSDI 2023) takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.simulator.outcome import JobOutcome, Outcome

__all__ = ["METRICS", "Figures", "Metric", "figures", "jain", "rhos"]

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that policies are compared by."""

    key: str
    """The field of `Figures`."""
    title: str
    unit: str
    """`s`, `part` (of one), `GPU-h` or nothing."""
    better: Literal["less", "more"]
    meaning: str


METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric("avg_jct", "avg JCT", "s", "less", "From submission to end, mean of the jobs that ended."),
        Metric("p50_jct", "p50 JCT", "s", "less", "Half of the jobs that ended took no longer."),
        Metric("p99_jct", "p99 JCT", "s", "less", "99 of a hundred took no longer."),
        Metric("makespan", "makespan", "s", "less", "From the first submission to the last end."),
        Metric("avg_wait", "avg wait", "s", "less", "From submission to first GPUs, mean of the jobs that had some."),
        Metric("utilisation", "utilisation", "part", "more", "GPU time held by jobs, of the cluster's."),
        Metric(
            "goodput",
            "goodput",
            "part",
            "more",
            "Work done, in GPU time as the sizes asked for would have needed alone, of the cluster's GPU time.",
        ),
        Metric("avg_rho", "avg rho", "", "less", "Finish-time fairness: JCT over that on the fair share, mean."),
        Metric("worst_rho", "worst rho", "", "less", "Of the job that fared worst."),
        Metric("unfair", "rho > 1", "part", "less", "Jobs that took longer than on their fair share."),
        Metric("jain", "Jain, teams", "", "more", "Fairness over teams: 1 where all fare alike, 1/n at worst."),
        Metric("resizes", "resizes", "", "less", "Changes of running jobs' sizes, all together."),
        Metric("lost_gpu_h", "lost", "GPU-h", "less", "GPU time held for starting, resizing and coming back."),
    )
}
"""By key, in the order of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a policy made of a scenario; times in seconds, shares as parts of one.

    None where nothing can be said: no job ended, none started, or, for the makespan, not all ended.
    """

    jobs: int
    not_ended: int
    """Jobs that had not ended when the simulation did; they are in no mean of completion times."""
    avg_jct: float | None
    p50_jct: float | None
    p99_jct: float | None
    makespan: float | None
    avg_wait: float | None
    p99_wait: float | None
    utilisation: float
    goodput: float
    avg_rho: float | None
    worst_rho: float | None
    unfair: float | None
    jain: float | None
    resizes: int
    restarts: int
    gpu_h: float
    lost_gpu_h: float


def figures(outcome: Outcome) -> Figures:
    """The figures of an outcome; the order of its jobs does not matter.

    Percentiles are interpolated linearly between the two nearest (numpy's default). Utilisation and goodput are over
    the time from the first submission to the end of the last job, or of the simulation.
    """
    jobs = outcome.jobs
    jcts = np.sort([job.jct for job in jobs if job.jct is not None])
    waits = np.sort([job.waited_s for job in jobs if job.waited_s is not None])
    by_job = rhos(outcome)
    rho = np.sort([each for each in by_job if each is not None])
    first = min((job.submitted_at for job in jobs), default=0.0)
    not_ended = sum(job.ended_at is None for job in jobs)
    last = max((job.ended_at for job in jobs if job.ended_at is not None), default=outcome.ended_at)
    if not_ended:
        last = max(last, outcome.ended_at)
    capacity = outcome.gpus * (last - first)
    held = float(np.sum(np.sort([job.gpu_s for job in jobs])))
    works = [job.done * job.alone_s * job.asked_gpus for job in jobs if np.isfinite(job.alone_s)]
    useful = float(np.sum(np.sort(works)))
    return Figures(
        jobs=len(jobs),
        not_ended=not_ended,
        avg_jct=_mean(jcts),
        p50_jct=_percentile(jcts, 50),
        p99_jct=_percentile(jcts, 99),
        makespan=None if not_ended or not jobs else last - first,
        avg_wait=_mean(waits),
        p99_wait=_percentile(waits, 99),
        utilisation=held / capacity if capacity > 0 else 0.0,
        goodput=useful / capacity if capacity > 0 else 0.0,
        avg_rho=_mean(rho),
        worst_rho=float(rho[-1]) if rho.size else None,
        unfair=float(np.mean(rho > 1)) if rho.size else None,
        jain=_over_teams(outcome, by_job),
        resizes=sum(job.resizes for job in jobs),
        restarts=sum(job.restarts for job in jobs),
        gpu_h=held / HOUR,
        lost_gpu_h=float(np.sum(np.sort([job.lost_gpu_s for job in jobs]))) / HOUR,
    )


def rhos(outcome: Outcome) -> list[float | None]:
    """Finish-time fairness of each job, in the outcome's order; None where it did not end or had nothing to do."""
    jobs = outcome.jobs
    if not jobs:
        return []
    begins = np.array([job.submitted_at for job in jobs])
    ends = np.array([outcome.ended_at if job.ended_at is None else job.ended_at for job in jobs])
    asked = np.array([job.asked_gpus for job in jobs], dtype=float)
    contended = _contended(begins, ends, asked, outcome.gpus)
    return [_rho(job, seconds) for job, seconds in zip(jobs, contended, strict=True)]


def jain(values: Sequence[float]) -> float | None:
    """R. Jain's index of fairness (DEC-TR-301, 1984): 1 where all are equal, 1/n where one has all.

    None where there is nothing to compare: no value, or all are zero.
    """
    given = np.sort(np.asarray(values, dtype=float))
    squares = float(np.sum(given**2))
    return float(np.sum(given)) ** 2 / (len(given) * squares) if squares > 0 else None


def _contended(
    begins: np.ndarray[tuple[int], np.dtype[np.float64]],
    ends: np.ndarray[tuple[int], np.dtype[np.float64]],
    asked: np.ndarray[tuple[int], np.dtype[np.float64]],
    gpus: int,
) -> list[float]:
    """For each job, the integral of the contention over its life, in seconds."""
    moments, places = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    changes = np.bincount(places.ravel(), weights=np.concatenate([asked, -asked]))
    contention = np.maximum(1.0, np.cumsum(changes)[:-1] / max(1, gpus))
    passed = np.concatenate([[0.0], np.cumsum(contention * np.diff(moments))])
    count = len(begins)
    spent: list[float] = (passed[places.ravel()[count:]] - passed[places.ravel()[:count]]).tolist()
    return spent


def _rho(job: JobOutcome, contended_s: float) -> float | None:
    """JCT / (time alone · mean contention); `contended_s` is the JCT times that mean."""
    if job.jct is None or not 0 < job.alone_s < np.inf or contended_s <= 0:
        return None
    return job.jct * job.jct / (job.alone_s * contended_s)


def _over_teams(outcome: Outcome, by_job: Sequence[float | None]) -> float | None:
    """Jain's index of the mean speed that each team's jobs had, relative to their fair share: the mean of 1/rho.

    A job that did not end counts with a speed of zero.
    """
    teams: dict[str, list[float]] = {}
    for job, rho in zip(outcome.jobs, by_job, strict=True):
        speed = 1 / rho if rho else 0.0
        if rho is not None or job.ended_at is None:
            teams.setdefault(job.team or job.queue, []).append(speed)
    return jain([float(np.mean(np.sort(speeds))) for speeds in teams.values()])


def _mean(ordered: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float | None:
    return float(np.mean(ordered)) if ordered.size else None


def _percentile(ordered: np.ndarray[tuple[int], np.dtype[np.float64]], percent: float) -> float | None:
    return float(np.percentile(ordered, percent)) if ordered.size else None
