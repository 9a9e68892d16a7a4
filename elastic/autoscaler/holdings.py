"""Who holds which GPUs: the arithmetic under an observation, on watched objects alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE, NodeState
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.objects import has_ended
from kfp_volcano.volcano.model.resources import pod_request, resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["Nodes", "gpus_of", "holds_gpus", "is_terminating", "queue_limit", "task_index", "task_name", "waiting"]

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Nodes:
    """The GPUs of all nodes, and what pods of any queue hold of them."""

    states: Mapping[str, NodeState]
    """What is left on each node that takes pods, by name."""
    total: int
    """GPUs of the nodes that take pods, and those that pods still hold on others."""

    @classmethod
    def of(cls, nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> Nodes:
        """Count."""
        sizes = {
            str(node["metadata"]["name"]): _gpus((node.get("status") or {}).get("allocatable"))
            for node in nodes
            if _takes_pods(node)
        }
        held, releasing, elsewhere = Counter[str](), Counter[str](), 0
        for pod in pods:
            if not holds_gpus(pod):
                continue
            node, gpus = str(pod["spec"]["nodeName"]), gpus_of(pod["spec"])
            if node not in sizes:
                elsewhere += gpus
                continue
            held[node] += gpus
            releasing[node] += gpus if is_terminating(pod) else 0
        states = {name: NodeState(max(0, size - held[name]), releasing[name]) for name, size in sorted(sizes.items())}
        return cls(states, sum(sizes.values()) + elsewhere)

    def place(self, pod: Manifest | None) -> str:
        """Where a worker is, in a snapshot's terms; NOWHERE also for a pod that is missing, finished or leaving."""
        if pod is None or not holds_gpus(pod) or is_terminating(pod):
            return NOWHERE
        node = str(pod["spec"]["nodeName"])
        return node if node in self.states else UNUSABLE


def gpus_of(pod_spec: Mapping[str, Any]) -> int:
    """GPUs that a pod asks for."""
    return pod_request(pod_spec).get(GPU, 0) // _MILLI


def holds_gpus(pod: Manifest) -> bool:
    """Whether a pod occupies its node; a terminating one does until it is gone."""
    return bool(pod["spec"].get("nodeName")) and not has_ended(pod)


def waiting(pod: Manifest) -> bool:
    """Whether a pod waits for a node."""
    return not pod["spec"].get("nodeName") and not is_terminating(pod)


def is_terminating(manifest: Manifest) -> bool:
    """Whether an object has been asked to go."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def task_name(pod: Manifest) -> str:
    """The Job's task a pod belongs to."""
    return str((pod["metadata"].get("labels") or {}).get("volcano.sh/task-spec", ""))


def task_index(pod: Manifest) -> int:
    """A pod's index within its task: the end of its name."""
    tail = str(pod["metadata"]["name"]).rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


def queue_limit(queue: str, queues: Sequence[Manifest], allocated: Mapping[str, int], total: int) -> int:
    """GPUs a queue may use at most: the least of what it and each of its ancestors may have.

    A queue may have its capability, bounded by the nodes less what is guaranteed to other queues (Volcano's
    realCapability, pkg/scheduler/plugins/capacity). Of an ancestor's, other queues below it may have taken a part.
    """
    specs = {str(each["metadata"]["name"]): each.get("spec") or {} for each in queues}
    parents = {name: str(spec.get("parent") or "root") for name, spec in specs.items()}
    inner = set(parents.values())
    limit = total - sum(_guarantee(spec) for name, spec in specs.items() if name != queue and name not in inner)
    capability = _capability(specs.get(queue, {}))
    limit = limit if capability is None else min(limit, capability)
    seen, ancestor = {queue}, parents.get(queue, "root")
    while ancestor in specs and ancestor not in seen:
        seen.add(ancestor)
        capability = _capability(specs[ancestor])
        if capability is not None:
            others = sum(
                count for name, count in allocated.items() if name != queue and _below(name, ancestor, parents)
            )
            limit = min(limit, capability - others)
        ancestor = parents.get(ancestor, "root")
    return max(0, limit)


def _below(queue: str, ancestor: str, parents: Mapping[str, str]) -> bool:
    for _ in parents:
        if queue == ancestor:
            return True
        queue = parents.get(queue, "root")
    return queue == ancestor


def _capability(spec: Mapping[str, Any]) -> int | None:
    capability = spec.get("capability") or {}
    return _gpus(capability) if GPU in capability else None


def _guarantee(spec: Mapping[str, Any]) -> int:
    return _gpus((spec.get("guarantee") or {}).get("resource"))


def _gpus(quantities: Mapping[str, Any] | None) -> int:
    return resources({GPU: (quantities or {}).get(GPU, 0)})[GPU] // _MILLI


def _takes_pods(node: Manifest) -> bool:
    if node.get("spec", {}).get("unschedulable") or is_terminating(node):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    return all(condition.get("status") == "True" for condition in conditions if condition.get("type") == "Ready")
