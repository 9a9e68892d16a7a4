# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes refuses in a pod's tolerations and node affinity.

Source: ValidateTolerations, ValidateNodeSelector, ValidatePreferredSchedulingTerms
(pkg/apis/core/validation/validation.go), Kubernetes 1.35.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.naming import choice_faults, key_faults, value_faults
from kfp_volcano.volcano.model.structural import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["affinity_faults", "toleration_faults"]

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_MOST_WEIGHT = 100


def toleration_faults(tolerations: Sequence[Mapping[str, Any]], at: str) -> Iterator[Fault]:
    """What is wrong with tolerations."""
    for index, toleration in enumerate(tolerations):
        here, key, value = f"{at}[{index}]", toleration.get("key", ""), toleration.get("value", "")
        operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
        for sentence in key_faults(key) if key else ():
            yield Fault(f"{here}.key", f"Invalid value: {json.dumps(key)}: {sentence}")
        if not key and operator != "Exists":
            sentence = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield Fault(f"{here}.operator", f"Invalid value: {json.dumps(operator)}: {sentence}")
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            sentence = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield Fault(f"{here}.effect", f"Invalid value: {json.dumps(effect)}: {sentence}")
        if operator in {"", "Equal"} and value_faults(value):
            yield Fault(f"{here}.operator", f"Invalid value: {json.dumps(value)}: {';'.join(value_faults(value))}")
        elif operator == "Exists" and value:
            sentence = "value must be empty when `operator` is 'Exists'"
            yield Fault(f"{here}.operator", f"Invalid value: {json.dumps(value)}: {sentence}")
        yield from choice_faults(operator or "Equal", ("Equal", "Exists"), f"{here}.operator")
        yield from choice_faults(effect or _EFFECTS[0], _EFFECTS, f"{here}.effect")


def affinity_faults(affinity: Mapping[str, Any], at: str) -> Iterator[Fault]:
    """What is wrong with the node affinity."""
    wanted = affinity.get("nodeAffinity") or {}
    required = wanted.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        here = f"{at}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not required["nodeSelectorTerms"]:
            yield Fault(here, "Required value: must have at least one node selector term")
        for index, term in enumerate(required["nodeSelectorTerms"]):
            yield from _term_faults(term, f"{here}[{index}]", values=True)
    here = f"{at}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for index, preferred in enumerate(wanted.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        weight = preferred["weight"]
        if not 0 < weight <= _MOST_WEIGHT:
            yield Fault(f"{here}[{index}].weight", f"Invalid value: {weight}: must be in the range 1-{_MOST_WEIGHT}")
        yield from _term_faults(preferred["preference"], f"{here}[{index}].preference", values=False)


def _term_faults(term: Mapping[str, Any], at: str, *, values: bool) -> Iterator[Fault]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        here, key, given = f"{at}.matchExpressions[{index}]", expression["key"], expression.get("values") or ()
        yield from _operator_faults(expression["operator"], len(given), here)
        for sentence in key_faults(key):
            yield Fault(f"{here}.key", f"Invalid value: {json.dumps(key)}: {sentence}")
        for place, value in enumerate(given if values else ()):
            for sentence in value_faults(value):
                yield Fault(f"{here}.values[{place}]", f"Invalid value: {json.dumps(value)}: {sentence}")


def _operator_faults(operator: str, given: int, at: str) -> Iterator[Fault]:
    """An operator that is none, or has not as many values as it takes."""
    if operator in {"In", "NotIn"} and not given:
        yield Fault(f"{at}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in {"Exists", "DoesNotExist"} and given:
        yield Fault(f"{at}.values", "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in {"Gt", "Lt"} and given != 1:
        yield Fault(f"{at}.values", "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'")
    elif operator not in _OPERATORS:
        yield Fault(f"{at}.operator", f"Invalid value: {json.dumps(operator)}: not a valid selector operator")
