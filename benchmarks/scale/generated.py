# SPDX-License-Identifier: Apache-2.0
"""A generated cluster: Jobs in queues, their pods on nodes, as a busy one would look at one moment.

For each 100 Jobs there are a queue, 500 pods and 20 nodes with 16 GPUs. Of a queue's Jobs 60 are elastic (four workers
with a GPU each, between two and eight of them, and a coordinator), 16 are fixed and have ten pods without GPUs, one
batch Job has 40 pods with a GPU, and 23 wait for more than the queue may ever have. That makes 280 of its 320 GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import GPU, SPEC
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import job_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NAMESPACE", "batch_pods", "elastic_names", "gang", "generate", "group_of", "queue_names"]

NAMESPACE = "ml"
PER_QUEUE, NODES_A_QUEUE, GPUS_A_NODE = 100, 20, 16
ELASTIC, FIXED, WAITING, BATCH = 60, 16, 23, 40
WORKERS, CORE_WORKERS = 4, 2


def queue_names(jobs: int) -> list[str]:
    """The queues for so many Jobs."""
    return [f"team-{number:03}" for number in range(jobs // PER_QUEUE)]


def elastic_names(queue: str) -> list[str]:
    """Its elastic Jobs."""
    return [f"{queue}-train-{number:02}" for number in range(ELASTIC)]


def generate(jobs: int) -> Iterator[dict[str, Any]]:
    """All objects for so many Jobs."""
    yield _queue("root", {})
    queues = queue_names(jobs)
    nodes = [f"node-{number:04}" for number in range(len(queues) * NODES_A_QUEUE)]
    yield from map(_node, nodes)
    for number, queue in enumerate(queues):
        yield _queue(queue, {"capability": {GPU: "320"}, "deserved": {GPU: "320"}, "parent": "root"})
        own = nodes[number * NODES_A_QUEUE : (number + 1) * NODES_A_QUEUE]
        places = iter([node for node in own for _ in range(GPUS_A_NODE)])
        yield from _elastic(queue, places, own)
        for index in range(FIXED):
            yield from _placed(_fixed(f"{queue}-fixed-{index:02}", queue, 10, 0), iter(own))
        yield from _placed(_fixed(f"{queue}-batch", queue, BATCH, 1), places)
        for index in range(WAITING):
            yield from _waiting(_fixed(f"{queue}-wait-{index:02}", queue, 400, 1))


def gang(queue: str, name: str) -> list[dict[str, Any]]:
    """A gang of 48 GPUs that has just come to a queue: 8 more than are free there."""
    return list(_waiting(_fixed(name, queue, 48, 1)))


def batch_pods(queue: str) -> list[str]:
    """The pods of its batch Job."""
    return [f"{queue}-batch-main-{index}" for index in range(BATCH)]


def group_of(job: str) -> str:
    """The PodGroup of a Job of that name."""
    return f"{job}-group"


def _elastic(queue: str, places: Iterator[str], nodes: list[str]) -> Iterator[dict[str, Any]]:
    for number, name in enumerate(elastic_names(queue)):
        job = _train(name, queue)
        yield job
        yield _group(job, "Running")
        yield _pod(job, "coordinator", 0, nodes[number % len(nodes)])
        for index in range(WORKERS):
            task, place = ("core", index) if index < CORE_WORKERS else ("elastic", index - CORE_WORKERS)
            yield _pod(job, task, place, next(places))


def _placed(job: dict[str, Any], places: Iterator[str]) -> Iterator[dict[str, Any]]:
    yield job
    yield _group(job, "Running")
    for index in range(job["spec"]["tasks"][0]["replicas"]):
        yield _pod(job, "main", index, next(places))


def _waiting(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**job, "status": {"state": {"phase": "Pending"}}}
    yield _group(job, "Pending")


def _train(name: str, queue: str) -> dict[str, Any]:
    spec = training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "framework": "pytorch",
                "image": "registry.example/train:1.4",
                "command": ["python", "train.py"],
                "queue": queue,
                "roles": {
                    "worker": {
                        "replicas": {"min": CORE_WORKERS, "max": 2 * WORKERS},
                        "resources": {"cpu": 4, "memory": "32Gi", "gpu": 1},
                    }
                },
                "elasticity": {"cooldown": "60s"},
                "checkpoint": {"volume": "checkpoints"},
            },
        }
    )
    made: dict[str, Any] = job_manifest(spec, name=name, run_id="run", step="submit", workers=WORKERS)
    assert SPEC in made["metadata"]["annotations"]  # noqa: S101 - else nothing would be measured
    return {**made, "status": {"state": {"phase": "Running"}}}


def _fixed(name: str, queue: str, pods: int, gpus: int) -> dict[str, Any]:
    resources = {"cpu": "2", "memory": "8Gi", **({GPU: str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "x", "command": ["sleep", "9"], "resources": {"limits": resources}}
    task = {
        "name": "main",
        "replicas": pods,
        "minAvailable": pods,
        "template": {"spec": {"containers": [container], "restartPolicy": "OnFailure"}},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"queue": queue, "minAvailable": pods, "schedulerName": "volcano", "tasks": [task]},
        "status": {"state": {"phase": "Running"}},
    }


def _group(job: dict[str, Any], phase: str) -> dict[str, Any]:
    name = job["metadata"]["name"]
    owner = {"apiVersion": job["apiVersion"], "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": group_of(name), "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"queue": job["spec"]["queue"], "minMember": job["spec"]["minAvailable"]},
        "status": {"phase": phase},
    }


def _pod(job: dict[str, Any], task: str, index: int, node: str) -> dict[str, Any]:
    name, queue = job["metadata"]["name"], job["spec"]["queue"]
    template = next(each for each in job["spec"]["tasks"] if each["name"] == task)["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{task}-{index}",
            "namespace": NAMESPACE,
            "labels": {
                **(template.get("metadata", {}).get("labels") or {}),
                "volcano.sh/job-name": name,
                "volcano.sh/task-spec": task,
                "volcano.sh/queue-name": queue,
            },
            "annotations": {
                **(template.get("metadata", {}).get("annotations") or {}),
                "scheduling.k8s.io/group-name": group_of(name),
            },
        },
        "spec": {**template["spec"], "nodeName": node, "schedulerName": "volcano"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _node(name: str) -> dict[str, Any]:
    room = {"cpu": "128", "memory": "2048Gi", "pods": "250", GPU: str(GPUS_A_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "gpu.class": "h100"}},
        "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _queue(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"reclaimable": True, "weight": 1, **spec},
        "status": {"state": "Open"},
    }
