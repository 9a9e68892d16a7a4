# SPDX-License-Identifier: Apache-2.0
"""What nodes, queues and workers of a scenario would be as objects of a cluster. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.schemas.names import GPU

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.scenario import Job, Node, Queue
    from kfp_volcano.volcano.model.objects import Manifest

__all__ = ["node_manifest", "pod_spec", "queue_manifest"]

_CLASS_LABEL = "gpu.class"
_PODS = "1000"
"""Pods that a node takes: scenarios limit GPUs alone."""


def node_manifest(node: Node) -> Manifest:
    """A node of a scenario as the object that it would be."""
    room = {GPU: str(node.gpus), "pods": _PODS}
    labels = {_CLASS_LABEL: node.gpu_class} if node.gpu_class else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {},
        "status": {"capacity": room, "allocatable": room},
    }


def queue_manifest(queue: Queue) -> Manifest:
    """A queue of a scenario as the object that it would be."""
    stated = {"capability": queue.capability, "deserved": queue.deserved}
    spec = {name: {GPU: str(gpus)} for name, gpus in stated.items() if gpus is not None}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": queue.name},
        "spec": {
            "parent": queue.parent,
            "weight": queue.weight,
            "priority": queue.priority,
            "reclaimable": queue.reclaimable,
            "guarantee": {"resource": {GPU: str(queue.guarantee)} if queue.guarantee else {}},
            **spec,
        },
        "status": {"state": "Open"},
    }


def pod_spec(job: Job) -> Manifest:
    """What a worker's pod says of itself."""
    limits = {GPU: str(job.gpus_per_worker)}
    spec: Manifest = {"containers": [{"name": "worker", "resources": {"limits": limits}}]}
    if job.gpu_classes:
        choice = {"key": _CLASS_LABEL, "operator": "In", "values": list(job.gpu_classes)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [choice]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return spec
