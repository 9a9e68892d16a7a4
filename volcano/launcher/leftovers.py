# SPDX-License-Identifier: Apache-2.0
"""What Jobs left behind and no garbage collector takes: objects of theirs that name no owner any more.

Kubernetes strips owners where a Job is deleted with its dependents orphaned, and backups may restore objects without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.lease import term_of
from kfp_volcano.errors import ForbiddenError, InvalidError
from kfp_volcano.schemas.names import INSTANCE_LABEL, MANAGED_LABEL, MANAGER
from kfp_volcano.volcano.model.objects import labels_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["KINDS_LEFT", "UNUSED_S", "job_of", "left_behind", "read_leftovers"]

KINDS_LEFT = ("ConfigMap", "Lease", "Command", "ResourceClaimTemplate")
UNUSED_S = 24 * 3600.0
"""How long nobody has led a queue when the Lease for it goes, seconds."""

_LABELS = {MANAGED_LABEL: MANAGER}


def read_leftovers(cluster: Cluster, namespace: str) -> list[Manifest]:
    """The objects without owners that were made beside Jobs; of all namespaces where none is named.

    Where they may not be listed everywhere at once, namespace by namespace, where that is allowed.
    """
    try:
        return list(_owned_by_none(cluster, namespace))
    except ForbiddenError:
        if namespace:
            return []
    found: list[Manifest] = []
    try:
        namespaces = [str(each["metadata"]["name"]) for each in cluster.list("Namespace")[0]]
    except ForbiddenError:
        return []
    for each in namespaces:
        found += read_leftovers(cluster, each)
    return found


def job_of(leftover: Manifest) -> str | None:
    """The name of the Job that an object was made for; None for what belongs to a whole queue."""
    return labels_of(leftover).get(INSTANCE_LABEL)


def left_behind(leftover: Manifest, *, job_is_there: bool, now: float) -> str | None:
    """Why an object without an owner is of no use any more; None if it is."""
    job = job_of(leftover)
    if job is not None:
        return None if job_is_there else f"Job {job} is gone, and this has no owner to go with"
    if leftover["kind"] != "Lease":
        return None
    term = term_of(leftover)
    return f"nobody has led the queue for {UNUSED_S / 3600:.0f} hours" if term.ends_at + UNUSED_S < now else None


def _owned_by_none(cluster: Cluster, namespace: str) -> Iterator[Manifest]:
    for kind in KINDS_LEFT:
        try:
            found, _ = cluster.list(kind, namespace, _LABELS)
        except InvalidError:  # a kind that this cluster does not serve
            continue
        yield from (each for each in found if not each["metadata"].get("ownerReferences"))
