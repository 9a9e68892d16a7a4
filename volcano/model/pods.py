# SPDX-License-Identifier: Apache-2.0
"""The pods of a Job as the job controller makes them, and what they tell of themselves.

Sources: createJobPod (pkg/controllers/job/job_controller_util.go) and the plugins `env`, `svc` and `ssh`
(pkg/controllers/job/plugins), Volcano 1.15.1. The Service and NetworkPolicy of `svc` are left out: nothing reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model import ssh
from kfp_volcano.volcano.model.objects import (
    Key,
    Manifest,
    Objects,
    controller_of,
    key_of,
    owned_by,
    reference_to,
    status_of,
    terminating,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "GROUP",
    "OUT_OF_SYNC",
    "PREEMPTABLE",
    "VERSION",
    "build_pod",
    "counts",
    "hosts_config",
    "job_key",
    "owner_reference",
    "pods_of",
    "runs_plugin",
    "task_of",
]

TASK = "volcano.sh/task-spec"
INDEX = "volcano.sh/task-index"
JOB = "volcano.sh/job-name"
NAMESPACE = "volcano.sh/job-namespace"
QUEUE = "volcano.sh/queue-name"
VERSION = "volcano.sh/job-version"
RETRIES = "volcano.sh/job-retry-count"
TEMPLATE = "volcano.sh/template-uid"
GROUP = "scheduling.k8s.io/group-name"
OUT_OF_SYNC = "volcano.sh/controller-out-of-sync"
"""On a pod that the controller itself is about to delete: its end is no event for the Job's policies."""
PREEMPTABLE = "volcano.sh/preemptable"

_FROM_JOB = (PREEMPTABLE, "volcano.sh/cooldown-time", "volcano.sh/revocable-zone")
_HOSTS_MOUNT = "/etc/volcano"


def job_key(pod: Manifest) -> Key | None:
    """The Job that controls a pod, or None."""
    owner = controller_of(pod)
    if owner is None or owner["kind"] != "Job":
        return None
    return pod["metadata"]["namespace"], owner["name"]


def task_of(pod: Manifest) -> str:
    """The task a pod belongs to."""
    return str((pod["metadata"].get("annotations") or {}).get(TASK, ""))


def pods_of(job: Manifest, objects: Objects) -> dict[str, dict[str, Manifest]]:
    """A Job's pods by task and name."""
    found: dict[str, dict[str, Manifest]] = {task["name"]: {} for task in job["spec"]["tasks"]}
    for pod in owned_by(objects, "Pod", job["metadata"]["uid"]):
        found.setdefault(task_of(pod), {})[pod["metadata"]["name"]] = pod
    return found


def owner_reference(job: Manifest) -> dict[str, Any]:
    """What makes an object go with its Job."""
    return {**reference_to(job), "controller": True, "blockOwnerDeletion": True}


def build_pod(job: Manifest, task: Mapping[str, Any], index: int) -> Manifest:
    """The pod of a task with this index."""
    namespace, name = key_of(job)
    template = task["template"]
    given = template.get("metadata") or {}
    spec = {"schedulerName": job["spec"]["schedulerName"], **template["spec"]}
    if job["spec"].get("priorityClassName") and not spec.get("priorityClassName"):
        spec["priorityClassName"] = job["spec"]["priorityClassName"]
    common = {INDEX: str(index), TASK: task["name"], JOB: name, QUEUE: job["spec"]["queue"]}
    annotations = {
        **(given.get("annotations") or {}),
        **common,
        GROUP: f"{name}-{job['metadata']['uid']}",
        VERSION: str(status_of(job).get("version", 0)),
        TEMPLATE: f"{name}-{task['name']}",
        RETRIES: str(status_of(job).get("retryCount", 0)),
    }
    annotations.update(
        {key: value for key, value in (job["metadata"].get("annotations") or {}).items() if key in _FROM_JOB}
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{task['name']}-{index}",
            "namespace": namespace,
            "labels": {**(given.get("labels") or {}), **common, NAMESPACE: namespace},
            "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }
    if runs_plugin(job, "env"):
        _add_to_containers(
            spec, env=[{"name": each, "value": str(index)} for each in ("VC_TASK_INDEX", "VK_TASK_INDEX")]
        )
    if runs_plugin(job, "svc"):
        _connect(pod, job)
    if runs_plugin(job, "ssh"):
        spec["volumes"] = [*(spec.get("volumes") or ()), ssh.key_volume(job)]
        _add_to_containers(spec, volumeMounts=[ssh.key_mount(job)])
    return pod


def runs_plugin(job: Manifest, plugin: str) -> bool:
    """Whether a Job asks for a plugin."""
    return plugin in (job["spec"].get("plugins") or {})


def hosts_config(job: Manifest) -> Manifest:
    """The ConfigMap of the `svc` plugin: the host names and the number of each task's pods (GenerateHosts)."""
    namespace, name = key_of(job)
    data: dict[str, str] = {}
    for task in job["spec"]["tasks"]:
        hosts = [f"{name}-{task['name']}-{index}.{name}" for index in range(task["replicas"])]
        stem = task["name"].replace("-", "_")
        data[f"{stem}.host"] = "\n".join(hosts)
        data[f"VC_{stem.upper()}_HOSTS"] = ",".join(hosts)
        data[f"VC_{stem.upper()}_NUM"] = str(len(hosts))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-svc", "namespace": namespace, "ownerReferences": [owner_reference(job)]},
        "data": data,
    }


def _connect(pod: Manifest, job: Manifest) -> None:
    """Give a pod its host name, and the hosts of its peers as environment and files."""
    spec, name = pod["spec"], key_of(job)[1]
    spec.setdefault("hostname", pod["metadata"]["name"])
    spec.setdefault("subdomain", name)
    config = f"{name}-svc"
    names = [
        f"VC_{task['name'].replace('-', '_').upper()}_{what}"
        for task in job["spec"]["tasks"]
        for what in ("HOSTS", "NUM")
    ]
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": config, "configMap": {"name": config}}]
    _add_to_containers(
        spec,
        env=[{"name": each, "valueFrom": {"configMapKeyRef": {"name": config, "key": each}}} for each in names],
        volumeMounts=[{"name": config, "mountPath": _HOSTS_MOUNT}],
    )


def _add_to_containers(spec: dict[str, Any], **lists: list[dict[str, Any]]) -> None:
    for group in ("containers", "initContainers"):
        if spec.get(group):
            spec[group] = [
                {**container, **{field: [*(container.get(field) or ()), *more] for field, more in lists.items()}}
                for container in spec[group]
            ]


def counts(pods: Mapping[str, Mapping[str, Manifest]]) -> dict[str, Any]:
    """How many pods are in which phase, as a Job's status says it."""
    totals = dict.fromkeys(("pending", "running", "succeeded", "failed", "terminating", "unknown"), 0)
    by_task: dict[str, dict[str, dict[str, int]]] = {}
    for task, members in pods.items():
        for pod in members.values():
            if terminating(pod):
                totals["terminating"] += 1
                continue
            phase = status_of(pod).get("phase", "Unknown")
            totals[phase.lower()] += 1
            phases = by_task.setdefault(task, {"phase": {}})["phase"]
            phases[phase] = phases.get(phase, 0) + 1
    return {**totals, "taskStatusCount": by_task}
