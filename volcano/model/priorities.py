# SPDX-License-Identifier: Apache-2.0
"""Priority classes: which value a name stands for.

Sources: Kubernetes' admission plugin `Priority` (plugin/pkg/admission/priority) and its two built-in classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.model.objects import Objects

__all__ = ["priority_class", "priority_value"]

_SYSTEM = {"system-cluster-critical": {"value": 2_000_000_000}, "system-node-critical": {"value": 2_000_001_000}}


def priority_class(objects: Objects, name: str) -> Mapping[str, Any] | None:
    """The class of this name, the default one for none, or None where there is no such class."""
    if not name:
        default = (each for each in objects.get("PriorityClass", {}).values() if each.get("globalDefault"))
        return next(default, {"value": 0})
    return objects.get("PriorityClass", {}).get(("", name)) or _SYSTEM.get(name)


def priority_value(objects: Objects, name: str) -> int:
    """The value of a class; where there is no such class, the default."""
    known = priority_class(objects, name) or priority_class(objects, "")
    return int(known["value"]) if known else 0
