# SPDX-License-Identifier: Apache-2.0
"""Which nodes a pod's own words admit: `nodeSelector` and the required part of `affinity.nodeAffinity`.

Source: GetRequiredNodeAffinity (k8s.io/component-helpers/scheduling/corev1/nodeaffinity), Kubernetes 1.35.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.objects import Manifest, key_of, labels_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["selects"]


def selects(spec: Mapping[str, Any], node: Manifest) -> bool:
    """Whether a pod with this spec may run on a node."""
    wanted, stated = spec.get("nodeSelector") or {}, spec.get("affinity")
    if not wanted and not stated:
        return True
    labels = labels_of(node)
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    affinity = (stated or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], node: Manifest) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels, name = labels_of(node), {"metadata.name": key_of(node)[1]}
    return all(_matches(each, labels) for each in expressions) and all(_matches(each, name) for each in fields)


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    operator, values = expression["operator"], list(expression.get("values") or ())
    value = labels.get(expression["key"])
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    try:
        left, right = int(value or ""), int(values[0])
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right
