# SPDX-License-Identifier: Apache-2.0
"""What pods ask of nodes, and whether a node takes them: equal needs are one object, for many pods have few kinds.

A pod's shape is what tells it from others on every node: its requests, and the nodes that it may run on. Volcano's
other predicates (ports, volumes, pods' affinity to each other, spread, topology) are not looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping  # noqa: TC003 - a type of fields
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.policies.snapshot import Shape
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.nodes import refusal
from kfp_volcano.volcano.model.resources import POD, pod_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["GPU_CLASS_LABELS", "Catalogue", "Needs", "Request"]

GPU_CLASS_LABELS = ("gpu.class", "nvidia.com/gpu.product")
"""Labels of nodes that name their kind of GPU; the first that is there counts."""

_MILLI = 1000
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Request:
    """What a pod takes of its node."""

    gpus: int
    amounts: Mapping[str, int]
    """Thousandths by resource, GPUs and the pod itself among them."""


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """What pods of one shape need."""

    shape: Shape
    gpus: int
    """GPUs of each."""
    others: tuple[tuple[str, int], ...]
    """What each takes beside them, thousandths by resource."""
    spec: Mapping[str, Any]
    """The parts of the pod's spec that choose nodes."""

    def admitted(self, node: Manifest) -> bool:
        """Whether a node would take such a pod if it were empty."""
        return not refusal(self.spec, node)


class Catalogue:
    """All requests and needs that were seen."""

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._needs: dict[str, Needs] = {}
        self._by_name: dict[str, Needs] = {}

    def request(self, spec: Mapping[str, Any]) -> Request:
        """What a pod with this spec takes."""
        key = repr(
            [
                [(each.get("resources"), each.get("restartPolicy")) for each in spec.get(part) or ()]
                for part in ("containers", "initContainers")
            ]
        )
        found = self._requests.get(key)
        if found is None:
            amounts = {name: amount for name, amount in sorted(pod_request(spec).items()) if amount}
            found = Request(amounts.get(GPU, 0) // _MILLI, {**amounts, POD: _MILLI})
            self._requests[key] = found
        return found

    def needs(self, spec: Mapping[str, Any]) -> Needs:
        """What a pod with this spec needs."""
        request, choice = self.request(spec), _choice(spec)
        amounts = {name: amount for name, amount in request.amounts.items() if name != GPU}
        key = json.dumps([request.gpus, amounts, choice], sort_keys=True, default=str)
        found = self._needs.get(key)
        if found is None:
            name = hashlib.sha256(key.encode()).hexdigest()[:12]
            shape = Shape(name=name, requests=amounts, gpu_classes=tuple(sorted(set(_classes(choice)))))
            found = self._needs[key] = Needs(shape, request.gpus, tuple(amounts.items()), choice)
            self._by_name[name] = found
        return found

    def named(self, shape: str) -> Needs | None:
        """The needs of a shape; None for one that needs nothing but its GPUs."""
        return self._by_name.get(shape)


def _choice(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What of a pod's spec chooses nodes."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    stated = {
        "nodeSelector": spec.get("nodeSelector"),
        "affinity": {"nodeAffinity": {_REQUIRED: required}} if required else None,
        "tolerations": spec.get("tolerations"),
    }
    return {name: value for name, value in stated.items() if value}


def _classes(choice: Mapping[str, Any]) -> Iterator[str]:
    """The kinds of GPU that a spec names."""
    selector = choice.get("nodeSelector") or {}
    yield from (str(selector[label]) for label in GPU_CLASS_LABELS if label in selector)
    affinity = (choice.get("affinity") or {}).get("nodeAffinity") or {}
    for term in (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for expression in term.get("matchExpressions") or ():
            if expression.get("key") in GPU_CLASS_LABELS and expression.get("operator") == "In":
                yield from map(str, expression.get("values") or ())
