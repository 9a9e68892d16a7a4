# SPDX-License-Identifier: Apache-2.0
"""Selectors of nodes and pods, and the affinities built of them, as Kubernetes takes them.

Source: validateAffinity (pkg/apis/core/validation/validation.go) and ValidateLabelSelector (k8s.io/apimachinery,
pkg/apis/meta/v1/validation), Kubernetes 1.35.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.structure import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.schemas.structure import Path

__all__ = ["faults", "keys_of", "selector_faults"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def faults(affinity: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """What is wrong with an affinity whose fields are right one by one."""
    nodes, place = affinity.get("nodeAffinity", {}), (*path, "nodeAffinity")
    for index, term in enumerate(nodes.get(_REQUIRED, {}).get("nodeSelectorTerms", ())):
        yield from _expressions(term, (*place, _REQUIRED, "nodeSelectorTerms", index))
    for index, preferred in enumerate(nodes.get(_PREFERRED, ())):
        yield from _expressions(preferred["preference"], (*place, _PREFERRED, index, "preference"))
    for key in ("podAffinity", "podAntiAffinity"):
        pods, place = affinity.get(key, {}), (*path, key)
        for index, term in enumerate(pods.get(_REQUIRED, ())):
            yield from _pods(term, (*place, _REQUIRED, index))
        for index, preferred in enumerate(pods.get(_PREFERRED, ())):
            yield from _pods(preferred["podAffinityTerm"], (*place, _PREFERRED, index, "podAffinityTerm"))


def selector_faults(selector: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """What is wrong with a label selector."""
    yield from _expressions(selector, path)


def keys_of(selector: Mapping[str, Any]) -> set[str]:
    """The label keys that a selector names."""
    return {*selector.get("matchLabels", {}), *(each["key"] for each in selector.get("matchExpressions", ()))}


def _pods(term: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    selector = term.get("labelSelector")
    yield from _expressions(selector or {}, (*path, "labelSelector"))
    yield from _expressions(term.get("namespaceSelector", {}), (*path, "namespaceSelector"))
    same, other = term.get("matchLabelKeys", ()), term.get("mismatchLabelKeys", ())
    for key, keys in (("matchLabelKeys", same), ("mismatchLabelKeys", other)):
        if keys and selector is None:
            yield Finding((*path, key), "needs a labelSelector beside it", "labelSelector: {}")
    told = {*keys_of(selector or {}), *other}
    for index, name in enumerate(same):
        if name in told:
            yield Finding((*path, "matchLabelKeys", index), f"{name} is named elsewhere in the term", "name it once")


def _expressions(term: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    for index, expression in enumerate(term.get("matchExpressions", ())):
        place = (*path, "matchExpressions", index, "values")
        yield from _values(expression["operator"], expression.get("values", ()), place)


def _values(operator: str, values: Sequence[str], path: Path) -> Iterator[Finding]:
    if operator in {"In", "NotIn"} and not values:
        yield Finding(path, f"is missing: operator {operator} needs values", "at least one")
    elif operator in {"Exists", "DoesNotExist"} and values:
        yield Finding(path, f"does not go with operator {operator}", "leave it out")
    elif operator in {"Gt", "Lt"} and len(values) != 1:
        yield Finding(path, f"has {len(values)} entries: operator {operator} needs one", "a number")
