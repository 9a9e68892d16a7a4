# SPDX-License-Identifier: Apache-2.0
"""From what is known of a Job and its pods to what a policy may know of it: an elastic Job, or a gang that waits.

A gang that is not admitted yet has no pods: what it lacks is read off its Job, or off its PodGroup where Ray, Spark or
others made that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.policies.snapshot import NOWHERE, ElasticJob, Measured, PendingGang, WorkerPod
from kfp_volcano.schemas.names import CORE, ELASTIC
from kfp_volcano.volcano.manifests.status import JobState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts, Pace
    from kfp_volcano.elastic.autoscaler.observing.needs import Needs
    from kfp_volcano.elastic.autoscaler.observing.node_table import NodeTable
    from kfp_volcano.elastic.autoscaler.observing.pod_facts import GroupFacts, PodFacts

__all__ = ["as_of", "elastic_job", "gang_of", "loose_gang", "promised", "timeline_of", "worker_needs", "worker_pods"]

_ACTIVE = {JobState.PENDING, JobState.RUNNING, JobState.RESTARTING}
"""Whose gang runs or wants to."""


def elastic_job(job: JobFacts, pods: Collection[PodFacts], table: NodeTable, priority: int) -> ElasticJob | None:
    """The Job as a policy may see it, a request that is not taken up counting as open; None if it is not elastic."""
    allowed, needs = job.range, worker_needs(job)
    if allowed is None or needs is None:
        return None
    workers = _workers(job, pods)
    if not job.running and not _in_its_own_way(job, workers, allowed.least):
        return None
    target, pace, history = job.target(0.0), job.pace, job.history
    surplus = [pod for pod in workers[allowed.least :] if pod is not None]
    return ElasticJob(
        key=job.key,
        workers=len(workers),
        running=sum(pod.runs for pod in workers if pod is not None),
        min_workers=allowed.least,
        max_workers=allowed.most,
        sizes=allowed.sizes,
        gpus_per_worker=needs.gpus,
        nodes=tuple(table.place(pod.node) if pod is not None and pod.stays else NOWHERE for pod in workers),
        shape=needs.shape.name,
        priority=priority,
        priority_class=job.priority_class,
        created_at=job.created,
        cooldown_s=allowed.cooldown_s,
        last_resize_at=history.last_at,
        last_failed=history.last_failed,
        resize_open=target is not None,
        target_workers=target,
        waiting_since=min((pod.created for pod in surplus if pod.waits), default=None),
        ended=sum(pod.ended for pod in surplus),
        hold=job.hold,
        remaining_s=pace.remaining_s if pace else None,
        remaining_samples=pace.remaining_samples if pace else None,
        done=pace.done if pace else None,
        batch=pace.batch if pace else None,
        measured=_measured(pace, needs, workers, table) if pace else (),
        noise_scale=pace.noise_scale if pace else None,
        diverging=pace is not None and pace.diverging,
        watched=pace.watched if pace else None,
        resizes=history.resizes,
    )


def _in_its_own_way(job: JobFacts, workers: Sequence[PodFacts | None], least: int) -> bool:
    """Whether a Job that does not run waits for its gang beside surplus of its own that Volcano may place before.

    It does for a Job without a priority class: its surplus has the gang's priority, and Volcano takes pods of one
    priority by their index (`elastic-0` before `core-1`), as often as it takes to find that the gang does not fit.
    """
    if job.state not in _ACTIVE or job.leaving or job.priority_class:
        return False
    return any(pod is not None and pod.waits for pod in workers[least:])


def _measured(pace: Pace, needs: Needs, workers: Sequence[PodFacts | None], table: NodeTable) -> tuple[Measured, ...]:
    """What training measured, with the GPU class where it is known: at the present size, or where there is one only.

    Training does not know on what it runs.
    """
    allowed = needs.shape.gpu_classes
    if len(allowed) == 1:
        return tuple(replace(each, gpu_class=allowed[0]) for each in pace.measured)
    present = {table.gpu_class(pod.node) for pod in workers if pod is not None and pod.stays}
    if len(present) != 1:
        return pace.measured
    (gpu_class,) = present
    return tuple(replace(each, gpu_class=gpu_class) if each.workers == len(workers) else each for each in pace.measured)


def as_of(seen: ElasticJob, job: JobFacts, now: float) -> ElasticJob:
    """The same at a time: a request that nobody has taken up runs out."""
    if seen.target_workers is None or job.target(now) is not None:
        return seen
    return replace(seen, resize_open=False, target_workers=None)


def promised(seen: ElasticJob) -> int:
    """Workers that were asked for and hold nothing yet; what a core lacks waits as a gang of its own."""
    return max(0, seen.nodes[seen.min_workers :].count(NOWHERE) - seen.ended) + max(
        0, (seen.target_workers or 0) - seen.workers
    )


def worker_needs(job: JobFacts) -> Needs | None:
    """What its workers need; None where it has none of ours."""
    return next((task.needs for task in job.tasks if task.name == CORE), None)


def worker_pods(pods: Collection[PodFacts]) -> tuple[WorkerPod, ...]:
    """A Job's workers' pods as per-worker metrics see them, terminating ones too."""
    return tuple(
        WorkerPod(
            name=pod.name,
            phase=pod.phase,
            terminating=pod.leaving,
            ready=pod.ready,
            ready_since=pod.ready_since,
            started_at=pod.started,
            requests=pod.request.amounts,
        )
        for pod in sorted(pods, key=lambda pod: (pod.task, pod.index))
        if pod.task in {CORE, ELASTIC}
    )


def gang_of(job: JobFacts, pods: Collection[PodFacts], priority: int) -> PendingGang | None:
    """The gang of a Job, if its minimum is not on nodes: what it lacks."""
    if job.state not in _ACTIVE or job.leaving:
        return None
    there = Counter(pod.task for pod in pods if pod.stays or pod.phase == "Succeeded")
    lacking = [task.needs for task in job.tasks for _ in range(max(0, task.least - there[task.name]))]
    # A gang that is smaller than its tasks' minimums together runs with the first that come.
    lacking.sort(key=lambda needs: -needs.gpus)
    most = len(lacking) if job.gang is None else max(0, job.gang - sum(there[task.name] for task in job.tasks))
    wanted = [needs for needs in lacking[:most] if needs.gpus]
    if not wanted:
        return None
    return PendingGang(
        key=job.key,
        pods=tuple(needs.gpus for needs in wanted),
        since=job.created,
        priority=priority,
        shape=wanted[0].shape.name,
    )


def loose_gang(group: GroupFacts, priority: int) -> PendingGang | None:
    """The gang of a PodGroup that no Volcano Job owns, if it waits."""
    if group.job or not group.waits or not group.gpus:
        return None
    each, more = divmod(group.gpus, group.members)
    pods = tuple(gpus for index in range(group.members) if (gpus := each + (index < more)))
    return PendingGang(key=group.key, pods=pods, since=group.created, priority=priority)


def timeline_of(job: JobFacts, pods: Collection[PodFacts], gang: PendingGang | None) -> dict[str, Any] | None:
    """A Job's part of its queue's line in the timeline, None where it neither runs nor wants to, nor holds anything."""
    held = sum(pod.request.gpus for pod in pods if pod.holds)
    if job.state not in _ACTIVE and not held:
        return None
    pending = sum(pod.request.gpus for pod in pods if pod.waits)
    workers = sum(pod.runs and not pod.leaving for pod in pods if pod.task in {CORE, ELASTIC})
    return {
        "job": job.key,
        "team": job.team,
        "gpus": held,
        "pending_gpus": max(pending, gang.gpus if gang else 0),
        "phase": job.state.value,
        "workers": workers if job.range is not None else None,
    }


def _workers(job: JobFacts, pods: Collection[PodFacts]) -> Sequence[PodFacts | None]:
    """The pod of each worker that is asked for, in the order in which they stay."""
    present = {(pod.task, pod.index): pod for pod in pods if not pod.leaving}
    replicas = {task.name: task.replicas for task in job.tasks}
    return [present.get((task, index)) for task in (CORE, ELASTIC) for index in range(replicas.get(task, 0))]
