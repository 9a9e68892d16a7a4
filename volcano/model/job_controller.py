"""The job controller: from a Job, its pods and what it is asked, to what shall change.

Sources: pkg/controllers/job/job_controller_actions.go (syncJob, killPods) and pkg/controllers/job/state, Volcano
1.15.1. Two rules of it matter most to a resize: pods are made and deleted only while the PodGroup is not Pending, and
a task's pods with an index of `replicas` or more are deleted, whatever they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from kfp_volcano.volcano.model.lifecycle import SYNC, Request, action_for
from kfp_volcano.volcano.model.objects import (
    Change,
    Create,
    Delete,
    Manifest,
    Objects,
    Update,
    key_of,
    phase_of,
    status_of,
    terminating,
    time_text,
)
from kfp_volcano.volcano.model.pod_groups import build_pod_group, group_key, updated_pod_group
from kfp_volcano.volcano.model.pods import OUT_OF_SYNC, build_pod, counts, hosts_config, pods_of, runs_plugin

__all__ = ["FINISHED", "reconcile"]

FINISHED = frozenset({"Completed", "Failed", "Terminated"})
"""Phases of a Job that it never leaves."""

_KEEP_NONE: frozenset[str] = frozenset()
_KEEP_ENDED = frozenset({"Succeeded", "Failed"})
_KILLS = {
    "RestartJob": ("Restarting", _KEEP_NONE),
    "AbortJob": ("Aborting", _KEEP_ENDED),
    "TerminateJob": ("Terminating", _KEEP_ENDED),
    "CompleteJob": ("Completing", _KEEP_ENDED),
}
_TARGETED = frozenset({"RestartTask", "RestartPod"})
_ENDS = {"Aborting": "Aborted", "Terminating": "Terminated", "Completing": "Completed"}

_Status: TypeAlias = dict[str, Any]
_NextPhase: TypeAlias = Callable[[Manifest, _Status], str]
"""From a Job and its new counts to the phase it takes."""


def reconcile(objects: Objects, request: Request, now: float) -> list[Change]:
    """What one request to a Job's controller changes."""
    job = objects.get("Job", {}).get(request.job)
    if job is None or terminating(job):
        return []
    action = action_for(job, request)
    phase = status_of(job).get("state", {}).get("phase", "")
    if phase in {"", "Pending", "Running"}:
        return list(_run(objects, job, request, action, now))
    if phase == "Restarting":
        return list(_restart(objects, job, request, action, now))
    if phase in {"Aborting", "Aborted"} and action == "ResumeJob":
        return list(_kill(objects, job, now, _KEEP_ENDED, _to("Restarting"), retry=True))
    if phase in _ENDS:
        return list(_kill(objects, job, now, _KEEP_ENDED, _when_quiet))
    return list(_kill(objects, job, now, _KEEP_ENDED, _unchanged))


def _run(objects: Objects, job: Manifest, request: Request, action: str, now: float) -> Iterator[Change]:
    if action in _KILLS:
        phase, keep = _KILLS[action]
        return _kill(objects, job, now, keep, _to(phase), retry=action == "RestartJob")
    if action in _TARGETED:
        return _kill_target(objects, job, request, action=action, now=now, next_phase=_to("Restarting"), retry=True)
    started = status_of(job).get("state", {}).get("phase") == "Running"
    return _sync(objects, job, now, _after_running if started else _after_pending)


def _restart(objects: Objects, job: Manifest, request: Request, action: str, now: float) -> Iterator[Change]:
    if action == SYNC:
        return _sync(objects, job, now, _after_restarting)
    if action in _TARGETED:
        return _kill_target(objects, job, request, action=action, now=now, next_phase=_after_restarting)
    return _kill(objects, job, now, _KEEP_NONE, _after_restarting)


def _to(phase: str) -> _NextPhase:
    return lambda _job, _status: phase


def _unchanged(_job: Manifest, status: _Status) -> str:
    return str(status["state"]["phase"])


def _when_quiet(job: Manifest, status: _Status) -> str:
    """The end of a phase that waits for the pods to go."""
    alive = status["terminating"] or status["pending"] or status["running"]
    return _unchanged(job, status) if alive else _ENDS[status["state"]["phase"]]


def _after_pending(job: Manifest, status: _Status) -> str:
    arrived = status["running"] + status["succeeded"] + status["failed"]
    return "Running" if job["spec"]["minAvailable"] <= arrived else "Pending"


