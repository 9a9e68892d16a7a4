# SPDX-License-Identifier: Apache-2.0
"""Volumes of a pod and where containers mount them, as Kubernetes takes them.

Source: ValidateVolumes and ValidateVolumeMounts (pkg/apis/core/validation/validation.go), Kubernetes 1.35.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.pod_affinity import selector_faults
from kfp_volcano.schemas.pod_fields import field_faults, resource_faults
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.structure import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.schemas.structure import Path

__all__ = ["faults", "mount_faults"]

_FIELDS = ("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid")
"""Fields of the pod that a file may hold."""


def faults(volumes: Sequence[Mapping[str, Any]], path: Path) -> Iterator[Finding]:
    """What is wrong with volumes whose fields are right one by one."""
    for index, volume in enumerate(volumes):
        place = (*path, index)
        sources = [key for key in volume if key != "name"]
        if len(sources) != 1:
            has = " and ".join(sources) if sources else "no source"
            yield Finding(place, f"has {has}", "exactly one source, for example persistentVolumeClaim")
        for key in sources:
            yield from _source(key, volume[key], (*place, key))


def _source(kind: str, source: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    if kind in {"configMap", "secret"}:
        name = "name" if kind == "configMap" else "secretName"
        if not source.get(name):
            yield Finding((*path, name), "is missing", f"the name of the {kind}")
    elif kind == "downwardAPI":
        yield from _files(source.get("items", ()), (*path, "items"))
    elif kind == "projected":
        yield from _projected(source.get("sources", ()), (*path, "sources"))
    elif kind == "ephemeral":
        yield from _ephemeral(source, path)


def _files(items: Sequence[Mapping[str, Any]], path: Path) -> Iterator[Finding]:
    for index, item in enumerate(items):
        place = (*path, index)
        if ("fieldRef" in item) == ("resourceFieldRef" in item):
            yield Finding(place, "needs one source", "fieldRef or resourceFieldRef")
        elif "fieldRef" in item:
            yield from field_faults(item["fieldRef"]["fieldPath"], _FIELDS, (*place, "fieldRef", "fieldPath"))
        else:
            yield from resource_faults(item["resourceFieldRef"], (*place, "resourceFieldRef"), of_container=True)


def _projected(sources: Sequence[Mapping[str, Any]], path: Path) -> Iterator[Finding]:
    taken: set[str] = set()
    for index, source in enumerate(sources):
        place = (*path, index)
        if len(source) > 1:
            yield Finding(place, f"has {' and '.join(source)}", "one source an entry")
        for kind, part in source.items():
            if kind in {"configMap", "secret"} and not part.get("name"):
                yield Finding((*place, kind, "name"), "is missing", f"the name of the {kind}")
            if kind == "downwardAPI":
                yield from _files(part.get("items", ()), (*place, kind, "items"))
            for number, item in enumerate(part.get("items", ())):
                if item["path"] in taken:
                    where = (*place, kind, "items", number, "path")
                    yield Finding(where, f"{item['path']} is the path of another file", "another path")
                taken.add(item["path"])


def _ephemeral(source: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    template, place = source.get("volumeClaimTemplate"), (*path, "volumeClaimTemplate")
    if template is None:
        yield Finding(place, "is missing", "volumeClaimTemplate: {spec: {…}}")
        return
    for key in template.get("metadata", {}).keys() - {"labels", "annotations"}:
        yield Finding((*place, "metadata", key), "cannot be set here", "labels and annotations alone")
    spec, place = template["spec"], (*place, "spec")
    modes = spec.get("accessModes", ())
    if not modes:
        yield Finding((*place, "accessModes"), "is missing", "for example [ReadWriteOnce]")
    elif "ReadWriteOncePod" in modes and len({*modes}) > 1:
        yield Finding((*place, "accessModes"), "has others beside ReadWriteOncePod", "it alone")
    size = spec.get("resources", {}).get("requests", {}).get("storage")
    if size is None or quantity(size) <= 0:
        where = (*place, "resources", "requests", "storage")
        yield Finding(where, "is missing" if size is None else "is nothing", "for example 100Gi")
    yield from selector_faults(spec.get("selector", {}), (*place, "selector"))
    origin, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for key, found in (("dataSource", origin), ("dataSourceRef", reference)):
        if found and not found.get("apiGroup") and found["kind"] != "PersistentVolumeClaim":
            yield Finding((*place, key, "kind"), f"there is no {found['kind']} without an apiGroup", "its apiGroup")
    if origin and reference and origin != reference:
        yield Finding((*place, "dataSource"), "is another than dataSourceRef", "leave one of them out")


def mount_faults(
    container: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]], path: Path
) -> Iterator[Finding]:
    """What is wrong with a container's mounts and block devices of a pod's `volumes`."""
    devices = container.get("volumeDevices", ())
    used = {each["name"] for each in devices} | {each["devicePath"] for each in devices}
    for index, mount in enumerate(container.get("volumeMounts", ())):
        place = (*path, "volumeMounts", index)
        if mount["name"] not in volumes:
            yield Finding((*place, "name"), f"there is no volume {mount['name']}", _one_of(volumes))
        for key in ("name", "mountPath"):
            if mount[key] in used:
                yield Finding((*place, key), f"{mount[key]} is in volumeDevices too", "another one")
        yield from _mount(mount, place, privileged=container.get("securityContext", {}).get("privileged", False))
    seen: set[str] = set()
    for index, device in enumerate(devices):
        place = (*path, "volumeDevices", index)
        if not {"persistentVolumeClaim", "ephemeral"} & volumes.get(device["name"], {}).keys():
            yield Finding((*place, "name"), f"there is no claim {device['name']} among the volumes", _one_of(volumes))
        for key in ("name", "devicePath"):
            if device[key] in seen:
                yield Finding((*place, key), f"{device[key]} is there twice", "another one")
            seen.add(device[key])


def _mount(mount: Mapping[str, Any], path: Path, *, privileged: bool) -> Iterator[Finding]:
    if mount.get("subPath") and mount.get("subPathExpr"):
        yield Finding((*path, "subPathExpr"), "does not go with subPath", "leave one of them out")
    if mount.get("mountPropagation") == "Bidirectional" and not privileged:
        place = (*path, "mountPropagation")
        yield Finding(place, "Bidirectional is for privileged containers alone", "HostToContainer")
    if mount.get("recursiveReadOnly", "Disabled") != "Disabled":
        if not mount.get("readOnly"):
            yield Finding((*path, "recursiveReadOnly"), "needs readOnly: true beside it", "readOnly: true")
        if mount.get("mountPropagation", "None") != "None":
            yield Finding((*path, "recursiveReadOnly"), "does not go with mountPropagation", "leave that out")


def _one_of(volumes: Mapping[str, Any]) -> str:
    return f"one of {', '.join(volumes)}" if volumes else "write it in volumes"
