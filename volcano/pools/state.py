# SPDX-License-Identifier: Apache-2.0
"""Pools as they stand: read from nodes and pods, and what would become of them if nodes moved.

Whether a waiting pod would find room is asked of Volcano's own rules (`volcano.model`): cards, cpu and memory, labels
and taints.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import POOL_LABEL, POOL_SINCE
from kfp_volcano.volcano.model.cards import card_requests, wishes_of
from kfp_volcano.volcano.model.nodes import Node, is_ready
from kfp_volcano.volcano.model.objects import has_ended, key_of, labels_of, terminating
from kfp_volcano.volcano.model.tasks import Status, Task, task_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.schemas.gpu_pools import GPUPools, Pool
    from kfp_volcano.volcano.model.objects import Manifest

__all__ = ["SharedNode", "Standing", "State", "admits", "holds_shares", "state_of"]


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node whose GPUs are shared."""

    name: str
    pool: str
    """Empty for a spare one."""
    gpus: int
    since: float
    """When it came there, in Unix seconds; 0 where nobody knows."""
    used: bool
    """Whether a pod has shares of its GPUs, or is still to give them back."""
    manifest: Manifest = field(compare=False, repr=False)
    pods: tuple[Manifest, ...] = field(compare=False, repr=False)
    """Every pod on it, whether it shares GPUs or not."""
    model: Node = field(compare=False, repr=False)
    """Volcano's view of it in its pool, with its pods."""

    @classmethod
    def of(cls, manifest: Manifest, pool: str, pods: tuple[Manifest, ...], since: float) -> SharedNode:
        """A node in a pool."""
        metadata = manifest["metadata"]
        labels = {**(metadata.get("labels") or {}), POOL_LABEL: pool}
        model = Node.of({**manifest, "metadata": {**metadata, "labels": labels}})
        for order, pod in enumerate(pods):
            model.place(task_for(pod, order))
        return cls(
            name=metadata["name"],
            pool=pool,
            gpus=len(model.cards or ()),
            since=since,
            used=any(holds_shares(pod, metadata["name"]) for pod in pods),
            manifest=manifest,
            pods=pods,
            model=model,
        )

    def moved(self, pool: str, now: float) -> SharedNode:
        """The same node in another pool."""
        return SharedNode.of(self.manifest, pool, self.pods, now)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a pool stands, with everything that waits for it and fits it placed."""

    pool: Pool
    nodes: tuple[SharedNode, ...]
    use: float
    """Mean over its cards, from 0 to 1, each as full as it is in memory, cores or shares."""
    unserved: tuple[str, ...] = ()
    """Pods that find no room, as namespace/name."""
    kinds: tuple[Task, ...] = field(default=(), compare=False, repr=False)
    """One of each kind of them."""

    @property
    def gpus(self) -> int:
        """GPUs it has."""
        return sum(node.gpus for node in self.nodes)

    @property
    def wants(self) -> bool:
        """Whether it wants another node."""
        return self.gpus < self.pool.min or bool(self.unserved) or self.crowded

    @property
    def crowded(self) -> bool:
        """Whether it is fuller than it shall be."""
        return self.use * 100 > self.pool.wants_above

    @property
    def quiet(self) -> bool:
        """Whether it is empty enough to give."""
        return self.use * 100 < self.pool.gives_below


@dataclass(frozen=True, slots=True)
class State:
    """Nodes in pools, and the pods that wait for them."""

    pools: GPUPools
    nodes: Mapping[str, SharedNode]
    waiting: Mapping[str, tuple[Task, ...]]
    """By pool, the first to be served first."""
    strays: tuple[str, ...] = ()
    """Nodes that have a pool's label and may not be in one."""

    def moved(self, node: str, pool: str, now: float) -> State:
        """The same with a node in another pool."""
        return replace(self, nodes={**self.nodes, node: self.nodes[node].moved(pool, now)})

    def members(self, pool: str) -> tuple[SharedNode, ...]:
        """The nodes of a pool, or the spare ones."""
        return tuple(node for node in self.nodes.values() if node.pool == pool)

    def standing(self, pool: Pool) -> Standing:
        """How a pool stands."""
        nodes = self.members(pool.name)
        models = [node.model for node in nodes]
        placed, unserved, kinds = _place(self.waiting.get(pool.name, ()), models)
        cards = [card for model in models for card in model.cards or ()]
        use = sum(card.use for card in cards) / len(cards) if cards else 0.0
        for task, model in placed:
            model.remove(task)
            task.shares = ()
        return Standing(pool, nodes, use, tuple("/".join(task.key) for task in unserved), kinds)


