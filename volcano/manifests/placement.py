# SPDX-License-Identifier: Apache-2.0
"""Where pods may run, in Kubernetes' words: node affinity from the spec's words, beside what it says itself."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.pods import Placement
from kfp_volcano.volcano.manifests.present import present

if TYPE_CHECKING:
    from kfp_volcano.schemas.pods import Toleration

__all__ = ["combined", "pod_placement"]

_ANYWHERE = Placement()
_HIGHEST_WEIGHT = 100


def combined(spec: Placement, role: Placement) -> Placement:
    """A role's placement: what it says itself wins, labels one by one."""
    if role == _ANYWHERE:
        return spec
    own = {each.name: getattr(role, each.name) for each in fields(role) if getattr(role, each.name)}
    merged = {key: {**getattr(spec, key), **own.get(key, {})} for key in ("nodes", "node_selector")}
    return replace(spec, **{**own, **merged})


def pod_placement(placement: Placement, *, devices: bool) -> dict[str, Any]:
    """What a pod's spec says of nodes; one with `devices` avoids nodes whose devices were found unfit."""
    return present(
        nodeSelector=dict(placement.node_selector),
        affinity=_affinity(placement, devices=devices),
        tolerations=[_toleration(each) for each in placement.tolerations],
    )


def _affinity(placement: Placement, *, devices: bool) -> dict[str, Any]:
    required: list[dict[str, Any]] = [
        *([{"key": "kubernetes.io/arch", "operator": "In", "values": list(placement.arch)}] if placement.arch else []),
        *({"key": label, "operator": "In", "values": list(values)} for label, values in placement.nodes.items()),
        *([{"key": names.UNFIT_LABEL, "operator": "DoesNotExist"}] if devices else []),
    ]
    preferred = [term for label, values in placement.nodes.items() for term in _preferred(label, values)]
    affinity = copy.deepcopy(placement.affinity)
    if not required:
        return affinity
    nodes = affinity.setdefault("nodeAffinity", {})
    _require(nodes, required)
    if preferred:
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [
            *preferred,
            *nodes.get("preferredDuringSchedulingIgnoredDuringExecution", ()),
        ]
    return affinity


def _require(nodes: dict[str, Any], expressions: list[dict[str, Any]]) -> None:
    """Terms are alternatives: what holds for each pod goes into each of them."""
    selector = nodes.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
    selector["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*expressions, *term.get("matchExpressions", ())]}
        for term in selector["nodeSelectorTerms"] or [{}]
    ]


def _preferred(label: str, values: tuple[str, ...]) -> list[dict[str, Any]]:
    """Weights that fall from value to value; the last one needs none."""
    return [
        {
            "weight": max(1, _HIGHEST_WEIGHT * (len(values) - rank) // len(values)),
            "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]},
        }
        for rank, value in enumerate(values[:-1])
    ]


def _toleration(toleration: Toleration) -> dict[str, Any]:
    return present(
        key=toleration.key,
        operator=toleration.operator,
        value=toleration.value,
        effect=toleration.effect,
        tolerationSeconds=toleration.toleration_seconds,
    )
