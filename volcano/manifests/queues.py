# SPDX-License-Identifier: Apache-2.0
"""The Queue and ResourceQuota objects of a QueueTree.

A tree's objects carry the label `kfp-volcano/queue-tree`. Fields that the tree does not speak of (a queue's affinity,
under `capacity` its weight) are left out, and left alone where they exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.queue_terms import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.schemas.queue_tree import Amounts, QueueTree, Quota

__all__ = ["QUEUE_API", "Target", "manifests", "queue_command", "queue_manifest", "quota_manifest", "targets"]

QUEUE_API = "scheduling.volcano.sh/v1beta1"
COMMAND_NAMESPACE = "default"
"""Commands are namespaced though queues are not; Volcano takes them from any namespace."""

_MANAGED_BY = {"app.kubernetes.io/managed-by": "kfp-volcano"}
_PLAIN_IN_QUOTAS = frozenset({"pods"})
"""Resources whose quota is not called `requests.<resource>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a tree wants of one queue."""

    terms: Terms
    settings: Mapping[str, Any]
    """Fields of the Queue's spec that have nothing to do with other queues."""
    closed: bool
    leaf: bool


def targets(tree: QueueTree) -> dict[str, Target]:
    """What the tree wants of each queue, by name, parents before children."""
    wanted: dict[str, Target] = {}
    for node, above in tree.walk():
        proportion = tree.plugin == "proportion"
        wanted[node.name] = Target(
            terms=Terms(
                parent=above.name if above else names.ROOT_QUEUE,
                capability=node.capability,
                # The webhook wants what is guaranteed to be deserved; proportion works out deserved by itself.
                deserved=node.guarantee if proportion else node.deserved,
                guarantee=node.guarantee,
            ),
            settings={
                **({"weight": node.weight or 1} if proportion else {}),
                "priority": node.priority,
                "reclaimable": node.reclaimable,
            },
            closed=node.closed or (above is not None and wanted[above.name].closed),
            leaf=node.leaf,
        )
    return wanted


def manifests(tree: QueueTree) -> list[dict[str, Any]]:
    """The tree's objects, queues first and parents before children. Equal trees give equal manifests."""
    queues = [queue_manifest(tree.name, name, target) for name, target in targets(tree).items()]
    quotas = [quota_manifest(tree.name, node.name, quota) for node, _ in tree.walk() for quota in node.quotas]
    return queues + quotas


def queue_manifest(tree: str, name: str, target: Target) -> dict[str, Any]:
    """One Queue of the tree `tree`. Whether it is closed is not in it: a Command says so (`queue_command`)."""
    return {
        "apiVersion": QUEUE_API,
        "kind": "Queue",
        "metadata": {"name": name, "labels": {names.QUEUE_TREE_LABEL: tree, **_MANAGED_BY}},
        "spec": queue_spec(target.terms, target.settings),
    }


def queue_spec(terms: Terms, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Queue's spec that a tree decides on; an amount that is not said is not there."""
    return {
        "parent": terms.parent,
        **({"capability": dict(terms.capability)} if terms.capability else {}),
        **({"deserved": dict(terms.deserved)} if terms.deserved else {}),
        **({"guarantee": {"resource": dict(terms.guarantee)}} if terms.guarantee else {}),
        **settings,
    }


def quota_manifest(tree: str, queue: str, quota: Quota) -> dict[str, Any]:
    """The ResourceQuota of one namespace of a queue's team; it has the queue's name."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": queue,
            "namespace": quota.namespace,
            "labels": {names.QUEUE_TREE_LABEL: tree, **_MANAGED_BY},
        },
        "spec": {"hard": _hard(quota)},
    }


def _hard(quota: Quota) -> Amounts:
    requests = {name if name in _PLAIN_IN_QUOTAS else f"requests.{name}": text for name, text in quota.requests.items()}
    return requests if quota.jobs is None else {**requests, "count/jobs.batch.volcano.sh": str(quota.jobs)}


def queue_command(queue: Mapping[str, Any], action: str) -> dict[str, Any]:
    """The Command that closes (`CloseQueue`) or opens (`OpenQueue`) a queue, as read from the cluster."""
    metadata = queue["metadata"]
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": f"{action.lower()}-{metadata['uid']}", "namespace": COMMAND_NAMESPACE},
        "action": action,
        "target": {
            "apiVersion": QUEUE_API,
            "kind": "Queue",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        },
    }
