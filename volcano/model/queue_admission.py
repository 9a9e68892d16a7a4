# SPDX-License-Identifier: Apache-2.0
"""Admission of queues: the CRD, the mutating webhook's defaults, the validating webhook's rules with its messages.

Sources: pkg/webhooks/admission/queues/{mutate/mutate_queue.go,validate/validate_queue.go}, Volcano 1.15.1, with the
flags' defaults (depth 5, root protected).
"""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model import custom_resources
from kfp_volcano.volcano.model.objects import Manifest, Objects, key_of, status_of
from kfp_volcano.volcano.model.queues import ROOT
from kfp_volcano.volcano.model.request_rules import amount_faults
from kfp_volcano.volcano.model.resources import POD, Resources, add, format_quantity, parse_quantity, resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["admit_create", "admit_delete", "admit_update"]

_DEEPEST = 5
_FIELDS = ("capability", "deserved", "guarantee")
_MILLI = 1000
_MUTATING = "mutatequeue.volcano.sh"
_VALIDATING = "validatequeue.volcano.sh"
_HIERARCHY = "volcano.sh/hierarchy"
_WEIGHTS = "volcano.sh/hierarchy-weights"
_WEIGHT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def admit_create(queue: Manifest, objects: Objects) -> Manifest:
    """The queue with its defaults. Raises InvalidError."""
    given = custom_resources.read(queue, _MUTATING, changing=True, fills=("weight", 0))
    _check_readable(given["spec"] if isinstance(given.get("spec"), dict) else {})
    custom_resources.check_spec(given, "reclaimable")
    admitted = _with_defaults(given)
    custom_resources.check(admitted)
    _check_alone(admitted, objects)
    _refuse(_place_problem(admitted, objects), "spec.parent")
    if key_of(queue)[1] != ROOT:
        _refuse(next(_family_problems(admitted, objects), ""))
    return admitted


def admit_update(old: Manifest, new: Manifest, objects: Objects) -> None:
    """Refuse a change that is wrong in itself or beside the queues around it. Raises InvalidError."""
    custom_resources.check(custom_resources.read(new, _VALIDATING, changing=False))
    _check_alone({**new, "status": old.get("status") or {}}, objects)
    before, after = old["spec"], new["spec"]
    moved = before.get("parent") != after.get("parent")
    if moved:
        _refuse(_place_problem(new, objects), "spec.parent")
    changed = any(_amounts(before, field) != _amounts(after, field) for field in _FIELDS)
    if key_of(new)[1] == ROOT:
        if changed:
            _refuse("root queue's resource attributes (capability, deserved, guarantee) cannot be modified")
    elif moved or changed:
        _refuse(next(_family_problems(new, objects), ""))


def admit_delete(queue: Manifest, objects: Objects) -> None:
    """Refuse to delete the two queues Volcano needs, and one with children. Raises InvalidError."""
    name = key_of(queue)[1]
    if name in {ROOT, "default"}:
        _refuse(f"`{name}` queue can not be deleted")
    children = [key_of(child)[1] for child in _children(name, objects)]
    if children:
        _refuse(f"queue {name} can not be deleted because it has {len(children)} child queues: {', '.join(children)}")


def _check_readable(spec: Mapping[str, Any]) -> None:
    """Decoding the object fails on a quantity that is none."""
    field = _FIELDS[0]
    try:
        for field in _FIELDS:
            resources(_amounts(spec, field))
    except ValueError as error:
        denied = f'admission webhook "{_MUTATING}" denied the request: {error}'
        raise InvalidError(denied, fields=[f"spec.{field}"]) from None


def _with_defaults(queue: Manifest) -> Manifest:
    """mutate_queue.go: reclaimable, a weight, and `root` before a path that lacks it."""
    spec = {"reclaimable": True, **(queue.get("spec") or {})}
    spec["weight"] = spec.get("weight") or 1
    annotations = _annotations(queue)
    path, weights = annotations.get(_HIERARCHY), annotations.get(_WEIGHTS)
    if not path or not weights or path.startswith(ROOT):
        return {**queue, "spec": spec}
    rooted = {**annotations, _HIERARCHY: f"{ROOT}/{path}", _WEIGHTS: f"1/{weights}"}
    return {**queue, "metadata": {**queue["metadata"], "annotations": rooted}, "spec": spec}


def _annotations(queue: Manifest) -> Mapping[str, str]:
    """As Go reads them: null is the empty text."""
    return {name: value or "" for name, value in (queue["metadata"].get("annotations") or {}).items()}


