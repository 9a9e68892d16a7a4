# SPDX-License-Identifier: Apache-2.0
"""From what happened to an object to what its Job's controller is asked to do.

Sources: the event handlers (pkg/controllers/job/job_controller_handler.go), applyPolicies (job_controller_util.go),
TaskCompleted and TaskFailed (pkg/controllers/cache/cache.go), Volcano 1.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.durations import parse_duration
from kfp_volcano.volcano.model.objects import (
    Key,
    Manifest,
    Objects,
    Transition,
    container_statuses,
    controller_of,
    key_of,
    owned_by,
    phase_of,
    status_of,
)
from kfp_volcano.volcano.model.pods import OUT_OF_SYNC, VERSION, job_key, task_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["SYNC", "Request", "action_for", "request_for"]

SYNC = "SyncJob"
_INTERNAL = frozenset({"OutOfSync", "PodRunning", ""})
_ALIVE = frozenset({"Pending", "Running"})
_DEFAULT_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Request:
    """The controller shall look at a Job because of an event."""

    job: Key
    event: str = "OutOfSync"
    job_uid: str = ""
    """Of the Job that the pod belongs to; empty where the event is the Job's own."""
    task: str = ""
    pod: str = ""
    pod_uid: str = ""
    exit_code: int = 0
    action: str = ""
    """Asked for by a Command, whatever the policies say."""
    version: int | None = None
    """The Job's version when the pod was made: events of pods from before a restart are stale.

    A PodGroup's events carry none, which Volcano takes for the first: they are stale once a Job was restarted.
    """


def request_for(transition: Transition, objects: Objects) -> Request | None:
    """The request that a change of an object leads to, if any."""
    old, new = transition.old, transition.new
    if transition.kind == "Job":
        return Request(key_of(new)) if new is not None and _job_changed(old, new) else None
    if transition.kind == "PodGroup":
        if old is None or new is None or phase_of(old) == phase_of(new):
            return None
        owner = controller_of(new)
        job = (new["metadata"]["namespace"], owner["name"]) if owner else None
        return Request(job, "Unknown" if phase_of(new) == "Unknown" else "", version=0) if job else None
    if transition.kind == "Pod":
        pod = new or old
        return _pod_request(pod, _pod_event(old, new, objects)) if pod is not None and job_key(pod) else None
    return None


def action_for(job: Manifest, request: Request) -> tuple[str, float]:
    """The action of the first policy that matches, task's before Job's, and after how many seconds; else a sync."""
    if request.action:
        return request.action, 0
    if request.event in _INTERNAL:
        return SYNC, 0
    if request.job_uid and request.job_uid != job["metadata"]["uid"]:
        return SYNC, 0
    if request.version is not None and request.version < status_of(job).get("version", 0):
        return SYNC, 0
    for policy in _policies(job, request.task):
        if _matches(policy, request):
            return policy["action"], parse_duration(policy.get("timeout") or "0")
    return SYNC, 0


def _job_changed(old: Manifest | None, new: Manifest) -> bool:
    if old is None or old["spec"] != new["spec"]:
        return True
    return bool(status_of(old).get("state", {}).get("phase") != status_of(new).get("state", {}).get("phase"))


def _pod_request(pod: Manifest, event: str) -> Request:
    owner = controller_of(pod) or {}
    code = 0
    statuses = status_of(pod).get("containerStatuses") or ()
    if event == "PodFailed" and statuses:
        code = statuses[0].get("state", {}).get("terminated", {}).get("exitCode", 0)
    return Request(
        job=(pod["metadata"]["namespace"], owner["name"]),
        event=event,
        job_uid=owner["uid"],
        task=task_of(pod),
        pod=pod["metadata"]["name"],
        pod_uid=pod["metadata"]["uid"],
        exit_code=code,
        version=int(pod["metadata"]["annotations"].get(VERSION, 0)),
    )


def _pod_event(old: Manifest | None, new: Manifest | None, objects: Objects) -> str:
    pod = new or old
    if pod is None or OUT_OF_SYNC in pod["metadata"]["annotations"]:
        return "OutOfSync"
    if new is None:
        return "PodEvicted"
    before, after = phase_of(old) if old else "", phase_of(new)
    if after == "Failed":
        return "PodFailed" if before != after else "OutOfSync"
    if after == "Succeeded":
        return "TaskCompleted" if before != after and _task_completed(new, objects) else "OutOfSync"
    if before != after:
        return f"Pod{after}"
    return "TaskFailed" if _task_failed(new, objects) else "OutOfSync"


def _task(pod: Manifest, objects: Objects) -> tuple[Mapping[str, Any], list[Manifest]] | None:
    """The task of a pod as its Job has it now, and the task's pods."""
    key, name = job_key(pod), task_of(pod)
    job = objects.get("Job", {}).get(key) if key else None
    task = next((each for each in job["spec"]["tasks"] if each["name"] == name), None) if job else None
    if task is None:
        return None
    owner = controller_of(pod) or {}
    return task, [each for each in owned_by(objects, "Pod", owner["uid"]) if task_of(each) == name]


def _task_completed(pod: Manifest, objects: Objects) -> bool:
    found = _task(pod, objects)
    if found is None:
        return False
    task, members = found
    return 0 < int(task["replicas"]) <= sum(phase_of(each) == "Succeeded" for each in members)


def _task_failed(pod: Manifest, objects: Objects) -> bool:
    """Whether the restarts of a task's living pods, added up, have reached its `maxRetry`."""
    found = _task(pod, objects)
    if found is None:
        return False
    task, members = found
    limit = task.get("maxRetry") or _DEFAULT_RETRIES
    if task["replicas"] == 0 or limit < 0:
        return False
    return sum(_restarts(each) for each in members if phase_of(each) in _ALIVE) >= int(limit)


def _restarts(pod: Manifest) -> int:
    return sum(container.get("restartCount", 0) for container in container_statuses(pod))


def _policies(job: Manifest, task: str) -> Iterator[Mapping[str, Any]]:
    for each in job["spec"]["tasks"]:
        if each["name"] == task:
            yield from each.get("policies") or ()
    yield from job["spec"].get("policies") or ()


def _matches(policy: Mapping[str, Any], request: Request) -> bool:
    """A pod that waits is a reason only together with a `timeout`."""
    events = {*(policy.get("events") or ()), policy.get("event")}
    if (request.event in events or "*" in events) and (request.event != "PodPending" or policy.get("timeout")):
        return True
    code = policy.get("exitCode")
    return code is not None and code == request.exit_code