def _after_restarting(job: Manifest, status: _Status) -> str:
    if status["retryCount"] >= job["spec"]["maxRetry"]:
        return "Failed"
    left = _total(job) - status["terminating"]
    return "Pending" if left >= status["minAvailable"] else "Restarting"


def _after_running(job: Manifest, status: _Status) -> str:
    spec, total = job["spec"], _total(job)
    least = spec.get("minSuccess")
    if total == 0:
        return "Running"
    if least is not None and status["succeeded"] >= least:
        return "Completed"
    if status["succeeded"] + status["failed"] == total:
        return _verdict(spec, status, spec["minAvailable"] if least is None else least)
    return "Pending" if status["pending"] > total - spec["minAvailable"] else "Running"


def _verdict(spec: Mapping[str, Any], status: _Status, least: int) -> str:
    """How a Job ended whose pods have all ended."""
    if spec["minAvailable"] >= sum(task["minAvailable"] for task in spec["tasks"]):
        for task in spec["tasks"]:
            phases = status["taskStatusCount"].get(task["name"], {}).get("phase")
            if phases is not None and phases.get("Succeeded", 0) < task["minAvailable"]:
                return "Failed"
    return "Completed" if status["succeeded"] >= least else "Failed"


def _total(job: Manifest) -> int:
    return sum(task["replicas"] for task in job["spec"]["tasks"])


def _sync(objects: Objects, job: Manifest, now: float, next_phase: _NextPhase) -> Iterator[Change]:
    """syncJob: PodGroup and hosts as the Job says, then, once it is enqueued, pods as it says."""
    pending = status_of(job).get("state", {}).get("phase", "") in {"", "Pending"}
    if runs_plugin(job, "svc"):
        yield from _publish_hosts(objects, job, refresh=not pending)
    group = objects.get("PodGroup", {}).get(group_key(job))
    if group is None:
        yield Create(build_pod_group(job, objects))
    else:
        yield Update(updated_pod_group(group, job, objects))
    pods = pods_of(job, objects)
    if group is None or phase_of(group) in {"", "Pending"}:
        status = {**_blank_status(job), **status_of(job)}
    else:
        yield from _scale(job, pods)
        status = {**_blank_status(job), **status_of(job), **_counts_after(job, pods)}
        status["minAvailable"] = job["spec"]["minAvailable"]
    yield from _with_status(job, status, next_phase(job, status), now)


def _publish_hosts(objects: Objects, job: Manifest, *, refresh: bool) -> Iterator[Change]:
    """A Job that is Pending keeps the host list it was made with (svc.OnJobAdd, OnJobUpdate)."""
    wanted = hosts_config(job)
    present = objects.get("ConfigMap", {}).get(key_of(wanted))
    if present is None:
        yield Create(wanted)
    elif refresh:
        yield Update({**present, "data": wanted["data"]})


def _scale(job: Manifest, pods: Mapping[str, Mapping[str, Manifest]]) -> Iterator[Change]:
    for task in job["spec"]["tasks"]:
        present = pods[task["name"]]
        if not _parents_ready(job, task, pods):
            continue
        for index in range(task["replicas"]):
            if f"{key_of(job)[1]}-{task['name']}-{index}" not in present:
                yield Create(build_pod(job, task, index))
    for pod in _surplus(job, pods):
        yield Delete("Pod", key_of(pod))


def _surplus(job: Manifest, pods: Mapping[str, Mapping[str, Manifest]]) -> list[Manifest]:
    """The pods that are too many or out of step, and have not been asked to go yet."""
    found = []
    for task in job["spec"]["tasks"]:
        wanted = {f"{key_of(job)[1]}-{task['name']}-{index}" for index in range(task["replicas"])}
        for name, pod in pods[task["name"]].items():
            stale = OUT_OF_SYNC in (pod["metadata"].get("annotations") or {})
            if (name not in wanted or stale) and not terminating(pod):
                found.append(pod)
    return found


def _parents_ready(job: Manifest, task: Mapping[str, Any], pods: Mapping[str, Mapping[str, Manifest]]) -> bool:
    """Whether the tasks that this one depends on have their minimum running or done."""
    depends = task.get("dependsOn")
    if not depends:
        return True
    minimums = {each["name"]: each["minAvailable"] for each in job["spec"]["tasks"]}
    ready = [
        sum(phase_of(pod) in {"Running", "Succeeded"} for pod in pods.get(name, {}).values()) >= minimums.get(name, 0)
        for name in depends["name"]
    ]
    return any(ready) if depends.get("iteration") == "any" else all(ready)


