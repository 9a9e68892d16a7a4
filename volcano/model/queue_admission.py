"""Admission of Queues: the CRD, the mutating webhook's defaults, the validating webhook's rules.

Sources: pkg/webhooks/admission/queues/{mutate/mutate_queue.go,validate/validate_queue.go}, Volcano 1.15.1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model import custom_resources
from kfp_volcano.volcano.model.objects import key_of
from kfp_volcano.volcano.model.resources import resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.volcano.model.objects import Manifest, Objects

__all__ = ["admit_create"]

_HIERARCHY = "volcano.sh/hierarchy"
_WEIGHTS = "volcano.sh/hierarchy-weights"
_WEIGHT = re.compile(r"[0-9]+(\.[0-9]+)?")


def admit_create(queue: Manifest, objects: Objects) -> Manifest:
    """The Queue as it is stored. Raises InvalidError with the message of whoever refused it."""
    given = custom_resources.read(queue, "mutatequeue.volcano.sh", fills=("weight", 0))
    defaulted = _with_defaults(given)
    custom_resources.check(defaulted)
    problems = [*_amount_problems(defaulted["spec"]), *_hierarchy_problems(_annotations(defaulted))]
    problems += _parent_problems(key_of(queue)[1], defaulted["spec"].get("parent"), objects)
    if problems:
        raise InvalidError(
            'admission webhook "validatequeue.volcano.sh" denied the request: '
            + "; ".join(sentence for _, sentence in problems),
            fields=[field for field, _ in problems],
        )
    return defaulted


def _with_defaults(queue: Manifest) -> Manifest:
    """mutate_queue.go: reclaimable, a weight, and `root` before a path that lacks it."""
    spec = {"reclaimable": True, **(queue.get("spec") or {})}
    spec["weight"] = spec.get("weight") or 1
    annotations = _annotations(queue)
    path, weights = annotations.get(_HIERARCHY), annotations.get(_WEIGHTS)
    if not path or not weights or path.startswith("root"):
        return {**queue, "spec": spec}
    rooted = {**annotations, _HIERARCHY: f"root/{path}", _WEIGHTS: f"1/{weights}"}
    return {**queue, "metadata": {**queue["metadata"], "annotations": rooted}, "spec": spec}


def _annotations(queue: Manifest) -> Mapping[str, str]:
    return queue["metadata"].get("annotations") or {}


def _amount_problems(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Guarantee <= deserved <= capability, for each resource that both name; a guarantee has to be deserved."""
    stated = (spec.get("capability"), spec.get("deserved"), (spec.get("guarantee") or {}).get("resource"))
    try:
        capability, deserved, guarantee = map(resources, stated)
    except ValueError as error:
        yield "spec", str(error)
        return
    for name in deserved:
        if deserved[name] > capability.get(name, deserved[name]):
            yield "spec.deserved", f"spec.deserved: {name} must be <= capability"
    for name in guarantee:
        if name not in deserved or guarantee[name] > deserved[name]:
            yield "spec.guarantee", f"spec.guarantee: {name} must be <= deserved"


def _hierarchy_problems(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What the scheduler's hierarchical DRF reads: as many weights as there are levels, each more than nothing."""
    path, weights = annotations.get(_HIERARCHY, ""), annotations.get(_WEIGHTS, "")
    if not path and not weights:
        return
    levels = weights.split("/")
    if not path or not weights or len(path.split("/")) != len(levels):
        yield "metadata.annotations", f"{_HIERARCHY} must have the same length with {_WEIGHTS}"
    for weight in levels if weights else ():
        if not _WEIGHT.fullmatch(weight) or not float(weight) > 0:
            yield "metadata.annotations", f"{weight} in the {weights} must be larger than 0"


def _parent_problems(name: str, parent: str | None, objects: Objects) -> Iterator[tuple[str, str]]:
    if parent == name:
        yield "spec.parent", f"queue {name} cannot use itself as parent"
    elif parent and parent != "root" and ("", parent) not in objects.get("Queue", {}):
        yield "spec.parent", f"failed to get parent queue {parent} of queue {name}"
