# SPDX-License-Identifier: Apache-2.0
"""Nodes: what is free on them, whom they take, and which of several is best.

Sources: NodeInfo (pkg/scheduler/api/node_info.go), the plugins predicates, deviceshare, nodeorder and binpack with
their default weights (pkg/scheduler/plugins), Volcano 1.15.1, and the scores of Kubernetes 1.35 that nodeorder uses
(pkg/scheduler/framework/plugins/noderesources). Preferred affinities, images and spread constraints are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.affinity import selects
from kfp_volcano.volcano.model.cards import Cards
from kfp_volcano.volcano.model.objects import Manifest, key_of, status_of
from kfp_volcano.volcano.model.resources import add, lacking, put, resources
from kfp_volcano.volcano.model.tasks import Status, Task

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from kfp_volcano.volcano.model.alike import Alike
    from kfp_volcano.volcano.model.resources import Resources

__all__ = ["Node", "is_ready", "refusal"]

_CPU, _MEMORY = "cpu", "memory"
_GIVEN = frozenset({Status.ALLOCATED, Status.PIPELINED})
"""In these states of this cycle a pod gets its shares; later they stand in its annotations."""
_MOST = 100
_LEAST_REQUEST = {_CPU: 100, _MEMORY: 200 * 1024 * 1024 * 1000}
"""What the scores take a pod to need that asks for none (GetNonzeroRequests)."""


@dataclass(slots=True, eq=False)
class Node:
    """A node and what is free on it."""

    manifest: Manifest
    allocatable: Resources
    idle: dict[str, int]
    releasing: dict[str, int] = field(default_factory=dict)
    """What pods hold that are going."""
    promised: dict[str, int] = field(default_factory=dict)
    tasks: dict[Task, Status] = field(default_factory=dict)
    """Pods on it, and in which state they are accounted for."""
    cards: Cards | None = None
    """Its shared GPUs; None where it has none."""
    alike: Alike | None = None
    """Told when its state changes, where nodes in one state stand for each other."""
    _evicted: set[Task] = field(default_factory=set)
    """Those among them that this cycle takes: the scores of Kubernetes see them no more."""
    _requested: dict[str, int] = field(default_factory=dict)
    """What the others ask for, and those that are promised the node (Requested)."""
    _apparent: dict[str, int] = field(default_factory=dict)
    """The same, at least what they are taken to need (NonZeroRequested)."""
    _scores: dict[tuple[tuple[str, int], ...], float] = field(default_factory=dict)
    """By request, as long as nothing changes."""

    @classmethod
    def of(cls, manifest: Manifest) -> Node:
        """An empty node."""
        room = resources(status_of(manifest).get("allocatable"))
        return cls(manifest, room, dict(room), cards=Cards.of(manifest))

    @property
    def name(self) -> str:
        """The node's name."""
        return key_of(self.manifest)[1]

    @property
    def has_evicted(self) -> bool:
        """Whether this cycle takes pods of it."""
        return bool(self._evicted)

    def future_idle(self) -> dict[str, int]:
        """What will be free when those that are going are gone and the promises are kept (FutureIdle)."""
        if not self.releasing and not self.promised:
            return self.idle
        return add(add(self.idle, self.releasing), self.promised, times=-1)

    def place(self, task: Task) -> None:
        """Account for a pod in its present state; again after a change of state."""
        if task in self.tasks:
            self.remove(task)
        self.tasks[task] = task.status
        self._book(task, task.status, 1)

    def evict(self, task: Task) -> None:
        """Account for a pod of this node that this cycle takes."""
        self.remove(task)
        self._evicted.add(task)
        self.place(task)

    def remove(self, task: Task) -> None:
        """Forget a pod; nothing happens if it is not here."""
        status = self.tasks.pop(task, None)
        if status is not None:
            self._book(task, status, -1)
            self._evicted.discard(task)

    def refusal(self, task: Task) -> str:
        """Why it could not take a pod even if it were empty, or nothing (predicates)."""
        return refusal(task.pod["spec"], self.manifest)

    def misfit(self, task: Task, room: Resources) -> str:
        """What of a pod's request this room, or the cards of the node, do not have, or nothing."""
        short = lacking(task.request, room)
        if short:
            return f"Insufficient {', '.join(short)}"
        return "" if self.has_cards(task) else "Insufficient memory or cores of each shared GPU"

    def has_cards(self, task: Task) -> bool:
        """Whether its cards have room for a pod's shares, once those that are going are gone (deviceshare)."""
        return not task.wants or self.cards is None or self.cards.room(task.pod, task.wants) is not None

    def score(self, task: Task) -> float:
        """How well a pod fits here, the best node having the most."""
        wanted = task.request
        key = tuple(wanted.items())
        score = self._scores.get(key)
        if score is None:
            used = add(self.allocatable, self.idle, times=-1)
            score = self._least_allocated(wanted) + self._balanced(wanted) + self._binpack(wanted, used)
            self._scores[key] = score
        return score

    @property
    def state(self) -> Hashable:
        """Equal for nodes of one kind that are the same to every pod, shared GPUs apart."""
        parts = (self.idle, self.releasing, self.promised, self._requested, self._apparent)
        return tuple(frozenset(part.items()) for part in parts)

    def _book(self, task: Task, status: Status, times: int) -> None:
        if task.wants and self.cards is not None and status is not Status.RELEASING:
            self._share(self.cards, task, times)
        if task not in self._evicted:
            put(self._requested, task.request, times)
            put(self._apparent, _apparent(task.request), times)
        if status is Status.PIPELINED:
            put(self.promised, task.request, times)
        else:
            put(self.idle, task.request, -times)
            if status is Status.RELEASING:
                put(self.releasing, task.request, times)
        self._scores.clear()
        if self.alike is not None:
            self.alike.changed(self)

    def _share(self, cards: Cards, task: Task, times: int) -> None:
        if times < 0:
            cards.release(task.pod)
            return
        if not task.shares and task.status in _GIVEN:
            task.shares = cards.room(task.pod, task.wants) or ()
        cards.hold(task.pod, (share for container in task.shares for share in container))

    def _least_allocated(self, wanted: Resources) -> int:
        parts = [
            max(0, room - self._apparent.get(name, 0) - amount) * _MOST // room
            for name, amount in _apparent(wanted).items()
            if (room := self.allocatable.get(name, 0))
        ]
        return sum(parts) // len(parts) if parts else 0

    def _balanced(self, wanted: Resources) -> int:
        fractions = [
            min(1.0, (self._requested.get(name, 0) + wanted.get(name, 0)) / self.allocatable[name])
            for name in (_CPU, _MEMORY, GPU)
            if self.allocatable.get(name) and (name != GPU or wanted.get(GPU))
        ]
        if not fractions or not any(wanted.get(name) for name in (_CPU, _MEMORY, GPU)):
            return 0
        mean = sum(fractions) / len(fractions)
        deviation = math.sqrt(sum((each - mean) ** 2 for each in fractions) / len(fractions))
        return int((1 - deviation) * _MOST)

    def _binpack(self, wanted: Resources, used: Resources) -> float:
        parts = [
            (used.get(name, 0) + wanted[name]) / self.allocatable[name] if self.allocatable.get(name) else 0.0
            for name in (_CPU, _MEMORY)
            if wanted.get(name)
        ]
        if not parts or max(parts) > 1:
            return 0.0
        return _MOST * sum(parts) / len(parts)


def refusal(pod: Mapping[str, Any], node: Manifest) -> str:
    """Why a node could not take a pod with this spec even if it were empty, or nothing."""
    if not selects(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    spec = node.get("spec")
    if not spec:
        return ""
    tolerations = pod.get("tolerations") or ()
    if spec.get("unschedulable") and not _tolerated(tolerations, _UNSCHEDULABLE):
        return "node(s) were unschedulable"
    taints = (taint for taint in spec.get("taints") or () if taint["effect"] in {"NoSchedule", "NoExecute"})
    if not all(_tolerated(tolerations, taint) for taint in taints):
        return "node(s) had untolerated taints"
    return ""


def is_ready(manifest: Manifest) -> bool:
    """Whether a node takes part: the others are not looked at (NodeInfo.Ready)."""
    conditions = status_of(manifest).get("conditions") or ()
    return all(each["status"] == "True" for each in conditions if each["type"] == "Ready")


def _apparent(request: Resources) -> dict[str, int]:
    return {name: request.get(name, 0) or least for name, least in _LEAST_REQUEST.items()}


_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _tolerated(tolerations: Iterable[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
