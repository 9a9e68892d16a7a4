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
from kfp_volcano.volcano.model.resources import POD, Resources, add, format_quantity, parse_quantity, resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["admit_create", "admit_delete", "admit_update"]

_DEEPEST = 5
_FIELDS = ("capability", "deserved", "guarantee")
_MILLI = 1000
_MUTATING = "mutatequeue.volcano.sh"
_HIERARCHY = "volcano.sh/hierarchy"
_WEIGHTS = "volcano.sh/hierarchy-weights"
_NUMBER = re.compile(r"(?i:[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf(inity)?|nan)", re.ASCII)
"""What Go reads as a floating point number, but for hexadecimal ones."""


def admit_create(queue: Manifest, objects: Objects) -> Manifest:
    """The queue with its defaults. Raises InvalidError."""
    given = custom_resources.read(queue, _MUTATING, fills=("weight", 0))
    if "spec" not in given:  # the mutating webhook's patch has nowhere to go
        reason = 'add operation does not apply: doc is missing path: "/spec/reclaimable": missing value'
        raise InvalidError(f"Internal error occurred: {reason}", fields=["spec"])
    admitted = _with_defaults(given)
    custom_resources.check(admitted)
    _check_alone(admitted, objects)
    _refuse(_place_problem(admitted, objects), "spec.parent")
    if key_of(queue)[1] != ROOT:
        _refuse(next(_family_problems(admitted, objects), ""))
    return admitted


def admit_update(old: Manifest, new: Manifest, objects: Objects) -> None:
    """Refuse a change that is wrong in itself or beside the queues around it. Raises InvalidError."""
    custom_resources.check(custom_resources.read(new, _MUTATING))
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
    return queue["metadata"].get("annotations") or {}


def _refuse(problem: str, *fields: str) -> None:
    if problem:
        raise InvalidError(f'admission webhook "validatequeue.volcano.sh" denied the request: {problem}', fields=fields)


def _check_alone(queue: Manifest, objects: Objects) -> None:
    try:
        problems = dict([*_alone_problems(queue), *_state_problems(queue), *_hierarchy_problems(queue, objects)])
    except ValueError as error:
        problems = {str(error): "spec"}
    if problems:
        told = next(iter(problems)) if len(problems) == 1 else f"[{', '.join(problems)}]"
        _refuse(told, *problems.values())


def _state_problems(queue: Manifest) -> Iterator[tuple[str, str]]:
    """validateStateOfQueue: nothing about a queue changes while it closes."""
    state = status_of(queue).get("state", "")
    if state not in {"", "Open", "Closed"}:
        yield f'requestBody.spec.state: Invalid value: "{state}": queue state must be in [Open Closed]', "status.state"


def _hierarchy_problems(queue: Manifest, objects: Objects) -> Iterator[tuple[str, str]]:
    """validateHierarchicalAttributes: as many weights as levels, each more than nothing, and none on another's way."""
    annotations, at = _annotations(queue), "metadata.annotations"
    path, weights = annotations.get(_HIERARCHY, ""), annotations.get(_WEIGHTS, "")
    problem = _weights_problem(path, weights) if path or weights else ""
    for other in objects.get("Queue", {}).values() if (path or weights) and not problem else ():
        below, name = _annotations(other).get(_HIERARCHY, ""), key_of(other)[1]
        if name != key_of(queue)[1] and below.startswith(f"{path}/"):
            problem = _invalid(path, f"{path} is not allowed to be in the sub path of {below} of queue {name}")
            break
    if problem:
        yield f"requestBody.{at}: {problem}", at


def _weights_problem(path: str, weights: str) -> str:
    levels = weights.split("/")
    if len(path.split("/")) != len(levels):
        return _invalid(path, f"{_HIERARCHY} must have the same length with {_WEIGHTS}")
    for weight in levels:
        if not _NUMBER.fullmatch(weight):
            reason = f"strconv.ParseFloat: parsing {json.dumps(weight, ensure_ascii=False)}: invalid syntax"
            return _invalid(weights, f"{weight} in the {weights} is invalid number: {reason}")
        if float(weight) <= 0:
            return _invalid(weights, f"{weight} in the {weights} must be larger than 0")
    return ""


def _invalid(value: str, detail: str) -> str:
    return f"Invalid value: {json.dumps(value, ensure_ascii=False)}: {detail}"


def _alone_problems(queue: Manifest) -> Iterator[tuple[str, str]]:
    """validateResourceQuantityOfQueue, validateStateOfQueue: guarantee <= deserved <= capability."""
    spec = queue["spec"]
    stated = {field: _amounts(spec, field) for field in _FIELDS}
    for field, amounts in stated.items():
        for name, text in amounts.items():
            at = f"requestBody.spec.{'guarantee.resource' if field == 'guarantee' else field}.{name}"
            if parse_quantity(text) < 0:
                yield f'{at}: Invalid value: "{text}": must be greater than or equal to 0', f"spec.{field}"
            if _is_counted(name) and parse_quantity(text) % _MILLI:
                shown = format_quantity(parse_quantity(text))
                yield f'{at}: Invalid value: "{shown}": must be an integer', f"spec.{field}"
    capability, deserved, guarantee = (stated[field] for field in _FIELDS)
    for name, least in guarantee.items():
        at = f"requestBody.spec.deserved.{name}: Invalid value:"
        if name not in deserved:
            yield f'{at} "<nil>": deserved[{name}] must be >= guarantee[{name}]={least}', "spec.deserved"
        elif parse_quantity(deserved[name]) < parse_quantity(least):
            share = deserved[name]
            yield f'{at} "{share}": deserved[{name}]={share} must be >= guarantee[{name}]={least}', "spec.deserved"
    for name, share in deserved.items():
        if name in capability and parse_quantity(share) > parse_quantity(capability[name]):
            most = capability[name]
            at = f"requestBody.spec.deserved.{name}: Invalid value:"
            yield f'{at} "{share}": deserved[{name}]={share} must be <= capability[{name}]={most}', "spec.deserved"


def _is_counted(resource: str) -> bool:
    """IsIntegerResourceName, of resources that queues are given: pods, and what is not Kubernetes' own."""
    return resource == POD or ("/" in resource and "kubernetes.io/" not in resource)


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