def _refuse(problem: str, *fields: str) -> None:
    if problem:
        raise InvalidError(f'admission webhook "{_VALIDATING}" denied the request: {problem}', fields=fields)


def _check_alone(queue: Manifest, objects: Objects) -> None:
    problems = dict([*_alone_problems(queue), *_state_problems(queue), *_hierarchy_problems(queue, objects)])
    if problems:
        told = next(iter(problems)) if len(problems) == 1 else f"[{', '.join(problems)}]"
        _refuse(told, *problems.values())


def _hierarchy_problems(queue: Manifest, objects: Objects) -> Iterator[tuple[str, str]]:
    """validateHierarchicalAttributes: as many weights as levels, each more than nothing; no queue within another."""
    path, weights = _annotations(queue).get(_HIERARCHY, ""), _annotations(queue).get(_WEIGHTS, "")
    problem = _hierarchy_problem(key_of(queue)[1], path, weights, objects) if path or weights else ""
    if problem:
        yield f"requestBody.metadata.annotations: Invalid value: {problem}", "metadata.annotations"


def _hierarchy_problem(name: str, path: str, weights: str, objects: Objects) -> str:
    if len(path.split("/")) != len(weights.split("/")):
        return f"{json.dumps(path)}: {_HIERARCHY} must have the same length with {_WEIGHTS}"
    for weight in weights.split("/"):
        if not _WEIGHT.fullmatch(weight):
            fault = f"strconv.ParseFloat: parsing {json.dumps(weight)}: invalid syntax"
            return f"{json.dumps(weights)}: {weight} in the {weights} is invalid number: {fault}"
        if not float(weight) > 0:
            return f"{json.dumps(weights)}: {weight} in the {weights} must be larger than 0"
    for (_, other), queue in objects.get("Queue", {}).items():
        taken = _annotations(queue).get(_HIERARCHY, "")
        if other != name and taken.startswith(f"{path}/"):
            return f"{json.dumps(path)}: {path} is not allowed to be in the sub path of {taken} of queue {other}"
    return ""


def _alone_problems(queue: Manifest) -> Iterator[tuple[str, str]]:
    """validateResourceQuantityOfQueue: guarantee <= deserved <= capability."""
    spec = queue["spec"]
    stated = {field: _amounts(spec, field) for field in _FIELDS}
    for field in ("capability", "deserved"):
        for name, amount in sorted(stated[field].items()):
            yield from _amount_problems(name, amount, f"{field}.{name}")
    capability, deserved, guarantee = (stated[field] for field in _FIELDS)
    for name, least in sorted(guarantee.items()):
        yield from _amount_problems(name, least, f"guarantee.resource.{name}")
        at = f"requestBody.spec.deserved.{name}: Invalid value:"
        if name not in deserved:
            yield f'{at} "<nil>": deserved[{name}] must be >= guarantee[{name}]={least}', "spec.deserved"
        elif parse_quantity(deserved[name]) < parse_quantity(least):
            share = deserved[name]
            yield f'{at} "{share}": deserved[{name}]={share} must be >= guarantee[{name}]={least}', "spec.deserved"
    for name, share in sorted(deserved.items()):
        if name in capability and parse_quantity(share) > parse_quantity(capability[name]):
            most = capability[name]
            at = f"requestBody.spec.deserved.{name}: Invalid value:"
            yield f'{at} "{share}": deserved[{name}]={share} must be <= capability[{name}]={most}', "spec.deserved"


def _state_problems(queue: Manifest) -> Iterator[tuple[str, str]]:
    """validateStateOfQueue: nothing about a queue changes while it closes."""
    state = status_of(queue).get("state", "")
    if state not in {"", "Open", "Closed"}:
        yield f'requestBody.spec.state: Invalid value: "{state}": queue state must be in [Open Closed]', "status.state"


def _amount_problems(name: str, amount: Any, at: str) -> Iterator[tuple[str, str]]:
    for fault in amount_faults(name, amount, f"requestBody.spec.{at}"):
        yield str(fault), f"spec.{at.partition('.')[0]}"


