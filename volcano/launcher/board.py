# SPDX-License-Identifier: Apache-2.0
"""The queues of a cluster at a glance: GPUs, Jobs, and what was decided last. Taken from an index that watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.schemas.names import CORE, ELASTIC
from kfp_volcano.schemas.records import Phase

if TYPE_CHECKING:
    from collections.abc import Collection

    from kfp_volcano.elastic.autoscaler.observing.index import ClusterIndex
    from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts
    from kfp_volcano.elastic.autoscaler.observing.pod_facts import PodFacts
    from kfp_volcano.elastic.policies.snapshot import PendingGang
    from kfp_volcano.schemas.records import ResizeOutcome

__all__ = ["Board", "DecisionRow", "JobRow", "QueueRow", "board"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue."""

    queue: str
    limit: int
    """GPUs it may use at most."""
    deserved: int | None
    used: int
    """GPUs its pods hold."""
    free: int
    """GPUs it could still take."""
    jobs: int
    """Jobs that have not ended."""
    waiting: int
    """Gangs that wait."""
    waiting_gpus: int
    """GPUs that those lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A Job that has not ended."""

    job: str
    """namespace/name."""
    queue: str
    state: str
    running: int
    """Workers that run."""
    workers: int
    """Workers asked for."""
    target: int | None
    """The size that an open resize leads to."""
    sizes: tuple[int, int] | None
    """The least and the most it may have; None where it is not elastic."""
    gpus: int
    """GPUs its pods hold."""
    priority: str
    done: float | None
    """Share of its steps that are done."""
    held_by: str
    """Who holds the autoscaler off; empty for nobody."""
    held_until: float | None
    waits_since: float | None
    """Since when its gang waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """What was asked of a Job last."""

    job: str
    at: float
    """When it was asked for, Unix seconds."""
    from_workers: int
    to_workers: int
    reason: str
    explanation: str
    became: str
    """What came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All of it at one moment."""

    at: float
    """Unix seconds."""
    queues: tuple[QueueRow, ...]
    jobs: tuple[JobRow, ...]
    decisions: tuple[DecisionRow, ...]
    """Newest first."""


def board(index: ClusterIndex, now: float, queues: Collection[str] = ()) -> Board:
    """What there is to see in some queues, in all where none is named; the queues that hold something first."""
    wanted = sorted(queues or index.queues)
    rows, jobs, decisions = [], [], []
    for queue in wanted:
        snapshot = index.snapshot(queue, now)
        here = [job for job in index.jobs_of(queue) if not job.state.final]
        gangs = {gang.key: gang for gang in snapshot.pending}
        rows.append(
            QueueRow(
                queue=queue,
                limit=snapshot.limit_gpus,
                deserved=snapshot.deserved_gpus,
                used=snapshot.allocated_gpus,
                free=snapshot.free_gpus,
                jobs=len(here),
                waiting=len(gangs),
                waiting_gpus=sum(gang.gpus for gang in gangs.values()),
            )
        )
        jobs += [_job(job, index.pods_of(job.key), gangs.get(job.key), now) for job in sorted(here, key=_key)]
        decisions += [row for job in here if (row := _decision(job, now)) is not None]
    return Board(
        at=now,
        queues=tuple(sorted(rows, key=lambda row: (not (row.used or row.jobs), row.queue))),
        jobs=tuple(jobs),
        decisions=tuple(sorted(decisions, key=lambda row: (-row.at, row.job))),
    )


def _job(job: JobFacts, pods: Collection[PodFacts], gang: PendingGang | None, now: float) -> JobRow:
    held = job.hold if job.hold is not None and job.hold.until > now else None
    counted = [pod for pod in pods if job.range is None or pod.task in {CORE, ELASTIC}]
    return JobRow(
        job=job.key,
        queue=job.queue,
        state=job.state.value,
        running=sum(pod.runs and not pod.leaving for pod in counted),
        workers=job.workers if job.range else sum(task.replicas for task in job.tasks),
        target=job.target(now),
        sizes=(job.range.least, job.range.most) if job.range else None,
        gpus=sum(pod.request.gpus for pod in pods if pod.holds),
        priority=job.priority_class,
        done=job.pace.done if job.pace else None,
        held_by=held.by if held else "",
        held_until=held.until if held else None,
        waits_since=gang.since if gang else None,
    )


def _decision(job: JobFacts, now: float) -> DecisionRow | None:
    request, last = job.request, job.history.executing or job.history.last_ended
    if request is None:
        return None
    outcome = last if last is not None and last.id == request.id else None
    return DecisionRow(
        job=job.key,
        at=request.at,
        from_workers=request.from_workers,
        to_workers=request.to_workers,
        reason=request.reason,
        explanation=request.explanation,
        became=_became(outcome, expired=request.expires <= now),
    )


def _became(outcome: ResizeOutcome | None, *, expired: bool) -> str:
    if outcome is None:
        return "expired" if expired else "asked for"
    if outcome.phase is Phase.DONE and outcome.done_at is not None:
        return f"done in {max(0.0, outcome.done_at - outcome.requested_at):.0f} s"
    return outcome.phase.value


def _key(job: JobFacts) -> str:
    return job.key