def state_of(pools: GPUPools, nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> State:
    """Pools as nodes and pods of a cluster say; nodes that are not ready or cordoned do not count."""
    names = {pool.name for pool in pools.pools}
    on: dict[str, list[Manifest]] = {}
    waiting: dict[str, list[tuple[Any, Manifest]]] = {}
    for pod in sorted(pods, key=key_of):
        if has_ended(pod):
            continue
        node = pod["spec"].get("nodeName")
        pool = (pod["spec"].get("nodeSelector") or {}).get(POOL_LABEL)
        if node:
            on.setdefault(node, []).append(pod)
        elif pool in names and not terminating(pod) and card_requests(pod["spec"]):
            rank = (-pod["spec"].get("priority", 0), pod["metadata"].get("creationTimestamp", ""), key_of(pod))
            waiting.setdefault(pool, []).append((rank, pod))
    shared, strays = {}, []
    for node in sorted(nodes, key=key_of):
        name, pool = node["metadata"]["name"], labels_of(node).get(POOL_LABEL, "")
        cards = Node.of(node).cards
        if not cards or not _chosen(pools, node):
            if pool in names:
                strays.append(name)
        elif is_ready(node) and not (node.get("spec") or {}).get("unschedulable"):
            shared[name] = SharedNode.of(node, pool if pool in names else "", tuple(on.get(name, ())), _since(node))
    queued = {
        pool: tuple(task_for(pod, order) for order, (_, pod) in enumerate(sorted(those, key=lambda each: each[0])))
        for pool, those in waiting.items()
    }
    return State(pools, shared, queued, tuple(strays))


def _place(
    waiting: Iterable[Task], nodes: Sequence[Node]
) -> tuple[list[tuple[Task, Node]], list[Task], tuple[Task, ...]]:
    """Give pods room, each on the first node that has some: who got where, who got none, and one of each kind of these.

    A node that has no room for a kind of pods will have none for the next of the kind, as nodes only fill up.
    """
    placed, unserved = [], []
    first: dict[object, int] = {}
    hopeless: dict[object, Task] = {}
    for task in waiting:
        kind = _kind(task)
        at = first.get(kind, 0)
        while at < len(nodes) and not admits(nodes[at], task):
            at += 1
        first[kind] = at
        if at == len(nodes):
            unserved.append(task)
            hopeless.setdefault(kind, task)
        else:
            task.status = Status.ALLOCATED
            nodes[at].place(task)
            placed.append((task, nodes[at]))
    return placed, unserved, tuple(hopeless.values())


def _kind(task: Task) -> object:
    """All that decides where a pod finds room: pods of one kind are alike."""
    spec = task.pod["spec"]
    where = repr([spec.get(key) for key in ("nodeSelector", "affinity", "tolerations")])
    return task.wants, wishes_of(task.pod), tuple(sorted(task.request.items())), where


def holds_shares(pod: Manifest, node: str) -> bool:
    """Whether a pod has shares of a node's GPUs, or is still to give them back."""
    there = pod["spec"].get("nodeName") == node and not has_ended(pod)
    return there and bool(card_requests(pod["spec"]))


def admits(node: Node, task: Task) -> bool:
    """Whether a pod finds room on a node."""
    return not node.refusal(task) and not node.misfit(task, node.future_idle())


def _chosen(pools: GPUPools, node: Manifest) -> bool:
    """Whether the document says that a node may be in a pool."""
    labels = labels_of(node)
    return all(labels.get(key) in values for key, values in pools.nodes.items())


def _since(node: Manifest) -> float:
    text = (node["metadata"].get("annotations") or {}).get(POOL_SINCE, "")
    return float(text) if text.isdecimal() else 0.0