def _counts_after(job: Manifest, pods: Mapping[str, Mapping[str, Manifest]]) -> _Status:
    """The counts once what `_scale` asks for is under way: new pods are Pending, surplus is going."""
    going = {pod["metadata"]["name"] for pod in _surplus(job, pods)}
    staying = {
        task: {name: pod for name, pod in members.items() if name not in going} for task, members in pods.items()
    }
    counted = counts(staying)
    counted["terminating"] += len(going)
    for task in job["spec"]["tasks"]:
        if not _parents_ready(job, task, pods):
            continue
        new = sum(
            f"{key_of(job)[1]}-{task['name']}-{index}" not in pods[task["name"]] for index in range(task["replicas"])
        )
        if new:
            counted["pending"] += new
            phases = counted["taskStatusCount"].setdefault(task["name"], {"phase": {}})["phase"]
            phases["Pending"] = phases.get("Pending", 0) + new
    return counted


def _kill(
    objects: Objects, job: Manifest, now: float, keep: frozenset[str], next_phase: _NextPhase, *, retry: bool = False
) -> Iterator[Change]:
    """killJob: every pod but those in a phase to keep, and the PodGroup and hosts."""
    status = {**_blank_status(job), **status_of(job)}
    if status["retryCount"] >= job["spec"]["maxRetry"] - 1:
        keep = _KEEP_ENDED
    pods = pods_of(job, objects)
    doomed = [
        pod
        for members in pods.values()
        for pod in members.values()
        if not terminating(pod) and phase_of(pod) not in keep
    ]
    yield from _end(doomed)
    for kind, key in (("PodGroup", group_key(job)), ("ConfigMap", key_of(hosts_config(job)))):
        if key in objects.get(kind, {}):
            yield Delete(kind, key)
    status.update(_counts_without(pods, doomed))
    phase = next_phase(job, {**status, "retryCount": status["retryCount"] + retry})
    if doomed or phase != status["state"]["phase"]:
        status["version"] += 1
    status["retryCount"] += retry
    yield from _with_status(job, status, phase, now)


def _kill_target(
    objects: Objects,
    job: Manifest,
    request: Request,
    *,
    action: str,
    now: float,
    next_phase: _NextPhase,
    retry: bool = False,
) -> Iterator[Change]:
    """killTarget: the pods of a task, or one pod; in 1.15.1 PodGroup and hosts go too (fixed upstream by #5342)."""
    status = {**_blank_status(job), **status_of(job)}
    pods = pods_of(job, objects)
    doomed = [
        pod
        for name, pod in pods.get(request.task, {}).items()
        if (action == "RestartTask" or name == request.pod) and not terminating(pod)
    ]
    yield from _end(doomed)
    for kind, key in (("PodGroup", group_key(job)), ("ConfigMap", key_of(hosts_config(job)))):
        if key in objects.get(kind, {}):
            yield Delete(kind, key)
    status.update(_counts_without(pods, doomed))
    status["retryCount"] += retry
    yield from _with_status(job, status, next_phase(job, status), now)


def _end(pods: list[Manifest]) -> Iterator[Change]:
    for pod in pods:
        marked = {**(pod["metadata"].get("annotations") or {}), OUT_OF_SYNC: "true"}
        yield Update({**pod, "metadata": {**pod["metadata"], "annotations": marked}})
        yield Delete("Pod", key_of(pod))


def _counts_without(pods: Mapping[str, Mapping[str, Manifest]], doomed: list[Manifest]) -> _Status:
    gone = {key_of(pod) for pod in doomed}
    counted = counts(
        {
            task: {name: pod for name, pod in members.items() if key_of(pod) not in gone}
            for task, members in pods.items()
        }
    )
    counted["terminating"] += len(doomed)
    return counted


def _blank_status(job: Manifest) -> _Status:
    return {
        "state": {"phase": "Pending"},
        "minAvailable": job["spec"]["minAvailable"],
        "version": 0,
        "retryCount": 0,
        **counts({}),
    }


def _with_status(job: Manifest, status: _Status, phase: str, now: float) -> Iterator[Change]:
    """The Job with its new status, if that differs; a change of phase is a condition, too."""
    before = status_of(job)
    if status == before and phase == before["state"]["phase"]:
        return
    at = time_text(now)
    status = {**status, "state": {"phase": phase, "lastTransitionTime": at}}
    if phase != before.get("state", {}).get("phase"):
        entered = {"status": phase, "lastTransitionTime": at}
        status["conditions"] = [*(before.get("conditions") or ()), entered]
    yield Update({**job, "status": status})
