# SPDX-License-Identifier: Apache-2.0
"""What a cycle writes down: pods' nodes and ends, PodGroups' phases and conditions, queues' allocations.

Sources: getPodGroupPhase, jobStatus, updateQueueStatus (pkg/scheduler/framework/session.go), gang's OnSessionClose
(pkg/scheduler/plugins/gang), TaskSchedulingReason (pkg/scheduler/api/job_info.go), Evict and taskUnschedulable
(pkg/scheduler/cache/cache.go), Allocate (pkg/scheduler/api/devices/nvidia/vgpu), Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import VGPU_CORES, VGPU_MEMORY
from kfp_volcano.volcano.model.cards import assignment
from kfp_volcano.volcano.model.objects import Change, Delete, Manifest, Objects, Update, phase_of, status_of, time_text
from kfp_volcano.volcano.model.resources import add, quantities
from kfp_volcano.volcano.model.tasks import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.session import Session
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["changes"]

_SCHEDULED = (Status.BOUND, Status.RUNNING, Status.SUCCEEDED, Status.FAILED)
_ENDED = (Status.SUCCEEDED, Status.FAILED)


def changes(session: Session, objects: Objects, now: float) -> Iterator[Change]:
    """The changes that a session has decided on."""
    for gang in session.gangs:
        for task in gang.tasks:
            yield from _pod(task, now)
        yield from _group(session, gang, now)
    yield from _queues(session, objects)


def _pod(task: Task, now: float) -> Iterator[Change]:
    if task.status is Status.BINDING:
        pod = {**task.pod, "spec": {**task.pod["spec"], "nodeName": task.node}}
        if task.shares:
            notes = {**(pod["metadata"].get("annotations") or {}), **assignment(task.node, task.shares, now)}
            pod["metadata"] = {**pod["metadata"], "annotations": notes}
        yield _with_condition(pod, {"type": "PodScheduled", "status": "True"}, now)
    elif task.status is Status.RELEASING and "deletionTimestamp" not in task.pod["metadata"]:
        why = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        yield _with_condition(task.pod, why, now)
        yield Delete("Pod", task.key)
    elif task.status in {Status.PENDING, Status.ALLOCATED, Status.PIPELINED}:
        yield from _waiting_pod(task, now)


def _waiting_pod(task: Task, now: float) -> Iterator[Change]:
    message, reason, pod = task.message, "Unschedulable", task.pod
    if task.status is Status.ALLOCATED:
        reason = "Schedulable"
        message = f"can possibly be assigned to {task.node}, once minAvailable is satisfied"
    elif task.status is Status.PIPELINED:
        message = f"can possibly be assigned to {task.node}, once resource is released and minAvailable is satisfied"
        if task.evicting:
            pod = {**pod, "status": {**status_of(pod), "nominatedNodeName": task.node}}
    if message:
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        yield _with_condition(pod, condition, now)


def _group(session: Session, gang: Gang, now: float) -> Iterator[Change]:
    group, before = gang.group, phase_of(gang.group)
    unschedulable = False
    if gang in session.refused:
        group = _with_unschedulable(group, session.refused[gang], now)
    elif gang.tasks and not gang.ready:
        unschedulable = True
        group = _with_unschedulable(group, _why_unready(gang), now)
    elif gang.tasks:
        reason = "tasks in gang are ready to be scheduled"
        condition = {"type": "Scheduled", "status": "True", "reason": reason, "message": ""}
        group = _with_condition(group, condition, now).manifest
    phase = _phase(gang, "Inqueue" if gang in session.enqueued else before, unschedulable=unschedulable)
    counted = {
        "running": gang.count(Status.RUNNING),
        "succeeded": gang.count(Status.SUCCEEDED),
        "failed": gang.count(Status.FAILED),
    }
    status = {**status_of(group), "phase": phase, **counted}
    if status != status_of(gang.group):
        yield Update({**group, "status": status})


def _phase(gang: Gang, phase: str, *, unschedulable: bool) -> str:
    """getPodGroupPhase; pods that this cycle bound do not count yet."""
    if unschedulable and gang.count(Status.RUNNING):
        return "Unknown"
    scheduled = gang.count(*_SCHEDULED)
    if scheduled >= gang.minimum:
        return "Completed" if scheduled == gang.count(*_ENDED) else "Running"
    return phase if phase == "Inqueue" else "Pending"


def _why_unready(gang: Gang) -> str:
    missing = gang.minimum - gang.ready_count
    reasons = dict.fromkeys(task.message for task in gang.tasks if task.message)
    if gang.shortage:
        reasons = {gang.shortage: None}
    return f"{missing}/{len(gang.tasks)} tasks in gang unschedulable: {'; '.join(reasons) or 'pod group is not ready'}"


def _with_unschedulable(group: Manifest, message: str, now: float) -> Manifest:
    condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": message}
    return _with_condition(group, condition, now).manifest


def _with_condition(manifest: Manifest, condition: Mapping[str, str], now: float) -> Update:
    """The object with this condition as its newest; untouched where it says so already."""
    conditions: list[dict[str, Any]] = list(status_of(manifest).get("conditions") or ())
    latest = conditions[-1] if conditions else {}
    if {**latest, **condition} == latest:
        return Update(manifest)
    kept = [each for each in conditions if each["type"] != condition["type"]]
    stated = {**condition, "lastTransitionTime": time_text(now)}
    return Update({**manifest, "status": {**status_of(manifest), "conditions": [*kept, stated]}})


def _usage(task: Task) -> Mapping[str, int]:
    """What a pod counts for in its queue's status: of shared GPUs what it holds of all cards (AddQueueResource)."""
    shares = [share for container in task.shares for share in container]
    if not shares:
        return task.request
    memory, cores = sum(share.memory for share in shares), sum(share.cores for share in shares)
    return {**task.request, VGPU_MEMORY: memory * 1000, VGPU_CORES: cores * 1000}


def _queues(session: Session, objects: Objects) -> Iterator[Change]:
    totals: dict[str, dict[str, int]] = {name: {} for name in session.queues}
    for gang in session.gangs:
        for task in gang.tasks:
            if task.status.allocated:
                totals[gang.queue] = add(totals[gang.queue], _usage(task))
    for name, share in reversed(session.queues.items()):
        if share.parent is not None:
            totals[share.parent] = add(totals[share.parent], totals[name])
        queue = objects["Queue"]["", name]
        allocated = quantities(totals[name])
        if allocated != status_of(queue).get("allocated"):
            yield Update({**queue, "status": {**status_of(queue), "allocated": allocated}})
