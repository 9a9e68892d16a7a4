"""Change the priority of a Job that lives."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError
from kfp_volcano.volcano.manifests.priority import priority_change
from kfp_volcano.volcano.model.objects import is_owned_by

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.manifests.priority import PriorityChange

__all__ = ["change_priority", "followed"]

PATIENCE_S = 10.0
"""How long Volcano's controller may take to bring a PodGroup in line; it does so within a second or two."""


def change_priority(cluster: Cluster, name: str, namespace: str, to: str) -> PriorityChange:
    """Give a Job another priority class, unless it has it already; see `priority_change` for what that reaches.

    Raises:
        SpecError: The Job cannot have that class.
        ClusterError: There is no such Job, or it has changed in between: call again.
    """
    job = cluster.get("Job", name, namespace)
    values = {each["metadata"]["name"]: int(each["value"]) for each in cluster.list("PriorityClass")[0]}
    change = priority_change(job, to, values)
    if change.patch:
        cluster.patch("Job", name, namespace, change.patch)
    return change


def followed(cluster: Cluster, name: str, namespace: str, to: str, *, patience_s: float = PATIENCE_S) -> bool | None:
    """Whether a Job's PodGroup has the class `to`, once it has or time is over; None where there is no PodGroup.

    A suspended Job has none; the next one is made with the Job's class.
    """
    deadline = time.monotonic() + patience_s
    uid = cluster.get("Job", name, namespace)["metadata"]["uid"]
    while True:
        groups, version = cluster.list("PodGroup", namespace)
        group = next((each for each in groups if is_owned_by(each, uid)), None)
        if group is None:
            return None
        if group["spec"].get("priorityClassName") == to:
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        with suppress(ConflictError):  # the version is too old by now: list again
            next(iter(cluster.watch("PodGroup", namespace, resource_version=version, timeout_s=left)), None)
