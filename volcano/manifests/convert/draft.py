# SPDX-License-Identifier: Apache-2.0
"""A role of a TrainingJob while it is put together: what its pod template says, before roles are merged and named."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.kubernetes import NOT_TAKEN, part_findings, patch_findings
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.wording import dotted
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kfp_volcano.schemas.structure import Finding, Path
    from kfp_volcano.volcano.manifests.convert.source import Account

__all__ = ["CONTAINER", "OTHERS", "Draft", "Place", "PodPatch", "part"]

CONTAINER = ("spec", "containers", "*")
"""Where a pod patch holds what is for the training container, whose name is that of the role."""
OTHERS = ("spec", "containers", "+")
"""Where it holds the containers beside it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something of a role stands in the TrainingJob, whatever the role will be called."""

    draft: Draft
    keys: Path

    def __str__(self) -> str:
        if {self.keys[:1], self.keys[:2]} & self.draft.shared:
            return dotted(("spec", *self.keys))
        # In a patch the training container goes by the role's name, which is known only now.
        keys = tuple(self.draft.name if key == "*" else key for key in self.keys if key != "+")
        return dotted(("spec", "roles", self.draft.name, *keys))


class PodPatch:
    """What a pod template says for which a TrainingJob has no word, as a strategic merge patch."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self._origins: list[tuple[Path, str]] = []

    def set(self, place: Path, value: Any, origin: str) -> None:
        """A value of the template, and where it comes from; `CONTAINER` stands for the training container."""
        parent = self.value
        for key in place[:-1]:
            parent = parent.setdefault(str(key), {})
        parent[str(place[-1])] = value
        self._origins.append((place, origin))

    def append(self, place: Path, item: Any, origin: str) -> None:
        """An entry of a list of the template."""
        parent = self.value
        for key in place[:-1]:
            parent = parent.setdefault(str(key), {})
        items = parent.setdefault(str(place[-1]), [])
        self._origins.append(((*place, len(items)), origin))
        items.append(item)

    def join(self, place: Path, item: dict[str, Any], origin: str) -> None:
        """Further fields for the entry of that name in a list, which is there or not."""
        items: Any = self.value
        for key in place:
            items = items.get(key, {}) if isinstance(items, dict) else {}
        index = next((i for i, known in enumerate(items) if known.get("name") == item.get("name")), None)
        if index is None:
            self.append(place, item, origin)
            return
        for key, value in item.items():
            known = items[index].get(key)
            items[index][key] = [*known, *value] if isinstance(known, list) and isinstance(value, list) else value
            self._origins.append(((*place, index, key), f"{origin}.{key}"))

    def adopt(self, other: PodPatch) -> None:
        """An equal patch came from elsewhere too."""
        self._origins += other._origins

    def drop(self, place: Path) -> None:
        """Take a value out again, and the mappings that are empty without it."""
        parents: list[Any] = [self.value]
        for key in place[:-1]:
            parents.append(parents[-1][key])
        for parent, key in zip(reversed(parents), reversed(place), strict=True):
            if not parent[key]:
                del parent[key]

    def settle(self, draft: Draft, account: Account) -> None:
        """Leave out, and account for, what Volcano's API does not know; the rest is kept."""

        def origin(path: Path) -> str:
            place, found = max(
                ((place, found) for place, found in self._origins if path[: len(place)] == place),
                key=lambda each: len(each[0]),
                default=((), ""),
            )
            return found + _within(path[len(place) :])

        self.value = _settled(self.value, _patch_findings, origin, account)
        for place, found in self._origins:
            if _exists(self.value, place):
                account.kept(found, draft.place("podPatch", *place))

    def written(self, role: str) -> dict[str, Any]:
        """The patch for a role of that name."""
        value = copy.deepcopy(self.value)
        spec = value.get("spec", {})
        if isinstance(spec.get("containers"), dict):
            held = spec["containers"]
            spec["containers"] = [{"name": role, **held.get("*", {})}] if "*" in held else []
            spec["containers"] += held.get("+", [])
        return value


