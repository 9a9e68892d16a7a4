# SPDX-License-Identifier: Apache-2.0
"""The pods of a role as far as a spec says them in Kubernetes' words: what its patches make of the template.

A patch can be right by itself and wrong where it goes: it mounts a volume that nobody named, or takes the container
away. So the patches are applied to an outline of the template, which has what they can meet, and the whole is checked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import metadata_rules, names, pod_template
from kfp_volcano.schemas.patch import MERGE_KEYS, strategic_merge
from kfp_volcano.schemas.quantities import duration
from kfp_volcano.schemas.structure import Finding, deviations, is_known, load_schema
from kfp_volcano.schemas.wording import explain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kfp_volcano.schemas.sound import Sound
    from kfp_volcano.schemas.structure import Path

__all__ = ["findings"]

_SPEC: Path = ("spec",)
_VOLUMES: dict[str, dict[str, Any]] = {
    "claim": {"persistentVolumeClaim": {"claimName": "x"}},
    "emptyDir": {"emptyDir": {}},
    "configMap": {"configMap": {"name": "x"}},
    "secret": {"secret": {"secretName": "x"}},
    "hostPath": {"hostPath": {"path": "/x"}},
}
"""How a spec's kinds of volumes look in a pod."""
_PARTS: tuple[tuple[Path, Path], ...] = (
    (("spec", "affinity"), ("placement", "affinity")),
    (("spec", "securityContext"), ("pod", "securityContext")),
    (("spec", "containers", 0, "securityContext"), ("pod", "containerSecurityContext")),
)
"""Where in the outline the parts in Kubernetes' words stand, and where in a spec or a role."""
_OURS = ("requests", "limits")


def findings(sound: Sound, role: str, told: Collection[Path], *, examined: bool) -> Iterator[Finding]:
    """What is wrong with the pods of a role, `examined` by a preflight or not, beyond the places `told` already."""
    own: Path = ("spec", "roles", role)
    levels = (own, _SPEC)
    written = [(*level, "podPatch") for level in levels if not sound.absent(*level, "podPatch")]
    parts = [(place, _written(sound, levels, key)) for place, key in _PARTS]
    sources = [*written, *(path for _, path in parts if path)]
    values = [sound.get(*path) for path in sources]
    wrong = any(place[: len(path)] == path for place in told for path in sources)
    if wrong or not sources or any(value is None or not is_known(value) for value in values):
        return
    template = _outline(sound, role, examined=examined)
    for place, path in parts:
        if path:
            _put(template, place, sound.get(*path))
    patches = [(path, sound.get(*path)) for path in written]
    for _, patch in reversed(patches):
        template = strategic_merge(template, patch)
    for finding in _faults(template, role):
        yield finding._replace(path=_origin(finding.path, template, patches, parts))


def _faults(template: dict[str, Any], role: str) -> Iterator[Finding]:
    schema = load_schema("pod-template.v1")
    wrong = [each for deviation in deviations(template, schema) for each in explain(deviation, schema)]
    yield from wrong
    yield from metadata_rules.findings(template.get("metadata", {}), ("metadata",))
    if wrong:
        return
    containers = template["spec"]["containers"]
    if role not in [container["name"] for container in containers]:
        yield Finding(("spec", "containers"), f"has no {role}, which trains", f"leave the container {role} in")
    for index, container in enumerate(containers):
        for key in _OURS if container["name"] == role else ():
            if container.get("resources", {}).get(key):
                place = ("spec", "containers", index, "resources", key)
                yield Finding(place, "has words of its own", "write it in the role's resources")
    yield from pod_template.faults(template)


