# SPDX-License-Identifier: Apache-2.0
"""What a TrainingJob says about its pods, and how that has to fit what Kubernetes and Volcano take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import kubernetes, names, pod_outline, resource_rules
from kfp_volcano.schemas.pod_template import toleration_faults
from kfp_volcano.schemas.structure import Finding, is_known
from kfp_volcano.schemas.wire import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.schemas.sound import Sound
    from kfp_volcano.schemas.structure import Path

__all__ = ["findings"]

_ENV_PREFIX = "KFP_VOLCANO_"
_SOURCES = ("claim", "emptyDir", "configMap", "secret", "hostPath")
_REFERENCES = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef")
_RESERVED_MOUNTS = (names.MOUNT_PATH, names.SVC_MOUNT_PATH)
_SPEC: Path = ("spec",)


def findings(sound: Sound) -> Iterator[Finding]:
    """What is wrong with what a document says about its pods, and about the pods of each role."""
    roles = in_order(sound.keys("spec", "roles"))
    found = list(_pods(sound, _SPEC, roles))
    yield from found
    for role in roles:
        path: Path = ("spec", "roles", role)
        own = list(_pods(sound, path, [role]))
        yield from own
        yield from resource_rules.findings(sound, path)
        place = (*path, "placement", "topology")
        if sound.get(*place) is not None:
            yield Finding(place, "is for the whole Job", "write it in spec.placement.topology")
        yield from _mounts(sound, path)
        told = [finding.path for finding in (*found, *own)]
        yield from pod_outline.findings(sound, role, told, examined=_examined(sound, role, roles))
    yield from resource_rules.coordinator_findings(sound)
    yield from _topology(sound)
    yield from resource_rules.unused_devices(sound, roles)


def _pods(sound: Sound, path: Path, roles: Sequence[str]) -> Iterator[Finding]:
    yield from _env(sound, *path, "env")
    for index in range(sound.count(*path, "envFrom")):
        entry = sound.get(*path, "envFrom", index)
        if isinstance(entry, dict):
            yield from _one_of(entry, ("secretRef", "configMapRef"), (*path, "envFrom", index))
    for name in sound.keys(*path, "volumes"):
        yield from _volume(sound, (*path, "volumes", name), name)
    for index in range(sound.count(*path, "placement", "tolerations")):
        place = (*path, "placement", "tolerations", index)
        toleration = sound.get(*place)
        if isinstance(toleration, dict) and is_known(toleration):
            yield from toleration_faults(toleration, place)
    for key, place in _KUBERNETES:
        value = sound.get(*path, *key)
        if value:
            yield from kubernetes.part_findings(value, (*path, *key), place=place)
    patch = sound.get(*path, "podPatch")
    if patch:
        # A patch of the spec meets each role's container, whose name it cannot know.
        yield from kubernetes.patch_findings(patch, (*path, "podPatch"), containers=roles)


_CONTAINER = ("spec", "containers", "*")
_KUBERNETES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("placement", "affinity"), ("spec", "affinity")),
    (("pod", "securityContext"), ("spec", "securityContext")),
    (("pod", "containerSecurityContext"), (*_CONTAINER, "securityContext")),
)
"""Keys whose values are Kubernetes' own, and where in a pod template they go."""


def _env(sound: Sound, *path: str | int) -> Iterator[Finding]:
    for key in sound.keys(*path):
        if key.startswith(_ENV_PREFIX):
            yield Finding(
                (*path, key), "is set by kfp-volcano itself", f"names that begin with {_ENV_PREFIX} are taken"
            )
        value = sound.get(*path, key)
        if isinstance(value, dict):
            yield from _one_of(value, _REFERENCES, (*path, key))


def _one_of(value: dict[str, Any], keys: Sequence[str], path: Path) -> Iterator[Finding]:
    found = [key for key in keys if key in value]
    if len(found) != 1:
        has = " and ".join(found) if found else "none of them"
        yield Finding(path, f"has {has}", f"exactly one of {', '.join(keys)}")


def _volume(sound: Sound, path: Path, name: str) -> Iterator[Finding]:
    volume = sound.get(*path)
    if name.startswith(names.VOLUME_PREFIX):
        yield Finding(path, "is a name that kfp-volcano takes itself", f"not beginning with {names.VOLUME_PREFIX}")
    if not isinstance(volume, dict):
        return
    yield from _one_of(volume, _SOURCES, path)
    parts = [((*path, "subPath"), volume.get("subPath"))]
    for source in ("configMap", "secret"):
        items = sound.get(*path, source, "items") or {}
        parts += [((*path, source, "items", key), file) for key, file in items.items()]
    for place, text in parts:
        if isinstance(text, str) and ".." in text.split("/"):
            yield Finding(place, f"{text} leaves the volume", "without ..")


def _mounts(sound: Sound, role: Path) -> Iterator[Finding]:
    """Each path of a container has one volume."""
    taken: dict[str, str] = dict.fromkeys(_RESERVED_MOUNTS, "kfp-volcano")
    if sound.get(*role, "resources", "shm") is not None:
        taken["/dev/shm"] = "resources.shm"  # noqa: S108  # the shared memory of a pod
    own = sound.keys(*role, "volumes")
    where = [("spec", "volumes", name) for name in sound.keys("spec", "volumes") if name not in own]
    for path in [*where, *((*role, "volumes", name) for name in own)]:
        mount = sound.get(*path, "mount")
        if not isinstance(mount, str):
            continue
        mount = mount.rstrip("/") or "/"
        if mount in taken:
            yield Finding((*path, "mount"), f"{mount} is already the mount of {taken[mount]}", "another path")
        taken.setdefault(mount, str(path[-1]))


def _examined(sound: Sound, role: str, roles: Sequence[str]) -> bool:
    """Whether a preflight examines the pods of a role: it has GPUs, or is the workers' and none has any."""
    gpus = {each: sound.get("spec", "roles", each, "resources", "gpu", default=0) for each in roles}
    return not sound.absent("spec", "faults", "preflight") and bool(
        gpus[role] or (role == roles[0] and not any(gpus.values()))
    )


def _topology(sound: Sound) -> Iterator[Finding]:
    path: Path = ("spec", "placement", "topology")
    topology = sound.get(*path)
    if not isinstance(topology, dict):
        return
    named = [key for key in ("tier", "tierName") if key in topology]
    if len(named) > 1:
        yield Finding(path, "has tier and tierName", "one of them")
    if not named and topology.get("mode", "hard") == "hard":
        yield Finding((*path, "tier"), "is missing: mode hard holds below a tier", "tier: 1, or mode: soft")
