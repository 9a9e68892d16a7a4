# SPDX-License-Identifier: Apache-2.0
"""Nodes: what pods of any queue hold of them, and how many are in which state, as pods of some shapes see them.

The states of nodes are counted anew only where something has changed: a change costs the same however many nodes there
are, and a queue that is looked at pays for the changes since it was looked at last.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.observing.needs import GPU_CLASS_LABELS
from kfp_volcano.elastic.policies.snapshot import UNUSABLE, NodeState
from kfp_volcano.schemas.names import GPU, UNFIT_LABEL
from kfp_volcano.volcano.model.nodes import is_ready
from kfp_volcano.volcano.model.objects import labels_of, terminating
from kfp_volcano.volcano.model.resources import POD, resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.elastic.autoscaler.observing.needs import Needs, Request
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["Crowd", "NodeTable"]

_MILLI = 1000
_MOST_CROWDS = 256
"""Sets of shapes that are kept counted; the one that was not asked for the longest goes."""


@dataclass(slots=True, eq=False)
class _Node:
    """A node, or what pods hold of one that is not known."""

    name: str
    usable: bool = False
    """Whether it is there and takes pods."""
    room: Mapping[str, int] = field(default_factory=dict)
    """What it has, thousandths by resource."""
    gpu_class: str = ""
    words: Manifest = field(default_factory=dict)
    """What of it decides whom it takes: its name, labels and taints."""
    held: dict[str, int] = field(default_factory=dict)
    releasing: dict[str, int] = field(default_factory=dict)
    """The part of `held` that is leaving."""
    jobs: dict[str, int] = field(default_factory=dict)
    """How many pods of each Job hold something there."""
    admits: dict[str, bool] = field(default_factory=dict)
    """By shape."""

    @property
    def gpus(self) -> int:
        """What it adds to the cluster: its GPUs, or those that pods hold though it takes none."""
        return (self.room if self.usable else self.held).get(GPU, 0) // _MILLI

    def state(self, shapes: Iterable[Needs]) -> NodeState:
        """What is left on it."""
        leaving = self.releasing.get(GPU, 0)
        free = max(0, self.room.get(GPU, 0) - self.held.get(GPU, 0)) // _MILLI
        later = free + leaving // _MILLI
        if not later:
            return NodeState(0, 0, (), self.gpu_class)
        fits = [(needs.shape.name, most) for needs in shapes if (most := self._fewer(needs, later)) is not None]
        return NodeState(free, leaving // _MILLI, tuple(fits), self.gpu_class)

    def _fewer(self, needs: Needs, gpus: int) -> int | None:
        """How many pods it could take, once all that is leaving is gone, where those are fewer than its GPUs allow."""
        most = gpus // needs.gpus if needs.gpus else 0
        if not most:
            return None
        admitted = self.admits.get(needs.shape.name)
        if admitted is None:
            admitted = self.admits[needs.shape.name] = needs.admitted(self.words)
        if not admitted:
            return 0
        fit = most
        for name, amount in needs.others:
            if name == POD and name not in self.room:
                continue
            left = self.room.get(name, 0) - self.held.get(name, 0) + self.releasing.get(name, 0)
            if left < fit * amount:
                fit = max(0, left // amount)
        return fit if fit < most else None


class Crowd:
    """The states of all nodes that take pods, as pods of some shapes see them."""

    def __init__(self, shapes: tuple[Needs, ...]) -> None:
        self._shapes = shapes
        self._states: dict[str, NodeState] = {}
        self._known: dict[NodeState, NodeState] = {}
        self.counts: Counter[NodeState] = Counter()
        """How many nodes are in each state."""
        self.seen = 0
        """Up to which change of the table."""

    def state(self, node: str) -> NodeState | None:
        """What is left on a node; None where it takes no pods."""
        return self._states.get(node)

    def apart(self, hosts: Iterable[str]) -> tuple[dict[str, NodeState], Counter[NodeState]]:
        """The states of these nodes, as far as they take pods, and how many others are in each state."""
        named = {host: state for host in sorted(hosts) if (state := self._states.get(host)) is not None}
        others = self.counts.copy()
        for state in named.values():
            _take_one(others, state)
        return named, others

    def update(self, node: _Node) -> None:
        """Count a node anew."""
        before = self._states.pop(node.name, None)
        if before is not None:
            _take_one(self.counts, before)
        if node.usable:
            state = node.state(self._shapes)
            state = self._known.setdefault(state, state)
            self._states[node.name] = state
            self.counts[state] += 1


class NodeTable:
    """All nodes, and those that are only known by the pods on them."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._changes: dict[str, int] = {}
        """The number of each node's last change, in that order."""
        self._change = 0
        self._crowds: dict[tuple[str, ...], Crowd] = {}
        self.total = 0
        """GPUs of the nodes that take pods, and those that pods still hold on others."""
        self.marked: dict[str, Manifest] = {}
        """The nodes that are marked as unfit, whoever marked them."""

    def put(self, name: str, manifest: Manifest | None) -> bool:
        """A node as it is now, None where it is gone. Returns whether it matters."""
        node = self._nodes.get(name) or _Node(name)
        usable = manifest is not None and _takes_pods(manifest)
        room = resources((manifest.get("status") or {}).get("allocatable")) if manifest else {}
        words = _words(manifest) if manifest else {}
        if manifest is not None and UNFIT_LABEL in labels_of(manifest):
            self.marked[name] = manifest
        else:
            self.marked.pop(name, None)
        if (node.usable, node.room, node.words) == (usable, room, words) and name in self._nodes:
            return False
        before = node.gpus if name in self._nodes else 0
        node.usable, node.room, node.words, node.admits = usable, room, words, {}
        labels = labels_of(manifest) if manifest else {}
        node.gpu_class = next((labels[label] for label in GPU_CLASS_LABELS if label in labels), "")
        self._nodes[name] = node
        self._has_changed(node, before)
        return True

    def hold(self, name: str, request: Request, job: str, *, leaving: bool, times: int) -> None:
        """Account for a pod on a node, or with `times=-1` take it off."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node(name)
        before = node.gpus
        for resource, amount in request.amounts.items():
            node.held[resource] = node.held.get(resource, 0) + times * amount
            if leaving:
                node.releasing[resource] = node.releasing.get(resource, 0) + times * amount
        if job:
            node.jobs[job] = node.jobs.get(job, 0) + times
            if not node.jobs[job]:
                del node.jobs[job]
        self._has_changed(node, before)

    @property
    def names(self) -> list[str]:
        """The nodes that are there."""
        return [node.name for node in self._nodes.values() if node.words]

    def jobs_on(self, name: str) -> list[str]:
        """The Jobs of which pods are on a node."""
        node = self._nodes.get(name)
        return list(node.jobs) if node else []

    def place(self, name: str) -> str:
        """Where a worker on this node is, in a snapshot's terms."""
        node = self._nodes.get(name)
        return name if node is not None and node.usable else UNUSABLE

    def gpu_class(self, name: str) -> str:
        """A node's kind of GPU; empty where that is not known."""
        node = self._nodes.get(name)
        return node.gpu_class if node is not None else ""

    def crowd(self, shapes: Iterable[Needs]) -> Crowd:
        """The nodes as pods of these shapes see them."""
        wanted = {needs.shape.name: needs for needs in shapes}
        key = tuple(sorted(wanted))
        crowd = self._crowds.pop(key, None)
        if crowd is None:
            crowd = Crowd(tuple(wanted[name] for name in key))
            if len(self._crowds) >= _MOST_CROWDS:
                del self._crowds[next(iter(self._crowds))]
        self._crowds[key] = crowd
        for name in self._changed_since(crowd.seen):
            crowd.update(self._nodes.get(name) or _Node(name))
        crowd.seen = self._change
        return crowd

    def _changed_since(self, change: int) -> Iterator[str]:
        for name, last in reversed(self._changes.items()):
            if last <= change:
                return
            yield name

    def _has_changed(self, node: _Node, gpus_before: int) -> None:
        self.total += node.gpus - gpus_before
        self._change += 1
        self._changes.pop(node.name, None)
        self._changes[node.name] = self._change
        if not node.words and not any(node.held.values()):
            del self._nodes[node.name]
            if len(self._changes) > 2 * len(self._nodes) + _MOST_CROWDS:
                self._forget_gone()

    def _forget_gone(self) -> None:
        """Of nodes that are gone nothing stays; what was counted is counted anew when it is asked for."""
        self._crowds.clear()
        self._changes = {name: last for name, last in self._changes.items() if name in self._nodes}


def _words(manifest: Manifest) -> Manifest:
    metadata = {"name": manifest["metadata"]["name"], "labels": dict(labels_of(manifest))}
    return {"metadata": metadata, "spec": {"taints": (manifest.get("spec") or {}).get("taints")}}


def _takes_pods(node: Manifest) -> bool:
    return not (node.get("spec") or {}).get("unschedulable") and not terminating(node) and is_ready(node)


def _take_one(counts: Counter[NodeState], state: NodeState) -> None:
    counts[state] -= 1
    if not counts[state]:
        del counts[state]