@dataclass(eq=False, kw_only=True)
class Draft:
    """What is known of a role."""

    name: str
    replicas: int | dict[str, int] = 1
    min: int | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    """Keys of the role in the TrainingJob, beyond its size and podPatch."""
    patch: PodPatch = field(default_factory=PodPatch)
    container: str = ""
    """Where the training container is, in the manifest."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    priority: str | None = None
    priority_path: str = ""
    grace: int | None = None
    restart: str = "Never"
    """What becomes of a container that failed: Always, OnFailure, Never or ExitCode."""
    restart_path: str = ""
    """Where that is said."""
    twins: list[Draft] = field(default_factory=list)
    """Roles of equal pods that became part of this one."""
    shared: set[Path] = field(default_factory=set)
    """What went to the spec, because all roles have it alike."""

    def place(self, *keys: str | int) -> Place:
        """Where something of the role stands."""
        return Place(self, keys)

    @property
    def env(self) -> dict[str, Any]:
        """The environment by name."""
        found: dict[str, Any] = self.parts.setdefault("env", {})
        return found

    @property
    def program(self) -> list[str]:
        """The command and its arguments; without a command the arguments of the image's entry point."""
        return [*self.parts.get("command", ()), *self.parts.get("args", ())]

    @property
    def gpus(self) -> int:
        """Whole GPUs of a pod, of any vendor."""
        resources = self.parts.get("resources", {})
        if "gpuShare" in resources:
            return 0
        others = [int(quantity(count)) for name, count in resources.get("extra", {}).items() if "gpu" in name.lower()]
        return int(resources.get("gpu", 0)) + sum(others)

    @property
    def origins(self) -> list[Draft]:
        """The roles of the manifest that it is made of."""
        return [self, *self.twins]

    def template(self) -> Any:
        """All that its pods are made of: two roles with equal ones can be one."""
        parts = {key: value for key, value in self.parts.items() if value not in ({}, [])}
        return parts, self.patch.value, self.labels, self.annotations, self.priority, self.grace


def _patch_findings(value: Any) -> Iterable[Finding]:
    """What is wrong with a patch that holds containers in two parts: `*`, the training's, and `+`, the others."""
    spec = value.get("spec", {})
    held = spec.get("containers", {})
    rest = {**value, "spec": {key: part for key, part in spec.items() if key != "containers"}}
    yield from patch_findings(rest, (), containers=())
    groups = (("*", [{"name": _TRAINING, **held["*"]}] if "*" in held else []), ("+", held.get("+", [])))
    for group, containers in groups:
        for found in patch_findings({"spec": {"containers": containers}}, (), containers=(_TRAINING,)):
            _, _, index, *path = found.path
            yield found._replace(path=("spec", "containers", group, *(() if group == "*" else (index,)), *path))


_TRAINING = "training"
"""A name for the training container while that has none."""
_LOST = {
    "is an unknown key": ("Volcano's Job does not take this field of a pod", "leave it out"),
    NOT_TAKEN: ("no pod of a training can have it", "see schemas/json/pod-template.v1.schema.json"),
}
"""Findings that concern a field as such, and how they are told."""


def _settled(
    value: Any, check: Callable[[Any], Iterable[Finding]], origin: Callable[[Path], str], account: Account
) -> Any:
    """A value in Kubernetes' own words without the keys that Volcano's API does not know.

    Raises SpecError for what is wrong otherwise.
    """
    value = copy.deepcopy(value)
    while found := next(iter(check(value)), None):
        if found.message not in _LOST or not _exists(value, found.path):
            refuse(origin(found.path), found.message, found.remedy)
        account.lost(origin(found.path), *_LOST[found.message])
        parent = value
        for key in found.path[:-1]:
            parent = parent[key]
        del parent[found.path[-1]]
    return value


def part(value: Any, place: tuple[str, ...], origin: str, account: Account) -> Any:
    """A part of a pod template that a TrainingJob holds in Kubernetes' own words, without unknown keys."""
    return _settled(
        value,
        lambda part: part_findings(part, (), place=place),
        lambda path: origin + _within(path),
        account,
    )


def _within(path: Path) -> str:
    """A path as it goes on from another."""
    return dotted(("x", *path))[1:]


def _exists(value: Any, path: Path) -> bool:
    for key in path:
        known = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        if key not in known:
            return False
        value = value[key]
    return True
