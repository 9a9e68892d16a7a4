# SPDX-License-Identifier: Apache-2.0
"""What a TrainingJob says about its pods beyond their number: environment, volumes, identity, placement, hooks.

Parts that are Kubernetes' own (`affinity`, security contexts, `podPatch`) are kept as they were written;
`schemas.kubernetes` checks them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kfp_volcano.schemas import codec
from kfp_volcano.schemas.quantities import quantity_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CLEANUP",
    "ENV",
    "ENV_FROM",
    "PREFLIGHT",
    "QUANTITIES",
    "QUANTITY",
    "VOLUMES",
    "Cleanup",
    "Devices",
    "Env",
    "EnvReference",
    "EnvSource",
    "GpuShare",
    "KubernetesPart",
    "Pending",
    "Placement",
    "Pod",
    "Preflight",
    "Toleration",
    "Topology",
    "Volume",
]

KubernetesPart: TypeAlias = dict[str, Any]
"""A part of a pod template in Kubernetes' own words, its keys sorted."""

QUANTITY = {"codec": (quantity_text, str)}
"""Metadata of a field that holds a quantity."""
QUANTITIES = {
    "codec": (
        lambda value: {key: quantity_text(value[key]) for key in sorted(value)},
        lambda value: dict(sorted(value.items())),
    )
}

