"""The parts of a spec in Kubernetes' own words, checked with the pod template that Volcano's API takes.

The schema is that of Volcano's CustomResourceDefinition of a Job, without unknown keys. A strategic merge patch is a
part of a pod template: nothing in it is required, null removes, `$patch` says how.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.structure import Finding, deviations, load_schema
from kfp_volcano.schemas.wording import explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.schemas.structure import Path, Schema

__all__ = ["part_findings", "patch_findings"]


def part_findings(value: Any, path: Path, *, place: tuple[str, ...]) -> Iterator[Finding]:
    """What is wrong with a value that will stand at `place` in a pod template."""
    yield from _findings(value, path, _part(place))


def patch_findings(value: Any, path: Path, *, containers: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with a strategic merge patch on pod templates, whose containers are called as `containers` says."""
    found = list(_findings(value, path, _patch()))
    yield from found
    if not found:
        yield from _nameless(value, path, containers)


def _nameless(value: Any, path: Path, containers: Sequence[str]) -> Iterator[Finding]:
    """Containers that the patch adds lack what Kubernetes wants of one."""
    remedy = f"the training's container is called {' or '.join(containers)}"
    pod = value.get("spec") if isinstance(value, dict) else None
    for group, known in (("initContainers", (names.PREFLIGHT,)), ("containers", containers)):
        entries = pod.get(group) if isinstance(pod, dict) else None
        for index, entry in enumerate(entries or () if isinstance(entries, list) else ()):
            if not isinstance(entry, dict) or "$patch" in entry:
                continue
            place = (*path, "spec", group, index)
            if "name" not in entry:
                yield Finding((*place, "name"), "is missing", remedy)
            elif entry["name"] not in known and "image" not in entry:
                yield Finding((*place, "image"), f"is missing: {entry['name']} is another container", remedy)


def _findings(value: Any, path: Path, schema: Schema) -> Iterator[Finding]:
    for deviation in deviations(value, schema):
        for finding in explain(deviation, schema, ()):
            yield Finding((*path, *finding.path), finding.message, finding.remedy)


@cache
def _part(place: tuple[str, ...]) -> Schema:
    rule: Any = load_schema("pod-template.v1")
    for key in place:
        rule = rule["items"] if key == "*" else rule["properties"][key]
    part: Schema = rule
    return part


@cache
def _patch() -> Schema:
    return _loose({key: part for key, part in load_schema("pod-template.v1").items() if key in _KEYWORDS})


_KEYWORDS = ("type", "properties", "additionalProperties")


def _loose(rule: Schema) -> dict[str, Any]:
    """What a patch may hold where a pod template holds what `rule` says."""
    kinds = rule["type"]
    loose = {key: part for key, part in rule.items() if key != "required"}
    loose["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    if "properties" in rule:
        loose["properties"] = {key: _loose(part) for key, part in rule["properties"].items()}
        loose["properties"]["$patch"] = {"type": "string", "enum": ["replace", "delete", "merge"]}
    if isinstance(rule.get("additionalProperties"), dict):
        loose["additionalProperties"] = _loose(rule["additionalProperties"])
    if "items" in rule:
        loose["items"] = _loose(rule["items"])
    return loose
