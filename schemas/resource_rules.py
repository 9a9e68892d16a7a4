# SPDX-License-Identifier: Apache-2.0
"""What one pod asks for: amounts that Kubernetes takes, and devices that can be had together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.quantities import is_multiple, quantity
from kfp_volcano.schemas.structure import Finding, Unknown
from kfp_volcano.schemas.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.schemas.sound import Sound
    from kfp_volcano.schemas.structure import Path

__all__ = ["coordinator_findings", "findings", "unused_devices"]

_LARGEST_QUANTITY = 2**63 - 1
_MOST_CLAIMED = 32
"""Devices a ResourceClaim may allocate (`AllocationResultsMaxSize`, k8s.io/api/resource/v1)."""
_MIB = 2**20


def findings(sound: Sound, role: Path) -> Iterator[Finding]:
    """What is wrong with the resources of a role, also in view of where its pods shall run."""
    path = (*role, "resources")
    yield from _amounts(sound, path)
    yield from _shares(sound, path)
    yield from _numa(sound, role)
    yield from _devices(sound, role)


def coordinator_findings(sound: Sound) -> Iterator[Finding]:
    """What is wrong with the coordinator's resources."""
    yield from _amounts(sound, ("spec", "elasticity", "coordinator", "resources"))


def _amounts(sound: Sound, path: Path) -> Iterator[Finding]:
    for resource, default in (("cpu", 1), ("memory", "1Gi")):
        asked = sound.get(*path, resource, default=default)
        if asked is None:
            continue
        if not 0 < quantity(asked) <= _LARGEST_QUANTITY:
            yield Finding((*path, resource), f"no pod can have {shown(asked)}", "more than 0, less than 2^63")
            continue
        limit = sound.get(*path, "limits", resource)
        if limit is not None and not quantity(asked) <= quantity(limit) <= _LARGEST_QUANTITY:
            place = (*path, "limits", resource)
            yield Finding(place, f"{shown(limit)} is less than what is requested", f"at least {shown(asked)}")
    if sound.get(*path, "limits") and sound.get(*path, "reserved"):
        yield Finding((*path, "limits"), "reserved makes limits of the requests", "leave one of them out")
    if sound.get(*path, "measured") and sound.get(*path, "reserved"):
        yield Finding((*path, "measured"), "reserved makes limits of the requests", "leave one of them out")
    for size in sound.keys(*path, "hugepages"):
        amount = sound.get(*path, "hugepages", size)
        if amount is not None and not is_multiple(amount, size):
            yield Finding(
                (*path, "hugepages", size), f"{shown(amount)} is no multiple of a page", f"a multiple of {size}"
            )
    yield from _extra(sound, path)


def _extra(sound: Sound, path: Path) -> Iterator[Finding]:
    taken = {
        names.GPU: "gpu",
        names.VGPU_NUMBER: "gpuShare",
        names.VGPU_MEMORY: "gpuShare",
        names.VGPU_CORES: "gpuShare",
        sound.get(*path, "rdmaResource", default=names.RDMA): "rdma",
    }
    for name in sound.keys(*path, "extra"):
        place = (*path, "extra", name)
        amount = sound.get(*place)
        if name in taken:
            yield Finding(place, f"has a word of its own: {taken[name]}", f"resources.{taken[name]}")
        elif name.split("/")[0].endswith("kubernetes.io") or name.startswith("requests."):
            yield Finding(place, "is a name of Kubernetes' own, not of an extended resource", "another name")
        elif amount is not None and "/" in name and not is_multiple(amount):
            yield Finding(place, f"{shown(amount)} is no whole number", "extended resources are counted")


def _shares(sound: Sound, path: Path) -> Iterator[Finding]:
    if sound.get(*path, "gpuShare") is None:
        return
    if sound.get(*path, "gpu", default=0) == 0:
        yield Finding((*path, "gpu"), "is missing: gpuShare is a part of each", "gpu: 1")
    memory = sound.get(*path, "gpuShare", "memory")
    if memory is not None and (not is_multiple(memory, "1Mi") or quantity(memory) / _MIB > _LARGEST_QUANTITY):
        yield Finding((*path, "gpuShare", "memory"), f"{shown(memory)} is not in whole MiB", "for example 8Gi")


