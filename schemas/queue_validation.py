# SPDX-License-Identifier: Apache-2.0
"""From what a user wrote to a QueueTree, or to all that is wrong with it.

The JSON Schema (`schemas/json/queue-tree.v1.schema.json`) comes first, then the rules it cannot express
(`queue_rules`), then the type. Whatever is wrong is found in one go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names, queue_rules
from kfp_volcano.schemas.quantities import quantity_text
from kfp_volcano.schemas.queue_tree import Amounts, QueueNode, QueueTree, Quota
from kfp_volcano.schemas.structure import load_schema
from kfp_volcano.schemas.wording import by_place, examine, problems

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["build", "queue_tree"]


def queue_tree(value: Mapping[str, Any], *, source: str = "tree") -> QueueTree:
    """The QueueTree in a mapping. Raises SpecError with every problem found."""
    plain, found = examine(value, load_schema("queue-tree.v1"))
    first = by_place(found)
    found = list(by_place([*first.values(), *queue_rules.findings(plain, first.keys())]).values())
    if found:
        raise SpecError(problems(found, source), source=source)
    return build(plain)


def build(value: Mapping[str, Any]) -> QueueTree:
    """The QueueTree in a mapping that `queue_tree` found nothing wrong with."""
    spec = value["spec"]
    return QueueTree(
        name=value["metadata"]["name"],
        plugin=spec["plugin"],
        total=_amounts(spec.get("total", {})),
        queues=tuple(map(_node, spec["queues"])),
    )


def _node(value: Mapping[str, Any]) -> QueueNode:
    weight = value.get("weight")
    return QueueNode(
        name=value["name"],
        capability=_amounts(value.get("capability", {})),
        deserved=_amounts(value.get("deserved", {})),
        guarantee=_amounts(value.get("guarantee", {})),
        weight=None if weight is None else int(weight),
        priority=int(value.get("priority", 0)),
        reclaimable=value.get("reclaimable", True),
        closed=value.get("closed", False),
        quotas=tuple(
            _quota(namespace, quota, value.get("capability", {}))
            for namespace, quota in sorted(value.get("quotas", {}).items())
        ),
        queues=tuple(map(_node, value.get("queues", ()))),
    )


def _quota(namespace: str, value: Mapping[str, Any], capability: Mapping[str, Any]) -> Quota:
    jobs = value.get("jobs")
    return Quota(
        namespace=namespace,
        requests=_amounts(value.get("requests") or capability),
        jobs=None if jobs is None else int(jobs),
    )


def _amounts(value: Mapping[str, Any]) -> Amounts:
    """Amounts under the resources' own names, in one order however they were written."""
    return {names.resource_name(key): quantity_text(value[key]) for key in sorted(value, key=names.resource_name)}
