# SPDX-License-Identifier: Apache-2.0
"""What each part of this project has to be allowed to do on a cluster, and why: each verb is used somewhere.

`deploy/` grants just this to each part's service account, in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["AUTOSCALER", "COORDINATOR", "REAPER", "STEPS", "Need"]


@dataclass(frozen=True, slots=True)
class Need:
    """Verbs on a kind of object."""

    kind: str
    verbs: tuple[str, ...]
    why: str
    subresource: str = ""
    where: Literal["namespace", "everywhere", "system"] = "namespace"
    """`namespace`: in that of the training, by a RoleBinding. `everywhere`: in all namespaces, or of none, by a
    ClusterRoleBinding. `system`: in the namespace of `deploy/base`."""
    required: bool = True
    """Whether a run fails without it."""


STEPS = (
    Need("Job", ("create",), "submit the training"),
    Need("Job", ("get", "list", "watch"), "follow it"),
    Need("Job", ("patch",), "resize it, and keep its record"),
    Need("Job", ("delete",), "leave nothing behind when the run ends without success"),
    Need("Command", ("create",), "end a training that has reached one of its limits"),
    Need("PodGroup", ("list", "watch"), "say why a gang waits"),
    Need("Pod", ("get", "list", "watch"), "see the workers of a resize come and go; find out which run this is"),
    Need("Pod", ("get",), "print what workers print", subresource="log"),
    Need("ConfigMap", ("create", "get", "patch"), "note how far logs were printed"),
    Need("Lease", ("create", "get", "patch"), "let one at a time execute resizes"),
    Need("ResourceClaimTemplate", ("create",), "devices that are claimed jointly", required=False),
    Need("Pod", ("delete",), "take pods away from nodes whose devices fail", required=False),
    Need("Workflow", ("get",), "tell that a run is terminated from the loss of a step's pod", required=False),
    Need("Event", ("list",), "tell what the cluster complains of", required=False),
    Need("ResourceQuota", ("list",), "check quotas before submitting", required=False),
    Need("PersistentVolumeClaim", ("get",), "check volumes before submitting", required=False),
    Need("ServiceAccount", ("get",), "find the account of coordinator pods, check those of others", required=False),
    Need("Queue", ("list",), "check the queue before submitting", where="everywhere", required=False),
    Need("PriorityClass", ("list",), "check the priority before submitting", where="everywhere", required=False),
    Need("Node", ("list",), "start with the workers that fit", where="everywhere", required=False),
    Need("Pod", ("list",), "start with the workers that fit", where="everywhere", required=False),
    Need("PodGroup", ("list",), "start with the workers that fit", where="everywhere", required=False),
    Need("Job", ("list",), "start with the workers that fit", where="everywhere", required=False),
    Need("Node", ("get", "patch"), "mark nodes whose devices fail", where="everywhere", required=False),
)
"""The steps of a pipeline, as the account that KFP runs them with."""

_WATCHES = tuple(
    Need(kind, ("list", "watch"), why, where="everywhere")
    for kind, why in (
        ("Queue", "know what the queue may have"),
        ("PodGroup", "know which gangs wait"),
        ("Job", "know what runs, and what may shrink"),
        ("Pod", "know which GPUs are held"),
        ("Node", "know which GPUs there are"),
        ("PriorityClass", "know who goes first"),
    )
)

COORDINATOR = (
    Need("Job", ("get",), "know the queue of its Job"),
    Need("Job", ("patch",), "resize Jobs of the queue, and publish how training goes"),
    Need("Lease", ("create", "get", "patch"), "let one lead the queue, and one execute resizes"),
    Need("Command", ("create",), "end a training that has reached one of its limits"),
    Need("Event", ("create", "get", "patch"), "tell at the Job what was decided", required=False),
    Need("Pod", ("delete",), "take pods away from nodes whose devices fail", required=False),
    *_WATCHES,
    Need("Node", ("get", "patch"), "mark nodes whose devices fail", where="everywhere", required=False),
    Need("Lease", ("get",), "stand aside for an autoscaler of all namespaces", where="system", required=False),
)
"""The coordinator pod of an elastic Job, with the autoscaler in it."""

AUTOSCALER = (
    *_WATCHES,
    Need("Job", ("get", "patch"), "resize Jobs, and keep their record", where="everywhere"),
    Need("Lease", ("create", "get", "patch"), "lead the queues, and execute resizes", where="everywhere"),
    Need("Command", ("create",), "end trainings that have reached one of their limits", where="everywhere"),
    Need("Event", ("create", "get", "patch"), "tell at the Job what was decided", where="everywhere", required=False),
    Need("Pod", ("delete",), "take pods away from nodes whose devices fail", where="everywhere", required=False),
    Need("Node", ("get", "patch"), "mark nodes whose devices fail", where="everywhere", required=False),
)
"""An autoscaler of all namespaces."""

REAPER = (
    Need("Workflow", ("list",), "know which runs live", where="everywhere"),
    Need("Job", ("get", "list"), "find Jobs whose runs are over", where="everywhere"),
    Need("Job", ("delete",), "remove them", where="everywhere"),
    Need("Namespace", ("list",), "look through the namespaces that allow what follows", where="everywhere"),
    Need("ConfigMap", ("list", "delete"), "remove the places in logs of Jobs that are gone"),
    Need("Lease", ("list", "delete"), "remove the Leases of Jobs that are gone"),
    Need("Command", ("list", "delete"), "remove the Commands to Jobs that are gone"),
    Need("ResourceClaimTemplate", ("list", "delete"), "remove the claims of Jobs that are gone", required=False),
)
"""`kfp-volcano reap`."""