def _place_problem(queue: Manifest, objects: Objects) -> str:
    """validateHierarchicalQueue: the parent is there, is not the queue itself, not too deep, and runs no pods."""
    name, parent = key_of(queue)[1], queue["spec"].get("parent", "")
    if parent in {"", ROOT}:
        return ""
    if parent == name:
        return f"queue {name} cannot use itself as parent"
    depth, above = 1, parent
    while above not in {"", ROOT}:
        depth += 1
        if depth > _DEEPEST:
            return f"queue {name} exceeds the maximum allowed depth of {_DEEPEST}"
        found = objects.get("Queue", {}).get(("", above))
        if found is None:
            return (
                f'failed to get parent queue {above} of queue {name}: queue.scheduling.volcano.sh "{above}" not found'
            )
        above = found["spec"].get("parent", "")
    pods = resources(status_of(objects["Queue"]["", parent]).get("allocated")).get(POD, 0)
    if pods and not _children(parent, objects):
        count = format_quantity(pods)
        return f"queue {parent} cannot be the parent queue of queue {name} because it has allocated Pods: {count}"
    return ""


def _family_problems(queue: Manifest, objects: Objects) -> Iterator[str]:
    """validateHierarchicalQueueResources: against the ancestors, with the siblings, and for the children."""
    name, spec = key_of(queue)[1], queue["spec"]
    parent = objects.get("Queue", {}).get(("", spec.get("parent", "")))
    if parent is not None and key_of(parent)[1] != ROOT:
        for resource, most in _numbers(spec, "capability").items():
            limit = _nearest_limit(parent, resource, objects)
            if limit and most > limit:
                yield (
                    f"queue {name} capability[{resource}]={_shown(resource, most)} exceeds its ancestor's"
                    f" capability={_shown(resource, limit)}"
                )
        others = [each for each in _children(key_of(parent)[1], objects) if key_of(each)[1] != name]
        yield from _sum_problems(f"parent queue {key_of(parent)[1]}", parent, [*others, queue])
    children = _children(name, objects)
    for resource, most in _numbers(spec, "capability").items():
        largest = max((_largest_limit(child, resource, objects) for child in children), default=0)
        if most and most < largest:
            yield (
                f"queue {name} capability[{resource}]={_shown(resource, most)} is smaller than its descendants' max"
                f" capability={_shown(resource, largest)}"
            )
    yield from _sum_problems(f"queue {name}", queue, children)


def _sum_problems(whose: str, parent: Manifest, children: list[Manifest]) -> Iterator[str]:
    totals: dict[str, dict[str, int]] = {}
    for child, field in itertools.product(children, ("guarantee", "deserved")):
        total = totals[field] = add(totals.get(field, {}), _numbers(child["spec"], field))
        limit = _numbers(parent["spec"], field)
        over = (name not in limit or amount > limit[name] for name, amount in total.items() if _counts(name, amount))
        if any(over):
            yield (
                f"{whose} validation failed: sum of children's {field} ({_listed(total)}) exceeds parent's"
                f" {field} limit ({_listed(limit)})"
            )


def _counts(name: str, amount: int) -> bool:
    """A zero counts where it is of a resource that the parent does not name (LessPartly), but for CPU and memory."""
    return bool(amount) or name not in {"cpu", "memory"}


def _nearest_limit(queue: Manifest, resource: str, objects: Objects) -> int:
    while True:
        limit = _numbers(queue["spec"], "capability").get(resource, 0)
        above = objects["Queue"].get(("", queue["spec"].get("parent", "")))
        if limit or above is None or key_of(above)[1] == ROOT:
            return limit
        queue = above


def _largest_limit(queue: Manifest, resource: str, objects: Objects) -> int:
    own = _numbers(queue["spec"], "capability").get(resource, 0)
    below = (_largest_limit(child, resource, objects) for child in _children(key_of(queue)[1], objects))
    return own or max(below, default=0)


def _children(name: str, objects: Objects) -> list[Manifest]:
    return [each for each in objects.get("Queue", {}).values() if each["spec"].get("parent") == name]


def _amounts(spec: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    stated = spec.get(field) or {}
    return (stated.get("resource") or {}) if field == "guarantee" else stated


def _numbers(spec: Mapping[str, Any], field: str) -> dict[str, int]:
    return resources(_amounts(spec, field))


def _listed(amounts: Resources) -> str:
    """Resource.String: CPU and other resources in thousandths, memory and pods in units."""
    shown = {"cpu": 0, "memory": 0, **amounts}
    named = ["cpu", "memory", *sorted(shown.keys() - {"cpu", "memory"})]
    return ", ".join(f"{name} {shown[name] / (_MILLI if name in {'memory', POD} else 1):.2f}" for name in named)


def _shown(name: str, amount: int) -> str:
    return format_quantity(amount) if name in {"cpu", "memory"} else f"{amount:.2f}"
