# SPDX-License-Identifier: Apache-2.0
"""The cluster of a storm: nodes, a tree of queues and classes, at random, and what befalls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.control import run_controllers
from kfp_volcano.volcano.model.queues import root_queue

if TYPE_CHECKING:
    from storms.storm import Storm

__all__ = ["CLASSES", "Cluster"]

CLASSES = {"low": 10, "normal": 100, "high": 1000}


class Cluster:
    """Nodes and queues."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        random = storm.random
        self.nodes = {f"node-{number}": random.choice([2, 4, 8]) for number in range(random.randint(2, 6))}
        self.total = sum(self.nodes.values())
        self.queues: list[str] = []
        """Those that may have Jobs."""

    def build(self) -> None:
        """Create it."""
        with self._storm.store.transaction() as (world, now):
            for name in self.nodes:
                world.create(self._node(name), now)
            for name, value in CLASSES.items():
                for suffix, less in (("", 0), ("-surplus", value - 1)):
                    metadata = {"name": f"{name}{suffix}"}
                    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata}
                    world.create({**head, "value": value - less}, now)
            world.create(root_queue(), now)
            run_controllers(world, now)
            for queue in self._tree():
                world.create(queue, now)
                run_controllers(world, now)

    def _tree(self) -> list[dict[str, Any]]:
        """One to three queues, sometimes two of them below another; their shares together are what is there."""
        random, total = self._storm.random, self.total
        count = random.randint(1, 3)
        names = ["research", "vision", "speech"][:count]
        self.queues = names
        cuts = sorted(random.randint(0, total) for _ in range(count - 1))
        shares = [high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True)]
        queues = []
        under = "root"
        if count == 3 and random.random() < 0.5:
            under, lab = "lab", shares[0] + shares[1]
            capability = random.choice([None, random.randint(lab, total)])
            queues.append(self._queue("lab", "root", lab, capability))
        for number, (name, share) in enumerate(zip(names, shares, strict=True)):
            parent = under if number < 2 else "root"
            capability = random.choice([None, total, random.randint(max(1, share), max(1, total))])
            if parent == "lab":
                capability = None
            queues.append(self._queue(name, parent, random.choice([share, share, None]), capability))
        return queues

    def _queue(self, name: str, parent: str, deserved: int | None, capability: int | None) -> dict[str, Any]:
        stated = {"deserved": deserved, "capability": capability}
        amounts = {field: {GPU: str(gpus)} for field, gpus in stated.items() if gpus is not None}
        self._storm.say(f"queue {name} below {parent}: {stated}")
        return {**root_queue(), "metadata": {"name": name}, "spec": {"parent": parent, "reclaimable": True, **amounts}}

    def _node(self, name: str) -> dict[str, Any]:
        room = {"cpu": "1000", "memory": "1000Gi", "pods": "1000", GPU: str(self.nodes[name])}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
        ready = [{"type": "Ready", "status": "True"}]
        return {**node, "status": {"capacity": room, "allocatable": room, "conditions": ready}}

    # What befalls it.

    def trouble(self) -> None:
        """A node is cordoned, lost, half-known, or back."""
        random, store = self._storm.random, self._storm.store
        name = random.choice(sorted(self.nodes))
        there = {node["metadata"]["name"]: node for node in store.list("Node")[0]}
        if name not in there:
            self._back(name)
            return
        match random.choice(["cordon", "lose", "blind"]):
            case "cordon":
                self._change(name, {"op": "add", "path": "/spec/unschedulable", "value": True})
                self._storm.count("node cordoned")
            case "blind":
                self._change(name, {"op": "add", "path": "/status/conditions", "value": []})
                self._storm.count("node without conditions")
            case "lose":
                self._lose(name)
        self._storm.at(random.uniform(5.0, 200.0), lambda: self._back(name))

    def heal(self) -> None:
        """All nodes are back."""
        for name in sorted(self.nodes):
            self._back(name)

    def _lose(self, name: str) -> None:
        """A node and its pods are gone at once."""
        self._storm.say(f"{name} is lost")
        self._storm.count("node lost")
        with self._storm.store.transaction() as (world, now):
            world.remove("Node", ("", name), now)
            for key, pod in list(world.objects.get("Pod", {}).items()):
                if pod["spec"].get("nodeName") == name:
                    world.remove("Pod", key, now)

    def _back(self, name: str) -> None:
        if name not in {node["metadata"]["name"] for node in self._storm.store.list("Node")[0]}:
            self._storm.say(f"{name} is back")
            self._storm.store.create(self._node(name))
            return
        self._change(name, {"op": "add", "path": "/spec", "value": {}})
        self._change(
            name, {"op": "add", "path": "/status/conditions", "value": self._node(name)["status"]["conditions"]}
        )

    def _change(self, name: str, operation: dict[str, Any]) -> None:
        self._storm.store.patch("Node", name, "", [operation])