def _placed(sound: Sound, role: Path, key: str) -> tuple[Any, Path]:
    """What a role's placement says under a key, or the spec's, and where; None where that is not known."""
    own = (*role, "placement", key)
    if not sound.absent(*own):
        return sound.get(*own), own
    path: Path = ("spec", "placement", key)
    return sound.get(*path), path


def _numa(sound: Sound, role: Path) -> Iterator[Finding]:
    policy, _ = _placed(sound, role, "numa")
    if policy not in (None, "none"):
        yield from _exclusive(sound, role, f"numa policy {policy}")


def _exclusive(sound: Sound, role: Path, why: str) -> Iterator[Finding]:
    """The kubelet aligns whole CPUs of pods whose quality of service is Guaranteed, no others."""
    cpu = sound.get(*role, "resources", "cpu", default=1)
    if cpu is not None and not is_multiple(cpu):
        yield Finding((*role, "resources", "cpu"), f"{shown(cpu)} is no whole number of CPUs, as {why} needs", "whole")
    if sound.get(*role, "resources", "reserved", default=False) is False:
        yield Finding((*role, "resources", "reserved"), f"is not set, as {why} needs", "reserved: true")


def _devices(sound: Sound, role: Path) -> Iterator[Finding]:
    devices, path = _placed(sound, role, "devices")
    joint = sound.get(*path, "joint") if isinstance(devices, dict) else None
    if not joint or any(isinstance(kind, Unknown) for kind in joint):
        return
    counts = {kind: sound.get(*role, "resources", kind, default=0) for kind in ("gpu", "rdma")}
    if any(count is None for count in counts.values()) or not (path[1] == "roles" or _wanted(joint, counts)):
        return
    for kind in joint:
        if not counts[kind]:
            remedy = f"{kind}: 1, or devices without {kind}"
            yield Finding((*role, "resources", kind), "is missing: devices.joint asks for it", remedy)
            return
    within, via = devices.get("within", "pcie"), devices.get("via")
    if isinstance(within, Unknown) or isinstance(via, Unknown):
        return
    if via == "plugin" and within == "pcie":
        yield Finding((*path, "via"), "plugin cannot align devices below one PCIe root", "via: claim, or within: numa")
    elif via == "plugin" or (via is None and within == "numa"):
        yield from _exclusive(sound, role, "devices within a NUMA node")
    else:
        yield from _claim(sound, role, joint, counts)


def _wanted(joint: Sequence[str], counts: dict[str, int]) -> bool:
    """Whether the spec's devices are meant for a role: it asks for all of them."""
    return all(counts[kind] for kind in joint)


def _claim(sound: Sound, role: Path, joint: Sequence[str], counts: dict[str, int]) -> Iterator[Finding]:
    path = (*role, "resources")
    if sound.get(*path, "gpuShare") is not None and "gpu" in joint:
        yield Finding((*path, "gpuShare"), "cannot be had through a claim", "whole GPUs, or no devices")
    amounts = [int(counts[kind]) for kind in joint]
    if sum(amounts) > _MOST_CLAIMED:
        yield Finding((*path, joint[0]), f"a claim cannot hold {sum(amounts)} devices", f"at most {_MOST_CLAIMED}")
    if max(amounts) % min(amounts):
        what = " and ".join(f"{counts[kind]} {kind}" for kind in joint)
        yield Finding((*path, joint[0]), f"{what} cannot be shared out evenly", "one a multiple of the other")


def unused_devices(sound: Sound, roles: Sequence[str]) -> Iterator[Finding]:
    """The spec's `devices` that no role asks for."""
    joint = sound.get("spec", "placement", "devices", "joint")
    if not joint or any(isinstance(kind, Unknown) for kind in joint):
        return
    for index, kind in enumerate(joint):
        if kind in joint[:index]:
            yield Finding(("spec", "placement", "devices", "joint", index), f"{kind} is there twice", "once")
    for role in roles:
        counts = [sound.get("spec", "roles", role, "resources", kind, default=0) for kind in joint]
        if None in counts or all(counts):
            return
    if roles:
        remedy = f"{' and '.join(joint)} in the resources of a role"
        yield Finding(("spec", "placement", "devices"), "no role asks for such devices", remedy)
