# SPDX-License-Identifier: Apache-2.0
"""GPUPools: which priorities share which GPUs, as typed values, and from what a user wrote to them.

A pool is the nodes whose label `kfp-volcano/gpu-pool` has its name. Jobs that share GPUs get theirs from the pool of
their priority, if it has one (`bound`); what moves nodes between pools is `volcano.pools`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.codec import typed
from kfp_volcano.schemas.pods import NODES
from kfp_volcano.schemas.quantities import duration
from kfp_volcano.schemas.sound import Sound
from kfp_volcano.schemas.structure import Finding, load_schema
from kfp_volcano.schemas.wording import by_place, examine, problems, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.schemas.structure import Path
    from kfp_volcano.schemas.training_job import Role, TrainingJob

__all__ = ["GPUPools", "Pool", "bound", "gpu_pools"]

_TEN_YEARS = 3650 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """GPUs for one or several priorities."""

    name: str
    priorities: tuple[str, ...]
    max: int
    min: int = 0
    wants_above: int = 80
    """Use in percent above which it wants another node."""
    gives_below: int = 50
    """Use in percent below which it may give one away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUPools:
    """Pools between which nodes move. The form on the wire is in `schemas/json/gpu-pools.v1.schema.json`."""

    name: str
    pools: tuple[Pool, ...]
    """In the order of their names."""
    nodes: dict[str, tuple[str, ...]] = field(default_factory=dict, metadata=NODES)
    """Labels that a node must have to be in a pool, and the values allowed."""
    cooldown_s: float = 600.0
    """How long a node stays in a pool at least."""

    def of(self, priority: str | None) -> Pool | None:
        """The pool of a priority class."""
        return next((pool for pool in self.pools if priority in pool.priorities), None)


def gpu_pools(value: Any, *, source: str = "pools") -> GPUPools:
    """The GPUPools in a mapping. Raises SpecError with every problem found."""
    plain, found = examine(value, load_schema("gpu-pools.v1"))
    first = by_place(found)
    found = [*first.values(), *_findings(Sound(plain, first.keys()))]
    if found:
        raise SpecError(problems(found, source), source=source)
    spec = plain["spec"]
    pools = tuple(typed(Pool, spec["pools"][name], name=name) for name in sorted(spec["pools"]))
    own = {key: part for key, part in spec.items() if key != "pools"}
    return typed(GPUPools, {**own, "name": plain["metadata"]["name"]}, pools=pools)


def bound(job: TrainingJob, pools: GPUPools) -> TrainingJob:
    """A TrainingJob whose roles with shared GPUs run on nodes of the pool of its priority, if there is one.

    A spec that names a pool by itself, in its node selector, keeps that.
    """
    pool = pools.of(job.priority)
    if pool is None or names.POOL_LABEL in job.placement.node_selector:
        return job
    return replace(job, roles=tuple(_bound(role, pool) for role in job.roles))


def _bound(role: Role, pool: Pool) -> Role:
    if not role.resources.gpu or role.resources.gpu_share is None:
        return role
    selector = {names.POOL_LABEL: pool.name, **role.placement.node_selector}
    return replace(role, placement=replace(role.placement, node_selector=dict(sorted(selector.items()))))


def _findings(sound: Sound) -> Iterator[Finding]:
    """What the schema cannot say: how values have to fit each other."""
    owners: dict[str, str] = {}
    for name in sound.keys("spec", "pools"):
        path: Path = ("spec", "pools", name)
        yield from _bounds(sound, path)
        for index in range(sound.count(*path, "priorities")):
            priority = sound.get(*path, "priorities", index)
            if priority in owners:
                remedy = "each priority once, in one pool"
                yield Finding((*path, "priorities", index), f"{priority} is in pool {owners[priority]} already", remedy)
            elif priority is not None:
                owners[priority] = name
    if names.POOL_LABEL in sound.keys("spec", "nodes"):
        yield Finding(("spec", "nodes", names.POOL_LABEL), "is what nodes get from their pool", "other labels")
    cooldown = sound.get("spec", "cooldown")
    if cooldown is not None and duration(cooldown) > _TEN_YEARS:
        yield Finding(("spec", "cooldown"), f"{shown(cooldown)} is outside what is possible", "at most ten years")


def _bounds(sound: Sound, pool: Path) -> Iterator[Finding]:
    least, most = sound.get(*pool, "min", default=0), sound.get(*pool, "max")
    if least is not None and most is not None and least > most:
        yield Finding((*pool, "min"), f"{least} is more than max", f"at most {most}")
    gives, wants = sound.get(*pool, "givesBelow", default=50), sound.get(*pool, "wantsAbove", default=80)
    if gives is not None and wants is not None and gives >= wants:
        yield Finding((*pool, "givesBelow"), f"{gives} is not below wantsAbove", f"less than {wants}")
