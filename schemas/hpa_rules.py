# SPDX-License-Identifier: Apache-2.0
"""What the schema of a HorizontalPodAutoscaler cannot say: how values have to fit each other.

Source: pkg/apis/autoscaling/validation/validation.go of Kubernetes 1.35, with its defaults filled in before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kfp_volcano.schemas.hpa import QUEUE, QUEUE_METRICS
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.structure import Finding
from kfp_volcano.schemas.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.schemas.sound import Sound
    from kfp_volcano.schemas.structure import Path

__all__ = ["block_findings", "findings"]

_KEYS = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
_RESOURCES = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")
"""Resources of a container that have no domain in their name."""


def findings(sound: Sound, spec: Path = ("spec",)) -> Iterator[Finding]:
    """What breaks a rule in a manifest, whose spec is at a path."""
    yield from _target(sound, (*spec, "scaleTargetRef"))
    yield from _common(sound, spec)


def block_findings(sound: Sound) -> Iterator[Finding]:
    """What breaks a rule in the block `hpa` of a Policy, which is read for queues alone."""
    yield from _common(sound, ())
    if sound.get("metrics") == []:
        yield Finding(("metrics",), "is empty", "at least one metric: a queue has no default")
    for index in range(sound.count("metrics")):
        path: Path = ("metrics", index, "object")
        kind, name = sound.get(*path, "describedObject", "kind"), sound.get(*path, "metric", "name")
        if kind is not None and kind != QUEUE:
            yield Finding((*path, "describedObject", "kind"), f"{shown(kind)} has no metrics here", QUEUE)
        elif kind is not None and name is not None and name not in QUEUE_METRICS:
            words = f"{shown(name)} is no metric of a queue"
            yield Finding((*path, "metric", "name"), words, f"there is {', '.join(QUEUE_METRICS)}")
        if kind == QUEUE and sound.get(*path, "target", "type") not in (None, "Value"):
            words = "a queue's metric is not shared out among one Job's workers"
            yield Finding((*path, "target", "type"), words, "Value")


def _common(sound: Sound, spec: Path) -> Iterator[Finding]:
    least, most = sound.get(*spec, "minReplicas", default=1), sound.get(*spec, "maxReplicas")
    if least is not None and most is not None and most < least:
        yield Finding((*spec, "maxReplicas"), f"{most} is less than minReplicas", f"at least {least}")
    for index in range(sound.count(*spec, "metrics")):
        yield from _metric(sound, (*spec, "metrics", index))
    for direction in ("scaleUp", "scaleDown"):
        path = (*spec, "behavior", direction, "tolerance")
        tolerance = sound.get(*path)
        if tolerance is not None and quantity(tolerance) < 0:
            yield Finding(path, f"{shown(tolerance)} is below zero", "at least 0")


def _target(sound: Sound, path: Path) -> Iterator[Finding]:
    kind, version = sound.get(*path, "kind"), sound.get(*path, "apiVersion", default="")
    if kind not in (None, "ReplicationController") and version is not None and "/" not in version.strip("/"):
        place = (*path, "apiVersion")
        yield Finding(place, "names no API group", "group and version, for example batch.volcano.sh/v1alpha1")


def _metric(sound: Sound, path: Path) -> Iterator[Finding]:
    kind = sound.get(*path, "type")
    if kind is None:
        return
    for key in _KEYS.values():
        if key != _KEYS[kind] and not sound.absent(*path, key):
            yield Finding((*path, key), f"does not belong to a metric of type {kind}", "leave it out")
    source = (*path, _KEYS[kind])
    if sound.absent(*source):
        yield Finding(source, "is missing", f"what a metric of type {kind} says")
        return
    yield from _values(sound, (*source, "target"), kind)
    name = sound.get(*source, "name")
    if kind == "ContainerResource" and name is not None and "/" not in name and not _RESOURCES.fullmatch(name):
        words = f"{shown(name)} is no resource of a container"
        yield Finding((*source, "name"), words, "cpu, memory, ephemeral-storage, or one with a domain")


_FORMS = {
    "Resource": (("averageUtilization", "averageValue"), True),
    "ContainerResource": (("averageUtilization", "averageValue"), True),
    "Pods": (("averageValue",), True),
    "Object": (("value", "averageValue"), False),
    "External": (("value", "averageValue"), True),
}
"""Values of which a target needs one, and whether it may have no other of them."""


def _values(sound: Sound, target: Path, kind: str) -> Iterator[Finding]:
    keys, alone = _FORMS[kind]
    present = [key for key in keys if not sound.absent(*target, key)]
    if not present and not sound.absent(*target):
        yield Finding((*target, keys[-1]), "is missing", f"{' or '.join(keys)}: what the metric is to be")
    if alone and len(present) > 1:
        yield Finding((*target, present[1]), f"cannot stand beside {present[0]}", "one of them")
    for key in ("value", "averageValue"):
        value = sound.get(*target, key)
        if value is not None and quantity(value) <= 0:
            yield Finding((*target, key), f"{shown(value)} is not positive", "more than 0")
