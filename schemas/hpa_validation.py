# SPDX-License-Identifier: Apache-2.0
"""From what a user wrote to a HorizontalPodAutoscaler, or to all that is wrong with it.

Two documents hold one: a manifest of Kubernetes (`hpa_manifest`), and the block `hpa` of a Policy (`hpa_block`), which
is such a manifest, or has its keys but needs no target and no range: its queue and each Job say them. Structure comes
first (`schemas/json/horizontal-pod-autoscaler.v2.schema.json`), then `hpa_rules`; all that is wrong is found in one go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import hpa_rules
from kfp_volcano.schemas.codec import typed
from kfp_volcano.schemas.hpa import DEFAULT_DOWN, DEFAULT_UP, QUEUE, Behavior, HpaSpec, ScalingRules
from kfp_volcano.schemas.sound import Sound
from kfp_volcano.schemas.structure import Finding, load_schema
from kfp_volcano.schemas.wording import by_place, examine, problems, shown

if TYPE_CHECKING:
    from kfp_volcano.schemas.structure import Schema

__all__ = ["hpa_block", "hpa_block_findings", "hpa_manifest", "hpa_manifest_findings", "is_manifest"]

KIND = "HorizontalPodAutoscaler"
_SCHEMA = "horizontal-pod-autoscaler.v2"
_DEEPEST = 20
"""More levels than a manifest has."""


def is_manifest(value: Any) -> bool:
    """Whether a document is, or wants to be, a HorizontalPodAutoscaler."""
    return isinstance(value, Mapping) and value.get("kind") == KIND


def hpa_manifest(value: Mapping[str, Any], *, source: str = "hpa") -> HpaSpec:
    """The spec of a HorizontalPodAutoscaler of `autoscaling/v2`. Raises SpecError with every problem found."""
    plain, found = _manifest(value)
    if found:
        raise SpecError(problems(found, source), source=source)
    return _built(plain["spec"])


def hpa_manifest_findings(value: Any, *, queue: bool = False) -> list[Finding]:
    """What is wrong with such a manifest, and, with `queue`, whether a queue is what it scales."""
    plain, found = _manifest(value)
    kind = None if found else plain["spec"]["scaleTargetRef"]["kind"]
    if queue and kind not in (None, QUEUE):
        words = f"{shown(kind)} is no queue, whose Jobs a document of its own would be for"
        remedy = f"{QUEUE}, or write this manifest as the block hpa of a Policy that names its queues"
        found.append(Finding(("spec", "scaleTargetRef", "kind"), words, remedy))
    return found


def hpa_block(value: Mapping[str, Any], *, source: str = "hpa") -> HpaSpec:
    """The spec in the block `hpa` of a Policy. Raises SpecError with every problem found."""
    if is_manifest(value):
        return hpa_manifest(value, source=source)
    plain, found = _block(value)
    if found:
        raise SpecError(problems(found, source), source=source)
    return _built(plain)


def hpa_block_findings(value: Any) -> list[Finding]:
    """What is wrong with such a block, with paths from its root: for whoever checks the document around it."""
    return _manifest(value)[1] if is_manifest(value) else _block(value)[1]


def _manifest(value: Any) -> tuple[Any, list[Finding]]:
    plain, found = examine(_said(value), load_schema(_SCHEMA))
    first = by_place(found)
    return plain, list(by_place([*first.values(), *hpa_rules.findings(Sound(plain, first.keys()))]).values())


def _block(value: Any) -> tuple[Any, list[Finding]]:
    plain, found = examine(_said(value), _block_schema())
    first = by_place(found)
    return plain, list(by_place([*first.values(), *hpa_rules.block_findings(Sound(plain, first.keys()))]).values())


@cache
def _block_schema() -> Schema:
    whole = load_schema(_SCHEMA)
    return {**whole["$defs"]["block"], "$defs": whole["$defs"]}


def _said(value: Any, depth: int = 0) -> Any:
    """The value without keys that hold nothing, which to Kubernetes are as good as absent."""
    if depth < _DEEPEST and isinstance(value, dict):
        return {key: _said(part, depth + 1) for key, part in value.items() if part is not None}
    return [_said(part, depth + 1) for part in value] if depth < _DEEPEST and isinstance(value, list) else value


def _built(spec: Mapping[str, Any]) -> HpaSpec:
    """The typed spec, with the API's defaults for what is not said."""
    own = {key: part for key, part in spec.items() if key != "behavior" and (key != "metrics" or part)}
    behavior = spec.get("behavior")
    return typed(HpaSpec, own, behavior=None if behavior is None else _behavior(behavior))


def _behavior(value: Mapping[str, Any]) -> Behavior:
    return Behavior(
        scale_up=_rules(value.get("scaleUp", {}), DEFAULT_UP),
        scale_down=_rules(value.get("scaleDown", {}), DEFAULT_DOWN),
    )


def _rules(value: Mapping[str, Any], default: ScalingRules) -> ScalingRules:
    rules = typed(ScalingRules, value)
    if "policies" not in value:
        rules = replace(rules, policies=default.policies)
    if "stabilizationWindowSeconds" not in value:
        rules = replace(rules, stabilization_window_seconds=default.stabilization_window_seconds)
    return rules
