# SPDX-License-Identifier: Apache-2.0
"""The PodGroup of a Job: what the scheduler is told of its gang.

Sources: createOrUpdatePodGroup, calcPGMinResources (pkg/controllers/job/job_controller_actions.go) and
CalcFirstCountResources, CalcPGMinResources (job_controller_util.go), Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.objects import Key, Manifest, Objects, key_of
from kfp_volcano.volcano.model.pods import owner_reference
from kfp_volcano.volcano.model.resources import add, pod_request, quantities

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["build_pod_group", "group_key", "updated_pod_group"]

_POD = 1000
_COUNTED = ("pods", "count/pods")
_FROM_JOB = frozenset({"minMember", "minTaskMember", "minResources", "priorityClassName"})


def group_key(job: Manifest) -> Key:
    """Where a Job's PodGroup is."""
    namespace, name = key_of(job)
    return namespace, f"{name}-{job['metadata']['uid']}"


def build_pod_group(job: Manifest, objects: Objects) -> Manifest:
    """A Job's PodGroup; labels and annotations are those the Job has at this moment."""
    namespace, name = group_key(job)
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(job["metadata"].get("labels") or {}),
            "annotations": dict(job["metadata"].get("annotations") or {}),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {"queue": job["spec"]["queue"], **_members(job, objects)},
        "status": {"phase": "Pending"},
    }


def updated_pod_group(group: Manifest, job: Manifest, objects: Objects) -> Manifest:
    """The PodGroup with what its Job says now."""
    kept = {name: value for name, value in group["spec"].items() if name not in _FROM_JOB}
    return {**group, "spec": {**kept, **_members(job, objects)}}


def _members(job: Manifest, objects: Objects) -> dict[str, Any]:
    """What is stored of it: a number that is zero and a name that is empty are not."""
    spec = job["spec"]
    members = {
        "minTaskMember": {task["name"]: task["minAvailable"] for task in spec["tasks"]},
        "minResources": quantities(_min_resources(job, objects)),
    }
    stated = {"minMember": spec["minAvailable"], "priorityClassName": spec.get("priorityClassName")}
    return {**members, **{name: value for name, value in stated.items() if value}}


def _min_resources(job: Manifest, objects: Objects) -> dict[str, int]:
    """What the first `minAvailable` pods ask for: tasks' minimums first, then further replicas, by priority."""
    classes = objects.get("PriorityClass", {})

    def priority(task: Mapping[str, Any]) -> int:
        known = classes.get(("", task["template"]["spec"].get("priorityClassName", "")))
        return int(known["value"]) if known else 0

    tasks = sorted(job["spec"]["tasks"], key=priority, reverse=True)
    wanted = job["spec"]["minAvailable"]
    minimums = [task["minAvailable"] for task in tasks]
    if wanted < sum(minimums):
        rounds = [[task["replicas"] for task in tasks]]
    else:
        rounds = [minimums, [task["replicas"] - least for task, least in zip(tasks, minimums, strict=True)]]
    total: dict[str, int] = {}
    for available in rounds:
        for task, most in zip(tasks, available, strict=True):
            taken = min(wanted, most)
            total = add(total, _quota_usage(task["template"]["spec"]), times=taken)
            wanted -= taken
    return total


def _quota_usage(spec: Mapping[str, Any]) -> dict[str, int]:
    """A pod in the words of a ResourceQuota: each request by its name and as `requests.<name>`."""
    request = pod_request(spec)
    return {
        **request,
        **{f"requests.{name}": amount for name, amount in request.items()},
        **dict.fromkeys(_COUNTED, _POD),
    }