Within = Literal["pcie", "numa"]
Numa = Literal["none", "best-effort", "restricted", "single-numa-node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvReference:
    """An environment variable's value that the cluster holds: never in the manifest itself."""

    source: Literal["secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"]
    name: str = ""
    """Of the Secret or ConfigMap."""
    key: str = ""
    """In it; the path of a field (`status.hostIP`), or the resource (`limits.cpu`)."""
    optional: bool = False


Env: TypeAlias = dict[str, str | EnvReference]

_KEY_OF = {"fieldRef": "fieldPath", "resourceFieldRef": "resource"}


def _read_env(value: Mapping[str, Any]) -> Env:
    return {name: _read_reference(value[name]) for name in sorted(value)}


def _read_reference(value: str | Mapping[str, Any]) -> str | EnvReference:
    if isinstance(value, str):
        return value
    source: Any
    ((source, reference),) = value.items()
    return EnvReference(
        source=source,
        name=reference.get("name", ""),
        key=reference[_KEY_OF.get(source, "key")],
        optional=reference.get("optional", False),
    )


def _write_env(env: Env) -> dict[str, Any]:
    return {name: _write_reference(env[name]) for name in sorted(env)}


def _write_reference(value: str | EnvReference) -> str | dict[str, Any]:
    if isinstance(value, str):
        return value
    name = {"name": value.name} if value.name else {}
    optional = {"optional": True} if value.optional else {}
    return {value.source: {**name, _KEY_OF.get(value.source, "key"): value.key, **optional}}


ENV = {"codec": (_read_env, _write_env)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSource:
    """A Secret or ConfigMap all of whose keys become environment variables."""

    source: Literal["secretRef", "configMapRef"]
    name: str
    prefix: str = ""
    optional: bool = False


def _read_sources(value: Sequence[Mapping[str, Any]]) -> tuple[EnvSource, ...]:
    def read(entry: Mapping[str, Any]) -> EnvSource:
        source: Any = "secretRef" if "secretRef" in entry else "configMapRef"
        return EnvSource(source=source, prefix=entry.get("prefix", ""), **entry[source])

    return tuple(map(read, value))


def _write_sources(sources: tuple[EnvSource, ...]) -> list[dict[str, Any]]:
    def write(each: EnvSource) -> dict[str, Any]:
        reference = {"name": each.name, **({"optional": True} if each.optional else {})}
        return {each.source: reference, **({"prefix": each.prefix} if each.prefix else {})}

    return list(map(write, sources))


ENV_FROM = {"codec": (_read_sources, _write_sources)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume and where it is mounted."""

    name: str = field(metadata={"codec": (str, lambda _: "")})
    """The key under which it stands."""
    mount: str
    claim: str | None = None
    empty_dir: KubernetesPart | None = None
    config_map: KubernetesPart | None = None
    secret: KubernetesPart | None = None
    host_path: KubernetesPart | None = None
    read_only: bool = False
    sub_path: str | None = None


VOLUMES = {
    "codec": (
        lambda value: tuple(codec.typed(Volume, value[name], name=name) for name in sorted(value)),
        lambda volumes: {volume.name: codec.plain(volume) for volume in volumes},
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """Identity and rights of pods, and where their images come from."""

    service_account: str | None = None
    token: bool | None = None
    """Whether the service account's token is mounted; no where nothing is said."""
    image_pull_secrets: tuple[str, ...] = ()
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    security_context: KubernetesPart = field(default_factory=dict)
    container_security_context: KubernetesPart = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A taint of nodes that pods may run in spite of."""

    key: str | None = None
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How close on the network the pods of the Job have to be: a tier of Volcano's HyperNodes."""

    mode: Literal["hard", "soft"] = "hard"
    tier: int | None = None
    """The highest tier within which all pods lie; the lower the closer."""
    tier_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Devices that are allocated jointly and close to each other."""

    joint: tuple[Literal["gpu", "rdma"], ...]
    within: Within = "pcie"
    via: Literal["claim", "plugin"] | None = None
    """`claim`: dynamic resource allocation; `plugin`: device plugins. None: claim for pcie, plugin for numa."""
    attribute: str | None = None
    """The devices' attribute that has to match in a claim; by default the one for `within`."""
    gpu_class: str = "gpu.nvidia.com"
    rdma_class: str = "dranet"

    @property
    def claimed(self) -> bool:
        """Whether the devices come through a ResourceClaim, not through device plugins."""
        return (self.via or ("claim" if self.within == "pcie" else "plugin")) == "claim"


def _read_nodes(value: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {
        label: (values,) if isinstance(values, str) else tuple(values)
        for label, values in ((label, value[label]) for label in sorted(value))
    }


def _write_nodes(nodes: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {label: list(nodes[label]) for label in sorted(nodes)}


NODES = {"codec": (_read_nodes, _write_nodes)}
"""Of a field: node labels and the values allowed, one of them perhaps without a list around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """On which nodes pods run."""

    arch: tuple[Literal["amd64", "arm64", "ppc64le", "s390x"], ...] = ()
    nodes: dict[str, tuple[str, ...]] = field(default_factory=dict, metadata=NODES)
    """Node label to the values allowed, best first."""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: KubernetesPart = field(default_factory=dict)
    numa: Numa | None = None
    devices: Devices | None = None
    topology: Topology | None = None
    """Of the whole Job: only a spec has it, not a role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """A part of a GPU, as Volcano's vGPU hands it out: `resources.gpu` of them."""

    memory: str | None = field(default=None, metadata=QUANTITY)
    """Device memory of each, a quantity in whole MiB."""
    cores: int | None = None
    """Percent of the compute of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """A program that examines a pod's devices before training starts in it, for a limited time."""

    command: tuple[str, ...]
    timeout_s: float = 120.0
    image: str | None = None
    """The role's image where None."""
    unfit_for_s: float = 3600.0
    """How long a node is avoided on which it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """A program that runs after training in its container, for a limited time, however training ended."""

    command: tuple[str, ...]
    timeout_s: float = 30.0


def _program(value: Sequence[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {"command": value}


PREFLIGHT = {"codec": (lambda value: codec.typed(Preflight, _program(value)), codec.plain)}
CLEANUP = {"codec": (lambda value: codec.typed(Cleanup, _program(value)), codec.plain)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What becomes of a Job one of whose gang's pods waits too long."""

    after_s: float
    then: Literal["fail", "abort", "restartJob"] = "fail"
