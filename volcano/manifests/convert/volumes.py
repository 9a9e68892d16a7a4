# SPDX-License-Identifier: Apache-2.0
"""The volumes of a pod and where its training container mounts them, in the words of a TrainingJob."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.manifests.convert.draft import CONTAINER

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["read_volumes"]

_SHM = "/dev/shm"  # noqa: S108  # the shared memory of a pod
_MOUNT = {"name", "mountPath", "readOnly", "subPath"}
_KEYS = {
    "persistentVolumeClaim": {"claimName", "readOnly"},
    "emptyDir": {"medium", "sizeLimit"},
    "configMap": {"name", "items", "defaultMode", "optional"},
    "secret": {"secretName", "items", "defaultMode", "optional"},
    "hostPath": {"path", "type"},
}
"""The sources (core/v1 VolumeSource) that a TrainingJob has, and the keys of each that it can say."""


def read_volumes(pod: View, container: View | None, draft: Draft) -> None:
    """Read `volumes` of a pod and `volumeMounts` of its training container into a role.

    A volume of a TrainingJob has one mount. Further mounts, volumes that only other containers mount, and sources of
    other kinds go to podPatch, where they find the volume under its name.
    """
    mounts = container.maps("volumeMounts") if container else []
    for volume in pod.maps("volumes"):
        name = volume.peek("name")
        own = [mount for mount in mounts if mount.peek("name") == name]
        if own and _expressible(volume) and _plain(own[0]):
            _read_volume(volume, own[0], draft)
        else:
            draft.patch.append(("spec", "volumes"), _taken(volume), volume.at())
    for mount in mounts:
        if mount.rest():
            draft.patch.append((*CONTAINER, "volumeMounts"), _taken(mount), mount.at())


def _taken(view: View) -> dict[str, Any]:
    return {key: view.any(key) for key in view}


def _plain(mount: View) -> bool:
    return set(mount) <= _MOUNT and isinstance(mount.peek("mountPath"), str)


def _expressible(volume: View) -> bool:
    sources = [key for key in volume if key != "name" and key in volume]
    if len(sources) != 1 or sources[0] not in _KEYS or not isinstance(volume.peek("name"), str):
        return False
    source = volume.peek(sources[0])
    items = source.get("items") or [] if isinstance(source, dict) else None
    return (
        items is not None
        and set(source) <= _KEYS[sources[0]]
        and source.get("medium", "") in ("", "Memory", None)
        and isinstance(items, list)
        and all(map(_is_plain_item, items))
    )


def _is_plain_item(item: Any) -> bool:
    """Whether it is a key and the file it becomes, without a mode of its own."""
    return (
        isinstance(item, dict) and set(item) == {"key", "path"} and all(isinstance(part, str) for part in item.values())
    )


def _read_volume(volume: View, mount: View, draft: Draft) -> None:
    name = str(volume.peek("name"))
    kind = next(key for key in volume if key in _KEYS)
    source = volume.map(kind)
    size = source.peek("sizeLimit")
    if mount.peek("mountPath") == _SHM and source.peek("medium") == "Memory" and size and "subPath" not in mount:
        place = draft.place("resources", "shm")
        draft.parts["resources"]["shm"] = source.any("sizeLimit", to=place)
        for view in (volume, source, mount):
            for key in view.rest():
                view.any(key, to=place)
        return
    place = draft.place("volumes", name)
    volume.text("name", to=place)
    mount.text("name", to=place)
    volume.account.kept(volume.at(kind), place)
    entry: dict[str, Any] = {**_SOURCES[kind](source), "mount": mount.text("mountPath", to=place)}
    if mount.flag("readOnly", to=place) or entry.pop("readOnly", False):
        entry["readOnly"] = True
    if path := mount.text("subPath", to=place):
        entry["subPath"] = path
    draft.parts.setdefault("volumes", {})[name] = entry


def _claim(source: View) -> dict[str, Any]:
    return {"claim": source.text("claimName"), "readOnly": bool(source.flag("readOnly"))}


def _empty(source: View) -> dict[str, Any]:
    parts = {"medium": source.text("medium"), "size": source.any("sizeLimit")}
    return {"emptyDir": {key: part for key, part in parts.items() if part}}


def _keyed(source: View, *, name: str, key: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": source.text(name)}
    if items := source.any("items"):
        entry["items"] = {item["key"]: item["path"] for item in items}
    if (mode := source.number("defaultMode")) is not None:
        entry["mode"] = mode
    if source.flag("optional"):
        entry["optional"] = True
    return {key: entry}


def _host(source: View) -> dict[str, Any]:
    parts = {"path": source.text("path"), "type": source.text("type")}
    return {"hostPath": {key: part for key, part in parts.items() if part}}


_SOURCES = {
    "persistentVolumeClaim": _claim,
    "emptyDir": _empty,
    "configMap": lambda source: _keyed(source, name="name", key="configMap"),
    "secret": lambda source: _keyed(source, name="secretName", key="secret"),
    "hostPath": _host,
}
