# SPDX-License-Identifier: Apache-2.0
"""The TrainingJob's form on the wire: from a checked mapping to the type, and back to one canonical mapping."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.codec import plain, typed
from kfp_volcano.schemas.training_job import Elasticity, Role, Strategy, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "API_VERSION",
    "KIND",
    "build",
    "default_strategy",
    "in_order",
    "spec_hash",
    "spec_text",
    "text_hash",
    "to_wire",
]

API_VERSION = "kfp-volcano/v1"
KIND = "TrainingJob"
_METADATA = ("name", "namespace", "labels", "annotations")


def build(value: Mapping[str, Any]) -> TrainingJob:
    """The TrainingJob in a mapping that `validation` found nothing wrong with, its profiles filled in."""
    metadata, spec = value["metadata"], value["spec"]
    elasticity = {"strategy": default_strategy(spec["framework"]), **spec.get("elasticity", {})}
    roles = tuple(typed(Role, spec["roles"][name], name=name) for name in in_order(spec["roles"]))
    own = {key: part for key, part in spec.items() if key not in ("roles", "elasticity")}
    return typed(
        TrainingJob,
        {"namespace": "default", **metadata, **own},
        roles=roles,
        elasticity=typed(Elasticity, elasticity),
    )


def in_order(roles: Iterable[str]) -> list[str]:
    """The names of roles in one order whatever the order they were written in: worker, then the others by name."""
    return sorted(roles, key=lambda name: (name != "worker", name))


def default_strategy(framework: str) -> Strategy:
    """The strategy of a spec that names none: only PyTorch code can use the live runtime."""
    return "live" if framework == "pytorch" else "fixed"


def to_wire(job: TrainingJob) -> dict[str, Any]:
    """The canonical mapping of a TrainingJob: `training_job(to_wire(job)) == job`, equal jobs give equal mappings."""
    written = plain(job)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {key: written.pop(key) for key in _METADATA if key in written},
        "spec": {**written, "roles": {role["name"]: _without_name(role) for role in written["roles"]}},
    }


def _without_name(role: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in role.items() if key != "name"}


def spec_text(job: TrainingJob) -> str:
    """The canonical mapping as JSON on one line: the form in which a spec travels and is kept on its Job."""
    return json.dumps(to_wire(job), separators=(",", ":"), ensure_ascii=False)


def spec_hash(job: TrainingJob) -> str:
    """SHA-256 of what a TrainingJob says, in hex: equal for specs that differ only in how they are written."""
    return text_hash(spec_text(job))


def text_hash(text: str) -> str:
    """The `spec_hash` of the TrainingJob whose `spec_text` is given."""
    return hashlib.sha256(text.encode()).hexdigest()
