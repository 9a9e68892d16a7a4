# SPDX-License-Identifier: Apache-2.0
"""The steps by which the ResourceQuotas of a cluster become a tree's; they have no order among themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem
from kfp_volcano.schemas.names import QUEUE_TREE_LABEL
from kfp_volcano.volcano.manifests.queue_steps import Step, changes, patch
from kfp_volcano.volcano.manifests.queue_terms import amounts, same
from kfp_volcano.volcano.manifests.queues import quota_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.schemas.queue_tree import QueueTree

__all__ = ["quota_problems", "quota_steps"]


def quota_problems(tree: QueueTree, quotas: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """ResourceQuotas of others that have the names the tree's would have."""
    there = _by_place(quotas)
    for namespace, name in _wanted(tree):
        owner = _owner(there[namespace, name]) if (namespace, name) in there else tree.name
        if owner != tree.name:
            whose = f"the tree {owner}" if owner else "no tree"
            yield Problem(
                f"ResourceQuota {namespace}/{name}", f"is there already and belongs to {whose}", "remove or rename it"
            )


def quota_steps(tree: QueueTree, quotas: Iterable[Mapping[str, Any]]) -> Iterator[Step]:
    """What is to be created and changed, then what is to be deleted."""
    there, wanted = _by_place(quotas), _wanted(tree)
    for (namespace, name), manifest in wanted.items():
        stored = there.get((namespace, name))
        after = manifest["spec"]
        before = {"hard": stored["spec"]["hard"]} if stored and stored["spec"].get("hard") else {}
        place: Any = {"kind": "ResourceQuota", "namespace": namespace, "name": name, "changes": changes(before, after)}
        if stored is None:
            yield Step(action="create", reason="is new", manifest=manifest, **place)
        elif not same(amounts(before.get("hard")), after["hard"]):
            change = patch(stored["metadata"], before, after, owner=tree.name)
            yield Step(action="update", reason="allows something else from now on", patch=change, **place)
    for (namespace, name), stored in there.items():
        if _owner(stored) == tree.name and (namespace, name) not in wanted:
            gone: Any = {"kind": "ResourceQuota", "namespace": namespace, "name": name}
            yield Step(action="delete", reason="has left the tree", changes=changes(stored["spec"], {}), **gone)


def _wanted(tree: QueueTree) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (quota.namespace, node.name): quota_manifest(tree.name, node.name, quota)
        for node, _ in tree.walk()
        for quota in node.quotas
    }


def _by_place(quotas: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(quota["metadata"]["namespace"], quota["metadata"]["name"]): quota for quota in quotas}


def _owner(quota: Mapping[str, Any]) -> str | None:
    return (quota["metadata"].get("labels") or {}).get(QUEUE_TREE_LABEL)
