"""What the steps of a pipeline have to be allowed to do, and why: each verb is used somewhere."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NEEDS", "Need"]


@dataclass(frozen=True, slots=True)
class Need:
    """Verbs on a kind of object."""

    kind: str
    verbs: tuple[str, ...]
    why: str
    subresource: str = ""
    everywhere: bool = False
    """In all namespaces, or of no namespace: a ClusterRole's. Otherwise a Role's, in the Job's namespace."""
    required: bool = True
    """Whether a run fails without it."""


NEEDS = (
    Need("Job", ("create", "get", "list", "watch", "patch", "delete"), "submit, follow, resize and end the training"),
    Need("Command", ("create",), "end a training that has reached one of its limits"),
    Need("PodGroup", ("list", "watch"), "say why a gang waits"),
    Need("Pod", ("get", "list", "watch"), "see the workers of a resize come and go"),
    Need("Pod", ("get",), "print what workers print", subresource="log"),
    Need("ConfigMap", ("create", "get", "patch"), "note how far logs were printed"),
    Need("Lease", ("create", "get", "patch"), "let one at a time execute resizes"),
    Need("ResourceClaimTemplate", ("create", "list", "delete"), "devices that are claimed jointly", required=False),
    Need("Pod", ("delete",), "take pods away from nodes whose devices fail", required=False),
    Need("Node", ("get", "patch"), "mark nodes whose devices fail", everywhere=True, required=False),
    Need("Queue", ("list",), "check the queue before submitting", everywhere=True, required=False),
    Need("Node", ("list",), "start with the workers that fit", everywhere=True, required=False),
    Need("Pod", ("list",), "start with the workers that fit", everywhere=True, required=False),
    Need("PodGroup", ("list",), "start with the workers that fit", everywhere=True, required=False),
    Need("Job", ("list",), "start with the workers that fit", everywhere=True, required=False),
    Need("PriorityClass", ("list",), "check the priority before submitting", everywhere=True, required=False),
    Need("Workflow", ("get",), "tell that a run is terminated from the loss of a step's pod", required=False),
    Need("Event", ("list",), "tell what the cluster complains of", required=False),
    Need("ResourceQuota", ("list",), "check quotas before submitting", required=False),
    Need("PersistentVolumeClaim", ("get",), "check volumes before submitting", required=False),
)
