# SPDX-License-Identifier: Apache-2.0
"""A HorizontalPodAutoscaler as typed values: the whole of its spec, in the form of the API `autoscaling/v2`.

`schemas.hpa_validation` builds one from a manifest, or from the block `hpa` of a Policy, and reports every problem at
once; nothing here checks. Names and meanings are the API's; its Go types are in k8s.io/api/autoscaling/v2/types.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kfp_volcano.schemas.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DEFAULT_DOWN",
    "DEFAULT_METRICS",
    "DEFAULT_UP",
    "MAX_REPLICAS",
    "QUEUE",
    "QUEUE_METRICS",
    "Behavior",
    "ContainerResourceSource",
    "ExternalSource",
    "HpaSpec",
    "MetricIdentifier",
    "MetricSpec",
    "MetricTarget",
    "MetricType",
    "ObjectReference",
    "ObjectSource",
    "PodsSource",
    "ResourceSource",
    "ScalingPolicy",
    "ScalingRules",
    "Selector",
    "SelectorRequirement",
    "milli",
    "milli_text",
]

MetricType = Literal["Resource", "ContainerResource", "Pods", "Object", "External"]
PolicyType = Literal["Pods", "Percent"]
PolicySelect = Literal["Max", "Min", "Disabled"]

QUEUE = "Queue"
"""The kind of object whose metrics the policy `hpa` knows."""
QUEUE_METRICS = {
    "gpu-share-in-use": "part of the GPUs the queue may use that is in use, or promised to gangs that wait, 0 to 1",
    "gpus-in-use": "the same in GPUs",
    "gpus-idle": "GPUs the queue may use that are not in use",
    "pending-gangs": "gangs of the queue that wait; while they are more than the target no Job grows",
    "pending-gpus": "GPUs that they lack; likewise",
}
"""Metrics of a queue by name, and what each is."""

MAX_REPLICAS = 2**31 - 1
"""The largest number of replicas the API can hold."""
_MOST = 2**63 - 1


def milli(text: str | float) -> int:
    """A quantity in thousandths, rounded up: `1500m` is 1500, `2` is 2000 (Quantity.MilliValue).

    Beyond what 64 bits hold, the most they hold. Raises ValueError where the text is no quantity.
    """
    value = quantity(text) * 1000
    whole = int(value)
    return max(-_MOST, min(_MOST, whole + (whole < value)))


def milli_text(value: int) -> str:
    """The quantity of so many thousandths."""
    return f"{value}m" if value % 1000 else str(value // 1000)


_MILLI = {"codec": (milli, milli_text)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """How far a size may move within a period."""

    type: PolicyType
    value: int
    """Workers, or percent of what there were at the period's start."""
    period_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """What holds for one direction."""

    stabilization_window_seconds: int | None = None
    """How far back recommendations count; None: the controller's own window."""
    select_policy: PolicySelect = "Max"
    policies: tuple[ScalingPolicy, ...] = ()
    tolerance: float | None = field(default=None, metadata={"codec": (lambda text: float(quantity(text)), str)})
    """How far from the target a metric may be without a change; None: the controller's own."""


DEFAULT_UP = ScalingRules(
    stabilization_window_seconds=0,
    policies=(
        ScalingPolicy(type="Pods", value=4, period_seconds=15),
        ScalingPolicy(type="Percent", value=100, period_seconds=15),
    ),
)
"""What a `behavior` that says nothing of growth means (pkg/apis/autoscaling/v2/defaults.go)."""
DEFAULT_DOWN = ScalingRules(policies=(ScalingPolicy(type="Percent", value=100, period_seconds=15),))
"""What one that says nothing of shrinking means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """How fast and how readily a size may change, each way; defaults filled in."""

    scale_up: ScalingRules = DEFAULT_UP
    scale_down: ScalingRules = DEFAULT_DOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorRequirement:
    """One condition on a label."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which of a metric's series are meant, by their labels."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[SelectorRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are as every condition wants them."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _holds(each, labels) for each in self.match_expressions
        )


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """An object by kind and name."""

    kind: str
    name: str
    api_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricIdentifier:
    """A metric by name, and which of its series."""

    name: str
    selector: Selector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTarget:
    """What a metric is to be; values in thousandths."""

    type: Literal["Utilization", "Value", "AverageValue"]
    value: int | None = field(default=None, metadata=_MILLI)
    average_value: int | None = field(default=None, metadata=_MILLI)
    average_utilization: int | None = None
    """Percent of what the pods ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSource:
    """A metric of one object."""

    described_object: ObjectReference
    metric: MetricIdentifier
    target: MetricTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsSource:
    """A metric that each pod has, averaged."""

    metric: MetricIdentifier
    target: MetricTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSource:
    """A resource that each pod asks for and uses, averaged."""

    name: str
    target: MetricTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResourceSource:
    """The same of one container of each pod."""

    name: str
    container: str
    target: MetricTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSource:
    """A metric of something that is no object of the cluster; all its series added up."""

    metric: MetricIdentifier
    target: MetricTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric; exactly the source that its type names is there."""

    type: MetricType
    resource: ResourceSource | None = None
    container_resource: ContainerResourceSource | None = None
    pods: PodsSource | None = None
    object: ObjectSource | None = None
    external: ExternalSource | None = None


DEFAULT_METRICS = (
    MetricSpec(
        type="Resource",
        resource=ResourceSource(name="cpu", target=MetricTarget(type="Utilization", average_utilization=80)),
    ),
)
"""What a manifest without metrics means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaSpec:
    """What to scale, by what, between which bounds, how fast; the API's defaults filled in."""

    min_replicas: int = 1
    max_replicas: int = MAX_REPLICAS
    """What a manifest has to say; in a Policy each Job has its own as well."""
    scale_target_ref: ObjectReference | None = None
    """None in a Policy, whose queue says it."""
    metrics: tuple[MetricSpec, ...] = DEFAULT_METRICS
    behavior: Behavior | None = None
    """None: the rules of the time before there were behaviours."""