def _outline(sound: Sound, role: str, *, examined: bool) -> dict[str, Any]:
    volumes: dict[str, dict[str, Any]] = {}
    mounts: dict[str, str] = {}
    if not sound.absent("spec", "checkpoint"):
        volumes[names.CHECKPOINTS_VOLUME] = _VOLUMES["claim"]
        mounts[names.CHECKPOINTS_VOLUME] = names.MOUNT_PATH
    if not sound.absent("spec", "roles", role, "resources", "shm"):
        volumes[names.SHM_VOLUME] = _VOLUMES["emptyDir"]
        mounts[names.SHM_VOLUME] = "/dev/shm"  # noqa: S108  # a pod's own
    if not sound.absent("spec", "elasticity", "agent"):
        volumes[names.AGENT_VOLUME] = _VOLUMES["emptyDir"]
        mounts[names.AGENT_VOLUME] = names.AGENT_PATH
    for level in (("spec",), ("spec", "roles", role)):
        for name in sound.keys(*level, "volumes"):
            volume = sound.get(*level, "volumes", name)
            volume = volume if isinstance(volume, dict) else {}
            volumes[name] = next((_VOLUMES[key] for key in _VOLUMES if key in volume), _VOLUMES["claim"])
            mounts[name] = str(volume.get("mount", f"/{name}"))
    container = {
        "name": role,
        "image": "x",
        "volumeMounts": [{"name": name, "mountPath": mount} for name, mount in mounts.items()],
    }
    grace = sound.get("spec", "elasticity", "grace", default="60s")
    fails = sound.get("spec", "faults", "failed", default="retry") != "retry"
    return {
        "metadata": {},
        "spec": {
            "restartPolicy": "Never" if fails else "OnFailure",
            "terminationGracePeriodSeconds": math.ceil(duration("60s" if grace is None else grace)),
            "containers": [container],
            "initContainers": [{"name": names.PREFLIGHT, "image": "x"}] if examined else [],
            "volumes": [{"name": name, **source} for name, source in volumes.items()],
        },
    }


def _written(sound: Sound, levels: Sequence[Path], key: Path) -> Path:
    """Where a part is written that a role says in place of its spec; nowhere where neither does."""
    return next(((*level, *key) for level in levels if not sound.absent(*level, *key) and sound.get(*level, *key)), ())


def _put(template: Any, place: Path, value: Any) -> None:
    for part in place[:-1]:
        template = template[part]
    template[place[-1]] = value


def _origin(
    place: Path, template: Any, patches: Sequence[tuple[Path, Any]], parts: Sequence[tuple[Path, Path]]
) -> Path:
    """Where in the document stands what is at a place of the template: as deep in a patch as it reaches."""
    found: list[Path] = [(*path, *_reached(patch, place, template)) for path, patch in patches]
    found += [(*path, *place[len(at) :]) for at, path in parts if path and place[: len(at)] == at]
    depths = [len(path) - path.index("podPatch") if "podPatch" in path else len(place) for path in found]
    return found[max(range(len(found)), key=lambda index: depths[index])]


def _reached(patch: Any, place: Path, template: Any) -> Path:
    """The place in a patch of what is at a place of the template, or of the last thing around it that the patch has."""
    reached: list[str | int] = []
    for part in place:
        if isinstance(part, int) and isinstance(patch, list):
            key = MERGE_KEYS.get(str(reached[-1]), "")
            entry = template[part] if isinstance(template, list) and part < len(template) else None
            if key:
                wanted = entry.get(key) if isinstance(entry, dict) else None
                keys = [each.get(key) if isinstance(each, dict) else None for each in patch]
                index = keys.index(wanted) if wanted in keys else -1
            else:
                index = part if part < len(patch) else -1
            if index < 0:
                break
            reached.append(index)
            patch = patch[index]
        elif isinstance(patch, dict) and part in patch:
            reached.append(part)
            patch = patch[part]
        elif isinstance(part, str) and isinstance(patch, dict) and reached and "$patch" not in patch:
            reached.append(part)  # what is missing has its place here
            break
        else:
            break
        template = template[part] if _holds(template, part) else None
    return tuple(reached)


def _holds(template: Any, part: str | int) -> bool:
    if isinstance(template, dict):
        return part in template
    return isinstance(template, list) and isinstance(part, int) and part < len(template)
