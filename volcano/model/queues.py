"""The tree of queues: its controller, and what each queue may use.

Sources: pkg/controllers/queue (state, the parent's default) and buildHierarchicalQueueAttrs, checkHierarchicalQueue
(pkg/scheduler/plugins/capacity/capacity.go), Volcano 1.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.objects import Change, Manifest, Objects, Update, status_of
from kfp_volcano.volcano.model.resources import Resources, add, exceeded, resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ROOT", "QueueShare", "open_queues", "queue_tree", "root_queue"]

ROOT = "root"


@dataclass(slots=True)
class QueueShare:
    """What a queue may use and uses, during one scheduling cycle.

    A limit that does not name a resource does not limit it.
    """

    name: str
    parent: str | None
    priority: int
    reclaimable: bool
    open: bool
    deserved: Resources
    guarantee: Resources
    limit: dict[str, int] = field(default_factory=dict)
    """`realCapability`: its own capability, its ancestors', and what others' guarantees leave."""
    allocated: dict[str, int] = field(default_factory=dict)
    inqueue: dict[str, int] = field(default_factory=dict)
    """What enqueued gangs have still to get."""
    elastic: dict[str, int] = field(default_factory=dict)
    """What running Jobs hold above their minimum."""

    def exceeds(self, request: Resources) -> list[str]:
        """Which resources of a pod would take the queue over its limit."""
        return exceeded(add(self.allocated, request), self.limit, request)

    def exceeds_enqueued(self, minimum: Resources) -> list[str]:
        """Which resources of a gang would take it over, with all enqueued gangs served and surplus given back."""
        used = add(add(add(minimum, self.allocated), self.inqueue), self.elastic, times=-1)
        return exceeded(used, self.limit, minimum)

    @property
    def share(self) -> float:
        """The largest part of what it deserves that is in use; queues go in order of it."""
        parts = [
            used / self.deserved[name] if self.deserved.get(name) else 1.0
            for name, used in self.allocated.items()
            if used
        ]
        return max(parts, default=0.0)


def root_queue() -> Manifest:
    """The queue that Volcano makes above all others."""
    return _queue(ROOT, {"reclaimable": False, "weight": 1})


def open_queues(objects: Objects) -> Iterator[Change]:
    """The queue controller: a new queue gets its parent and opens."""
    for (_, name), queue in objects.get("Queue", {}).items():
        spec = queue["spec"] if name == ROOT else {"parent": ROOT, **queue["spec"]}
        if not status_of(queue).get("state") or spec != queue["spec"]:
            yield Update({**queue, "spec": spec, "status": {"state": "Open", "allocated": {}, **status_of(queue)}})


def queue_tree(objects: Objects) -> dict[str, QueueShare]:
    """Every queue with its limit, the parents before their children."""
    queues = {name: queue for (_, name), queue in objects.get("Queue", {}).items()}
    shares = {name: _share(name, queue) for name, queue in queues.items()}
    children: dict[str, list[str]] = {}
    for name, share in shares.items():
        if share.parent is not None:
            children.setdefault(share.parent, []).append(name)
    ordered: dict[str, QueueShare] = {}
    waiting = [name for name, share in shares.items() if share.parent is None]
    while waiting:
        name = waiting.pop(0)
        ordered[name] = shares[name]
        _limit_children(ordered[name], [(shares[child], queues[child]) for child in children.get(name, ())])
        waiting.extend(children.get(name, ()))
    return ordered


def _limit_children(parent: QueueShare, children: list[tuple[QueueShare, Manifest]]) -> None:
    guaranteed: dict[str, int] = {}
    for child, _ in children:
        guaranteed = add(guaranteed, child.guarantee)
    for child, queue in children:
        left = {
            name: most - guaranteed.get(name, 0) + child.guarantee.get(name, 0) for name, most in parent.limit.items()
        }
        own = resources(queue["spec"].get("capability"))
        child.limit = {
            name: min(own.get(name, left.get(name, 0)), left.get(name, own.get(name, 0))) for name in {*own, *left}
        }


def _share(name: str, queue: Manifest) -> QueueShare:
    spec = queue["spec"]
    guarantee = resources((spec.get("guarantee") or {}).get("resource"))
    deserved = resources(spec.get("deserved"))
    share = QueueShare(
        name=name,
        parent=None if name == ROOT else spec.get("parent", ROOT),
        priority=spec.get("priority", 0),
        reclaimable=spec.get("reclaimable", True),
        open=status_of(queue).get("state") == "Open",
        deserved={each: max(deserved.get(each, 0), guarantee.get(each, 0)) for each in {*deserved, *guarantee}},
        guarantee=guarantee,
    )
    if name == ROOT:
        share.limit = resources(spec.get("capability"))
    return share


def _queue(name: str, spec: Mapping[str, object]) -> Manifest:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": dict(spec),
    }
