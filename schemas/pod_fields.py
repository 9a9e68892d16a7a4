# SPDX-License-Identifier: Apache-2.0
"""Fields of a pod and amounts of a container that its programs can be told: the downward API.

Source: validateObjectFieldSelector and validateContainerResourceFieldSelector (pkg/apis/core/validation/validation.go),
Kubernetes 1.35.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.structure import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from kfp_volcano.schemas.structure import Path

__all__ = ["field_faults", "resource_faults"]

_SUBSCRIPTED = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = re.compile(rf"({_LABEL}(\.{_LABEL})*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{{0,61}}[A-Za-z0-9])?")
_DIVISORS = [quantity(f"1{unit}") for unit in ("", *"kMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")]


def field_faults(field: str, known: Collection[str], path: Path) -> Iterator[Finding]:
    """What is wrong with the path of a field: one of `known`, or a label or an annotation by its key."""
    subscripted = _SUBSCRIPTED.fullmatch(field)
    if not (_KEY.fullmatch(subscripted[2]) if subscripted else field in known):
        yield Finding(path, f"there is no {field} to be had", f"one of {', '.join(known)}, or metadata.labels['…']")


def resource_faults(reference: Mapping[str, Any], path: Path, *, of_container: bool) -> Iterator[Finding]:
    """What is wrong with a reference to an amount; `of_container`: it has to say whose."""
    if of_container and not reference.get("containerName"):
        yield Finding((*path, "containerName"), "is missing", "the name of a container")
    divisor = quantity(reference.get("divisor", 0))
    allowed = [quantity("1m"), quantity(1)] if reference["resource"].endswith(".cpu") else _DIVISORS
    if divisor and divisor not in allowed:
        units = "1m or 1" if reference["resource"].endswith(".cpu") else "1, 1k, 1Ki, 1M, 1Mi, …"
        yield Finding((*path, "divisor"), f"cannot be {reference['divisor']}", units)
