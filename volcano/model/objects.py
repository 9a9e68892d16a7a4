# SPDX-License-Identifier: Apache-2.0
"""Objects as the model sees them: plain dicts by kind and key, and what may change about them.

An object is never changed in place: a change carries the whole new object, so that whoever holds the old one may go
on reading it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeAlias

__all__ = [
    "ENDED",
    "Change",
    "Create",
    "CreateKeys",
    "Delete",
    "Key",
    "Manifest",
    "Objects",
    "Shelf",
    "Transition",
    "Update",
    "container_statuses",
    "controller_of",
    "has_ended",
    "holds",
    "is_owned_by",
    "key_of",
    "labels_of",
    "owned_by",
    "parse_time",
    "phase_of",
    "reference_to",
    "resource_of",
    "status_of",
    "terminating",
    "time_text",
]

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as plain JSON values."""

Key: TypeAlias = tuple[str, str]
"""Namespace and name; the namespace is empty for cluster-scoped kinds."""


class Shelf(dict[Key, Manifest]):
    """All objects of a kind by key, in the order of their creation; it knows whose they are."""

    def __init__(self, kept: Mapping[Key, Manifest] | None = None) -> None:
        super().__init__()
        self._by_owner: dict[str, dict[Key, None]] = {}
        for key, manifest in (kept or {}).items():
            self[key] = manifest

    def __setitem__(self, key: Key, manifest: Manifest) -> None:
        if key in self:
            self._disown(key)
        super().__setitem__(key, manifest)
        for owner in manifest["metadata"].get("ownerReferences", ()):
            self._by_owner.setdefault(owner["uid"], {})[key] = None

    def __delitem__(self, key: Key) -> None:
        self._disown(key)
        super().__delitem__(key)

    def owned_by(self, uid: str) -> list[Manifest]:
        """The objects with this owner."""
        return [self[key] for key in self._by_owner.get(uid, ())]

    def _disown(self, key: Key) -> None:
        for owner in self[key]["metadata"].get("ownerReferences", ()):
            owned = self._by_owner.get(owner["uid"], {})
            owned.pop(key, None)
            if not owned:
                self._by_owner.pop(owner["uid"], None)


Objects: TypeAlias = Mapping[str, Mapping[Key, Manifest]]
"""All objects, by kind and key, in the order of their creation."""


@dataclass(frozen=True, slots=True)
class Create:
    """A new object."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CreateKeys:
    """A new Secret with an SSH key pair that whoever carries this out makes: here nothing is random."""

    manifest: Manifest
    """The Secret without them."""


@dataclass(frozen=True, slots=True)
class Update:
    """The whole new form of an object that exists; nothing happens if it is gone by now."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Delete:
    """An object is asked to go; a running pod gets its grace period, or `grace_s` instead."""

    kind: str
    key: Key
    grace_s: float | None = None


Change: TypeAlias = Create | CreateKeys | Update | Delete


@dataclass(frozen=True, slots=True)
class Transition:
    """What became of one object: created (`old` is None), changed, or gone (`new` is None)."""

    old: Manifest | None
    new: Manifest | None

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str((self.new or self.old or {})["kind"])


def key_of(manifest: Manifest) -> Key:
    """Where an object is kept."""
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def resource_of(kind: str) -> str:
    """What the API server calls a kind in what it says of its objects: the plural, and the group but for the core's."""
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    return f"{plural}.{_GROUPS[kind]}" if kind in _GROUPS else plural


_GROUPS = {
    "Command": "bus.volcano.sh",
    "Job": "batch.volcano.sh",
    "Lease": "coordination.k8s.io",
    "PodGroup": "scheduling.volcano.sh",
    "PriorityClass": "scheduling.k8s.io",
    "Queue": "scheduling.volcano.sh",
}


def labels_of(manifest: Manifest) -> Mapping[str, str]:
    """An object's labels."""
    return manifest["metadata"].get("labels") or {}


def status_of(manifest: Manifest) -> Mapping[str, Any]:
    """An object's status, empty where it has none yet."""
    return manifest.get("status") or {}


def phase_of(manifest: Manifest) -> str:
    """`status.phase`, empty where there is none."""
    return str(status_of(manifest).get("phase", ""))


ENDED = frozenset({"Succeeded", "Failed"})
"""The phases of a pod of which nothing will run any more."""


def has_ended(pod: Manifest) -> bool:
    """Whether nothing of a pod will run any more."""
    return phase_of(pod) in ENDED


def container_statuses(pod: Manifest) -> list[Mapping[str, Any]]:
    """What a pod's status says of each of its containers, init containers first."""
    status = status_of(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def terminating(manifest: Manifest) -> bool:
    """Whether the object has been asked to go."""
    return "deletionTimestamp" in manifest["metadata"]


def controller_of(manifest: Manifest) -> Mapping[str, Any] | None:
    """The owner reference of the object's controller."""
    return next((owner for owner in manifest["metadata"].get("ownerReferences", ()) if owner.get("controller")), None)


def reference_to(owner: Manifest) -> dict[str, Any]:
    """The owner reference by which an object belongs to another, and goes with it."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def is_owned_by(manifest: Manifest, uid: str) -> bool:
    """Whether an object has this owner."""
    return any(owner["uid"] == uid for owner in manifest["metadata"].get("ownerReferences", ()))


def owned_by(objects: Objects, kind: str, uid: str) -> list[Manifest]:
    """The objects of a kind with this owner; where they are on a Shelf the others are not looked at."""
    kept = objects.get(kind, {})
    if isinstance(kept, Shelf):
        return kept.owned_by(uid)
    return [each for each in kept.values() if is_owned_by(each, uid)]


def time_text(at: float) -> str:
    """Unix seconds in the API's form, to the second."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Unix seconds of a time in the API's form."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def holds(found: Any, wanted: Any) -> bool:
    """Whether an object, or a part of one, is as was asked for, with what the server adds."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and holds(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(holds, found, wanted))
    return bool(found == wanted)
