# SPDX-License-Identifier: Apache-2.0
"""Named sets of resources: `resources: {profile: single-node}`.

The common ones are built in; a platform keeps its own in a file (`kind: ResourceProfiles`), by which it may also change
the built-in ones. A profile is filled in when a spec is read: a Job keeps what its spec said then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.structure import Finding, load_schema
from kfp_volcano.schemas.wording import examine, problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.schemas.structure import Path

__all__ = ["BUILT_IN", "Profiles", "filled", "read_profiles"]

Profiles: TypeAlias = "Mapping[str, Mapping[str, Any]]"
"""Name of a profile to resources as a spec writes them."""

BUILT_IN: Profiles = {
    "small": {"cpu": 1, "memory": "2Gi"},
    "single-gpu": {"cpu": 8, "memory": "32Gi", "gpu": 1, "shm": "8Gi"},
    "single-node": {"cpu": 64, "memory": "512Gi", "gpu": 8, "shm": "64Gi", "reserved": True},
    "multi-node-rdma": {"cpu": 64, "memory": "512Gi", "gpu": 8, "rdma": 8, "shm": "64Gi", "reserved": True},
    "shared-gpu-notebook": {"cpu": 2, "memory": "8Gi", "gpu": 1, "gpuShare": {"memory": "8Gi", "cores": 50}},
}


def read_profiles(value: Any, *, source: str = "profiles") -> dict[str, Mapping[str, Any]]:
    """The built-in profiles and those of a document of kind ResourceProfiles. Raises SpecError for what is wrong."""
    plain, found = examine(value, load_schema("resource-profiles.v1"))
    if found:
        raise SpecError(problems(found, source), source=source)
    return {**BUILT_IN, **plain["profiles"]}


def filled(value: Any, profiles: Profiles) -> tuple[Any, list[Finding]]:
    """A normalised spec with its profiles filled in, and the ones that do not exist; what is beside a profile wins."""
    findings: list[Finding] = []

    def resources(asked: Any, path: Path) -> Any:
        name = asked.get("profile") if isinstance(asked, dict) else None
        if not isinstance(name, str):
            return asked
        if name not in profiles:
            findings.append(
                Finding((*path, "profile"), f"there is no profile {name}", f"there is {', '.join(profiles)}")
            )
            return asked
        return {**profiles[name], **{key: part for key, part in asked.items() if key != "profile"}}

    def within(parent: Any, key: str, path: Path) -> Any:
        if not isinstance(parent, dict) or key not in parent:
            return parent
        return {**parent, key: resources(parent[key], (*path, key))}

    spec = value.get("spec") if isinstance(value, dict) else None
    if not isinstance(spec, dict):
        return value, []
    new = dict(spec)
    if isinstance(spec.get("roles"), dict):
        new["roles"] = {
            name: within(role, "resources", ("spec", "roles", name)) for name, role in spec["roles"].items()
        }
    if isinstance(spec.get("elasticity"), dict):
        coordinator = spec["elasticity"].get("coordinator")
        path: Path = ("spec", "elasticity", "coordinator")
        new["elasticity"] = {**spec["elasticity"]}
        if coordinator is not None:
            new["elasticity"]["coordinator"] = within(coordinator, "resources", path)
    return {**value, "spec": new}, findings
