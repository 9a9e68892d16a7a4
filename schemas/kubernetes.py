# SPDX-License-Identifier: Apache-2.0
"""The parts of a spec in Kubernetes' own words, checked with the pod template that Volcano's API takes.

The schema is that of Volcano's CustomResourceDefinition of a Job, without unknown keys. A strategic merge patch is a
part of a pod template: nothing in it is required, null removes, `$patch` says how.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.patch import MERGE_KEYS
from kfp_volcano.schemas.structure import Finding, deviations, load_schema
from kfp_volcano.schemas.wording import explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.schemas.structure import Path, Schema

__all__ = ["NOT_TAKEN", "part_findings", "patch_findings"]

NOT_TAKEN = "is not for the pods of a training"
"""What is said of keys that pods have elsewhere."""


def part_findings(value: Any, path: Path, *, place: tuple[str, ...]) -> Iterator[Finding]:
    """What is wrong with a value that will stand at `place` in a pod template."""
    yield from _findings(value, path, _part(place))


def patch_findings(value: Any, path: Path, *, containers: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with a strategic merge patch on pod templates, whose containers are called as `containers` says."""
    found = list(_findings(value, path, _patch()))
    yield from found
    if not found:
        yield from _incomplete(value, path, containers)


def _incomplete(value: Any, path: Path, containers: Sequence[str]) -> Iterator[Finding]:
    """Entries of merged lists that have no key, and containers that the patch adds without an image."""
    remedy = f"the training's container is called {' or '.join(containers)}"
    known = (*containers, names.PREFLIGHT)
    for key, part in value.items():
        if isinstance(part, dict):
            yield from _incomplete(part, (*path, key), containers)
        for index, entry in enumerate(part if isinstance(part, list) else ()):
            if not isinstance(entry, dict):
                continue
            place = (*path, key, index)
            yield from _incomplete(entry, place, containers)
            if key in MERGE_KEYS and entry.get(MERGE_KEYS[key]) is None and entry.get("$patch") != "replace":
                yield Finding((*place, MERGE_KEYS[key]), "is missing: such lists are merged by it", remedy)
            elif key in _CONTAINERS and not {"$patch", "image"} & {*entry} and entry["name"] not in known:
                yield Finding((*place, "image"), f"is missing: {entry['name']} is another container", remedy)


_CONTAINERS = ("containers", "initContainers")


def _findings(value: Any, path: Path, schema: Schema) -> Iterator[Finding]:
    for deviation in deviations(value, schema):
        for finding in explain(deviation, schema):
            key = finding.path[-1] if finding.path else ""
            if deviation.keyword == "additionalProperties" and key in _LEFT_OUT:
                yield Finding((*path, *finding.path), NOT_TAKEN, _LEFT_OUT[str(key)])
            else:
                yield Finding((*path, *finding.path), finding.message, finding.remedy)


_OLD_VOLUMES = (
    *("azureDisk", "cinder", "fc", "flexVolume", "flocker", "gitRepo", "iscsi", "photonPersistentDisk", "quobyte"),
    *("scaleIO", "storageos"),
)
_LEFT_OUT = {
    "ephemeralContainers": "containers, or initContainers",
    "hostnameOverride": "leave it out: pods find each other by their names",
    "overhead": "leave it out: it comes from the RuntimeClass",
    "preemptionPolicy": "leave it out: it comes from the PriorityClass",
    "priority": "leave it out: it comes from the PriorityClass",
    "resizePolicy": "leave it out: Volcano's webhook refuses it here",
    "resources": "write it in the role's resources, or in those of a container",
    "restartPolicy": "leave it out: Volcano's webhook refuses it here",
    "restartPolicyRules": "leave it out: Volcano's webhook refuses it",
    "stopSignal": "leave it out",
    **dict.fromkeys(_OLD_VOLUMES, "use a persistentVolumeClaim"),
    "windowsOptions": "leave it out: the pods run on Linux",
    "workloadRef": "leave it out: Volcano schedules the Job as a gang",
}
"""Keys that pods have elsewhere, by what to do instead."""


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
    if "enum" in rule:
        loose["enum"] = [*rule["enum"], None]
    if "propertyNames" in rule:
        names_ = rule["propertyNames"]
        loose["propertyNames"] = {**names_, "pattern": rf"^(\$patch|{names_['pattern'][1:-1]})$"}
    if "properties" in rule:
        loose["properties"] = {key: _loose(part) for key, part in rule["properties"].items()}
        loose["properties"]["$patch"] = {"type": "string", "enum": ["replace", "delete", "merge"]}
    if isinstance(rule.get("additionalProperties"), dict):
        loose["additionalProperties"] = _loose(rule["additionalProperties"])
    if "items" in rule:
        loose["items"] = _loose(rule["items"])
    return loose
