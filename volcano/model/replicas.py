# SPDX-License-Identifier: Apache-2.0
"""The pods of a Job against what its tasks ask for: which are missing, which are too many.

Source: syncJob (pkg/controllers/job/job_controller_actions.go), Volcano 1.15.1. A rule that matters to a resize: a
task's pods with an index of `replicas` or more are deleted, whatever they do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

from kfp_volcano.volcano.model.objects import Manifest, Objects, key_of, phase_of, status_of, terminating
from kfp_volcano.volcano.model.pods import OUT_OF_SYNC, build_pod, counts, task_of
from kfp_volcano.volcano.model.priorities import priority_class

__all__ = ["PodsByTask", "counts_after", "missing_pods", "refused_roles", "surplus_pods"]

PodsByTask: TypeAlias = Mapping[str, Mapping[str, Manifest]]
"""A Job's pods by task and name."""


def missing_pods(job: Manifest, pods: PodsByTask, refused: Collection[str] = ()) -> Iterator[Manifest]:
    """The pods that are to be made now: of tasks that do not wait for others, and are not refused."""
    for task in job["spec"]["tasks"]:
        present = pods[task["name"]]
        if task["name"] in refused or not _parents_ready(job, task, pods):
            continue
        for index in range(task["replicas"]):
            if f"{key_of(job)[1]}-{task['name']}-{index}" not in present:
                yield build_pod(job, task, index)


def refused_roles(objects: Objects, job: Manifest, pods: PodsByTask) -> set[str]:
    """Tasks whose missing pods the API server would not take, as their priority class is not there.

    Such a sync fails, and is repeated; that the Job is terminated after 15 of them, minutes later, is left out.
    """
    missing = set()
    for task in job["spec"]["tasks"]:
        lacks_pods = len(pods[task["name"]]) < task["replicas"]
        if lacks_pods and priority_class(objects, build_pod(job, task, 0)["spec"].get("priorityClassName", "")) is None:
            missing.add(task["name"])
    return missing


def surplus_pods(job: Manifest, pods: PodsByTask) -> list[Manifest]:
    """The pods that are too many or out of step, and have not been asked to go yet."""
    found = []
    for task in job["spec"]["tasks"]:
        wanted = {f"{key_of(job)[1]}-{task['name']}-{index}" for index in range(task["replicas"])}
        for name, pod in pods[task["name"]].items():
            stale = OUT_OF_SYNC in (pod["metadata"].get("annotations") or {})
            if (name not in wanted or stale) and not terminating(pod):
                found.append(pod)
    return found


def _parents_ready(job: Manifest, task: Mapping[str, Any], pods: PodsByTask) -> bool:
    """Whether the tasks that this one depends on have their minimum ready or done (waitDependsOnTaskMeetCondition)."""
    depends = task.get("dependsOn")
    if not depends:
        return True
    minimums = {each["name"]: each["minAvailable"] for each in job["spec"]["tasks"]}
    ready = [sum(map(_is_ready, pods.get(name, {}).values())) >= minimums.get(name, 0) for name in depends["name"]]
    return any(ready) if depends.get("iteration") == "any" and len(ready) > 1 else all(ready)


def _is_ready(pod: Manifest) -> bool:
    containers = status_of(pod).get("containerStatuses") or ()
    done = phase_of(pod) == "Succeeded"
    return done or (phase_of(pod) == "Running" and all(each.get("ready", True) for each in containers))


def counts_after(job: Manifest, pods: PodsByTask) -> dict[str, Any]:
    """The counts once the missing pods are made, and so are Pending, and the surplus is going."""
    going = {pod["metadata"]["name"] for pod in surplus_pods(job, pods)}
    staying = {
        task: {name: pod for name, pod in members.items() if name not in going} for task, members in pods.items()
    }
    counted = counts(staying)
    counted["terminating"] += len(going)
    for pod in missing_pods(job, pods):
        counted["pending"] += 1
        phases = counted["taskStatusCount"].setdefault(task_of(pod), {"phase": {}})["phase"]
        phases["Pending"] = phases.get("Pending", 0) + 1
    return counted
