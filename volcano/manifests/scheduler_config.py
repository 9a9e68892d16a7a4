# SPDX-License-Identifier: Apache-2.0
"""The scheduler configuration that a QueueTree needs: `volcano-scheduler.conf`, with the reason for each line.

Its shape is the one under which Volcano's behaviour was recorded and that `volcano.model` follows; what depends on the
tree is the plugin, `enableHierarchy`, `reclaim`, and `resourcequota`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.schemas.queue_tree import QueueTree

__all__ = ["scheduler_config"]

_ACTION = "#   {:<10}{}"


class _Plugin(NamedTuple):
    name: str
    why: str
    switch: str = ""
    """A further line, such as `enablePreemptable: false`."""
    why_switch: str = ""


def scheduler_config(tree: QueueTree) -> str:
    """The configuration as YAML text with comments: `volcano-scheduler.conf` in the scheduler's ConfigMap."""
    actions = dict(_actions(tree))
    lines = [
        f"# volcano-scheduler.conf for the queues of the tree {tree.name}",
        "#",
        "# Actions, in this order in each cycle:",
        *(_ACTION.format(name, why) for name, why in actions.items()),
        f'actions: "{", ".join(actions)}"',
        "# In each tier the plugins have to agree; the first tier that has an answer decides.",
        "tiers:",
        *_tier(_first_tier()),
        *_tier(_second_tier(tree)),
    ]
    return "\n".join(lines) + "\n"


def _actions(tree: QueueTree) -> Iterator[tuple[str, str]]:
    yield "enqueue", "lets a Job in when its gang fits into its queue, so that no gang waits with half of its pods"
    yield "allocate", "gives waiting pods nodes, queue by queue"
    yield "backfill", "gives pods that ask for nothing what is left"
    if _reclaims(tree):
        yield "reclaim", f"a queue with less than {_share(tree)} takes pods back from queues with more"
    yield "preempt", "within a queue, a Job of higher priority takes pods of lower ones: surplus workers first"


def _reclaims(tree: QueueTree) -> bool:
    """Whether some queue may take back what is its own from another."""
    leaves = [node for node, _ in tree.walk() if node.leaf]
    entitled = tree.plugin == "proportion" or any(node.deserved for node in leaves)
    return entitled and len(leaves) > 1 and any(node.reclaimable for node in leaves)


def _share(tree: QueueTree) -> str:
    return "its weight's part" if tree.plugin == "proportion" else "it deserves"


def _first_tier() -> list[_Plugin]:
    return [
        _Plugin("priority", "PriorityClasses order Jobs and pods, and say who may be preempted"),
        _Plugin(
            "gang",
            "all of a gang or none of it; reclaim takes what is above a Job's minimum",
            "enablePreemptable: false",
            "preempt may take the gang of a lower Job; pods marked preemptable: false stay",
        ),
        _Plugin("conformance", "never evicts pods of kube-system or critical ones"),
    ]


def _second_tier(tree: QueueTree) -> Iterator[_Plugin]:
    yield _Plugin(
        "drf",
        "among Jobs of one queue, the one with the smaller share goes first",
        "enablePreemptable: false",
        "but no Job loses a running pod for that",
    )
    yield _Plugin("predicates", "only nodes that Kubernetes' own rules allow")
    nested = any(not node.leaf for node, _ in tree.walk())
    if tree.plugin == "capacity":
        yield _Plugin(
            "capacity",
            "shares by the queues' deserved, guarantee and capability; excludes proportion",
            "enableHierarchy: true" if nested else "",
            "queues have queues below them; limits hold at every level",
        )
    else:
        yield _Plugin("proportion", "shares by the queues' weights; excludes capacity")
    if any(node.quotas for node, _ in tree.walk()):
        # In the same tier as capacity: enqueue asks no tier after one that has said yes.
        yield _Plugin("resourcequota", "lets no gang in that its namespace's ResourceQuota would refuse")
    yield _Plugin("nodeorder", "among fitting nodes, Kubernetes' own preferences")
    yield _Plugin("binpack", "fills nodes one after the other, so that whole nodes stay free for large gangs")


def _tier(plugins: Iterator[_Plugin] | list[_Plugin]) -> Iterator[str]:
    yield "- plugins:"
    for plugin in plugins:
        yield f"  # {plugin.why}"
        yield f"  - name: {plugin.name}"
        if plugin.switch:
            yield f"    # {plugin.why_switch}"
            yield f"    {plugin.switch}"
