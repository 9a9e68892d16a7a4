# SPDX-License-Identifier: Apache-2.0
"""The tree of queues: what each may use, and uses, during a cycle of the scheduler.

Sources: buildHierarchicalQueueAttrs, checkHierarchicalQueue, updateQueueAttrShare
(pkg/scheduler/plugins/capacity/capacity.go), Volcano 1.15.1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.objects import Manifest, Objects, status_of
from kfp_volcano.volcano.model.resources import POD, Resources, add, exceeded, resources

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ROOT", "QueueShare", "queue_tree", "root_queue"]

ROOT = "root"
_ALWAYS_LIMITED = frozenset({"cpu", "memory"})


@dataclass(slots=True, eq=False)
class QueueShare:
    """What a queue may use and uses, during one scheduling cycle."""

    name: str
    parent: str | None
    order: int
    """Rank by age."""
    priority: int
    reclaimable: bool
    open: bool
    deserved: Resources
    guarantee: Resources
    capability: dict[str, int]
    limit: dict[str, int] = field(default_factory=dict)
    """`realCapability`: its own capability, its ancestors', and what others' guarantees leave. A limit that does not
    name a resource does not limit it, if the cluster has the resource at all."""
    lineage: tuple[QueueShare, ...] = ()
    """The queue itself, its parent and so on up to the root."""
    children: int = 0
    allocated: dict[str, int] = field(default_factory=dict)
    inqueue: dict[str, int] = field(default_factory=dict)
    """What enqueued gangs have still to get."""
    elastic: dict[str, int] = field(default_factory=dict)
    """What running Jobs hold above their minimum."""
    share: float = 1.0
    """The largest part of what it deserves that is in use; queues go in order of it."""

    def exceeds(self, request: Resources) -> list[str]:
        """Which resources of a pod would take the queue over its limit."""
        return exceeded(add(self.allocated, request), self.limit, _counted(request))

    def exceeds_enqueued(self, minimum: Resources) -> list[str]:
        """Which resources of a gang would take it over, with all enqueued gangs served and surplus given back."""
        used = add(add(add(minimum, self.allocated), self.inqueue), self.elastic, times=-1)
        return exceeded(used, self.limit, _counted(minimum))

    def deserves_more(self, request: Resources) -> bool:
        """Whether, given this as well, it would still be within what it deserves of at least one of the resources."""
        used = add(self.allocated, request)
        asked = _counted(request)
        return any(amount and used[name] <= self.deserved.get(name, 0) for name, amount in asked.items())

    def charge(self, request: Resources, *, times: int = 1) -> None:
        """Account for a pod here and in all ancestors, or with `times=-1` take it off.

        The ancestors' shares stay what they were when the cycle began, as in capacity's event handlers: of two teams
        whose departments have equal shares then, the elder takes all that it can before the other is served.
        """
        for each in self.lineage:
            each.allocated = add(each.allocated, request, times=times)
        self.update_share()

    def update_share(self) -> None:
        """updateQueueAttrShare: a queue that deserves nothing comes after those that still lack something."""
        if not self.has_deserved:
            self.share = 1.0
            return
        self.share = max(self.allocated.get(name, 0) / most for name, most in self.deserved.items() if most)

    @property
    def has_deserved(self) -> bool:
        """Whether it deserves anything at all."""
        return any(_counted(self.deserved).values())


def root_queue() -> Manifest:
    """The queue that Volcano makes above all others."""
    return _queue(ROOT, {"reclaimable": False, "weight": 1})


def queue_tree(objects: Objects) -> dict[str, QueueShare]:
    """Every queue with its limit, the parents before their children; queues without a known parent are left out."""
    queues = {name: queue for (_, name), queue in objects.get("Queue", {}).items()}
    shares = {name: _share(name, queue, order) for order, (name, queue) in enumerate(queues.items())}
    children: dict[str | None, list[QueueShare]] = {}
    for share in shares.values():
        children.setdefault(share.parent, []).append(share)
    ordered: dict[str, QueueShare] = {}
    waiting = deque(children.get(None, ()))
    for root in waiting:
        root.lineage, root.limit = (root,), dict(root.capability)
    while waiting:
        share = waiting.popleft()
        ordered[share.name] = share
        below = children.get(share.name, [])
        share.children = len(below)
        _limit_children(share, below)
        waiting.extend(below)
    return ordered


def _limit_children(parent: QueueShare, children: list[QueueShare]) -> None:
    """checkHierarchicalQueue: an explicit zero of CPU or memory is no limit, one of another resource is."""
    guaranteed: dict[str, int] = {}
    for child in children:
        guaranteed = add(guaranteed, child.guarantee)
    for child in children:
        child.lineage = (child, *parent.lineage)
        for name, most in parent.capability.items():
            if not child.capability.get(name) and (name in _ALWAYS_LIMITED or name not in child.capability):
                child.capability[name] = most
        left = {
            name: max(0, most - guaranteed.get(name, 0)) + child.guarantee.get(name, 0)
            for name, most in parent.limit.items()
        }
        own = child.capability
        child.limit = {
            name: min(own.get(name, left.get(name, 0)), left.get(name, own.get(name, 0))) for name in {*own, *left}
        }


def _share(name: str, queue: Manifest, order: int) -> QueueShare:
    spec = queue["spec"]
    guarantee = resources((spec.get("guarantee") or {}).get("resource"))
    deserved = resources(spec.get("deserved"))
    capability = resources(spec.get("capability"))
    return QueueShare(
        name=name,
        parent=None if name == ROOT else spec.get("parent", ROOT),
        order=order,
        priority=spec.get("priority", 0),
        reclaimable=spec.get("reclaimable", True),
        open=status_of(queue).get("state") == "Open",
        deserved={each: max(deserved.get(each, 0), guarantee.get(each, 0)) for each in {*deserved, *guarantee}},
        guarantee=guarantee,
        capability={each: most for each, most in capability.items() if most or each not in _ALWAYS_LIMITED},
    )


def _counted(amounts: Resources) -> dict[str, int]:
    """Without the number of pods, which queues do not limit (ignoredScalarResources)."""
    return {name: amount for name, amount in amounts.items() if name != POD}


def _queue(name: str, spec: Mapping[str, object]) -> Manifest:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": dict(spec),
    }
