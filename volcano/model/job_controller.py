# SPDX-License-Identifier: Apache-2.0
"""The job controller: from a Job, its pods and what it is asked, to what shall change.

Sources: pkg/controllers/job/job_controller_actions.go (syncJob, killPods) and what each state does with an action
(pkg/controllers/job/state), Volcano 1.15.1. A rule that matters to a resize: pods are made and deleted only while the
PodGroup is not Pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model import ssh
from kfp_volcano.volcano.model.job_phases import (
    ENDS,
    NextPhase,
    Status,
    after_pending,
    after_restarting,
    after_running,
    to_phase,
    unchanged,
    when_quiet,
)
from kfp_volcano.volcano.model.lifecycle import SYNC, Request
from kfp_volcano.volcano.model.objects import (
    Change,
    Create,
    CreateKeys,
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
from kfp_volcano.volcano.model.pods import OUT_OF_SYNC, counts, hosts_config, owner_reference, pods_of, runs_plugin
from kfp_volcano.volcano.model.replicas import counts_after, missing_pods, refused_roles, surplus_pods

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["reconcile"]

_KEEP_NONE: frozenset[str] = frozenset()
_KEEP_ENDED = frozenset({"Succeeded", "Failed"})
_KILLS = {
    "RestartJob": ("Restarting", _KEEP_NONE),
    "AbortJob": ("Aborting", _KEEP_ENDED),
    "TerminateJob": ("Terminating", _KEEP_ENDED),
    "CompleteJob": ("Completing", _KEEP_ENDED),
}
_TARGETED = frozenset({"RestartTask", "RestartPod", "RestartPartition"})


def reconcile(objects: Objects, request: Request, action: str, now: float) -> list[Change]:
    """What an action changes that a request to a Job's controller led to (`lifecycle.action_for`)."""
    job = objects.get("Job", {}).get(request.job)
    if job is None or terminating(job):
        return []
    phase = status_of(job).get("state", {}).get("phase", "")
    if phase in {"", "Pending", "Running"}:
        return list(_run(objects, job, request, action, now))
    if phase == "Restarting":
        return list(_restart(objects, job, request, action, now))
    if phase in {"Aborting", "Aborted"} and action == "ResumeJob":
        return list(_kill(objects, job, now, _KEEP_ENDED, to_phase("Restarting"), retry=True))
    if phase in ENDS:
        return list(_kill(objects, job, now, _KEEP_ENDED, when_quiet))
    return list(_kill(objects, job, now, _KEEP_ENDED, unchanged))


def _run(objects: Objects, job: Manifest, request: Request, action: str, now: float) -> Iterator[Change]:
    if action in _KILLS:
        phase, keep = _KILLS[action]
        return _kill(objects, job, now, keep, to_phase(phase), retry=action == "RestartJob")
    if action in _TARGETED:
        return _kill_target(
            objects, job, request, action=action, now=now, next_phase=to_phase("Restarting"), retry=True
        )
    started = status_of(job).get("state", {}).get("phase") == "Running"
    return _sync(objects, job, now, after_running if started else after_pending)


def _restart(objects: Objects, job: Manifest, request: Request, action: str, now: float) -> Iterator[Change]:
    if action == SYNC:
        return _sync(objects, job, now, after_restarting)
    if action in _TARGETED:
        return _kill_target(objects, job, request, action=action, now=now, next_phase=after_restarting)
    return _kill(objects, job, now, _KEEP_NONE, after_restarting)


def _sync(objects: Objects, job: Manifest, now: float, next_phase: NextPhase) -> Iterator[Change]:
    """syncJob: PodGroup and hosts as the Job says, then, once it is enqueued, pods as it says."""
    pending = status_of(job).get("state", {}).get("phase", "") in {"", "Pending"}
    if runs_plugin(job, "svc"):
        yield from _publish_hosts(objects, job, refresh=not pending)
    if runs_plugin(job, "ssh") and ssh.secret_key(job) not in objects.get("Secret", {}):
        yield CreateKeys(ssh.secret_without_keys(job, owner_reference(job)))
    group = objects.get("PodGroup", {}).get(group_key(job))
    if group is None:
        yield Create(build_pod_group(job, objects))
    else:
        yield Update(updated_pod_group(group, job, objects))
    pods = pods_of(job, objects)
    if group is None or phase_of(group) in {"", "Pending"}:
        status = {**_blank_status(job), **status_of(job)}
    else:
        refused = refused_roles(objects, job, pods)
        yield from map(Create, missing_pods(job, pods, refused))
        if refused:
            return
        yield from (Delete("Pod", key_of(pod)) for pod in surplus_pods(job, pods))
        status = {**_blank_status(job), **status_of(job), **counts_after(job, pods)}
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


def _kill(
    objects: Objects, job: Manifest, now: float, keep: frozenset[str], next_phase: NextPhase, *, retry: bool = False
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
    yield from _unplug(objects, job)
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
    next_phase: NextPhase,
    retry: bool = False,
) -> Iterator[Change]:
    """killTarget: the pods of a task, of a partition of it, or one pod; a partition that is empty is left alone.

    Of all others nothing is counted, and PodGroup and hosts go too (fixed upstream by #5342).
    """
    members = pods_of(job, objects).get(request.task, {})
    targets = [pod for name, pod in members.items() if _is_target(job, request, action, name)]
    if action == "RestartPartition" and not targets:
        return
    yield from _end([pod for pod in targets if not terminating(pod)])
    yield from _unplug(objects, job)
    status = {**_blank_status(job), **status_of(job), **counts({}), "terminating": len(targets)}
    status["retryCount"] += retry
    yield from _with_status(job, status, next_phase(job, status), now)


def _is_target(job: Manifest, request: Request, action: str, pod: str) -> bool:
    if action != "RestartPartition":
        return action == "RestartTask" or pod == request.pod
    partitions = next(task.get("partitionPolicy") for task in job["spec"]["tasks"] if task["name"] == request.task)
    if not partitions:
        return False
    size = partitions["partitionSize"]
    return bool(_index_of(pod) // size == _index_of(request.pod) // size)


def _index_of(pod: str) -> int:
    return int(pod.rpartition("-")[2])


def _unplug(objects: Objects, job: Manifest) -> Iterator[Change]:
    """Take away the PodGroup and what the plugins made."""
    made = (("PodGroup", group_key(job)), ("ConfigMap", key_of(hosts_config(job))), ("Secret", ssh.secret_key(job)))
    for kind, key in made:
        if key in objects.get(kind, {}):
            yield Delete(kind, key)


def _end(pods: list[Manifest]) -> Iterator[Change]:
    for pod in pods:
        marked = {**(pod["metadata"].get("annotations") or {}), OUT_OF_SYNC: "true"}
        yield Update({**pod, "metadata": {**pod["metadata"], "annotations": marked}})
        yield Delete("Pod", key_of(pod))


def _counts_without(pods: Mapping[str, Mapping[str, Manifest]], doomed: list[Manifest]) -> Status:
    gone = {key_of(pod) for pod in doomed}
    counted = counts(
        {
            task: {name: pod for name, pod in members.items() if key_of(pod) not in gone}
            for task, members in pods.items()
        }
    )
    counted["terminating"] += len(doomed)
    return counted


def _blank_status(job: Manifest) -> Status:
    return {
        "state": {"phase": "Pending"},
        "minAvailable": job["spec"]["minAvailable"],
        "version": 0,
        "retryCount": 0,
        **counts({}),
    }


def _with_status(job: Manifest, status: Status, phase: str, now: float) -> Iterator[Change]:
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
