# SPDX-License-Identifier: Apache-2.0
"""The metrics of a spec, one by one and together: what each calls for, and the most that any calls for. Pure.

Source: horizontal.go, computeReplicasForMetrics and the computeStatusFor…Metric functions; the messages are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kfp_volcano.elastic.policies.hpa.pods import MetricsError
from kfp_volcano.elastic.policies.hpa.replicas import external_total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.policies.hpa.pods import Samples
    from kfp_volcano.elastic.policies.hpa.replicas import Calculator, Count
    from kfp_volcano.schemas.hpa import MetricSpec, MetricTarget, ObjectReference, Selector

__all__ = ["Failure", "Metrics", "Proposal", "Reading", "metric_count", "proposal"]


class Metrics(Protocol):
    """Where values come from; all in thousandths. Each raises MetricsError where it has none."""

    def resource(self, name: str, container: str) -> Samples:
        """What each pod uses of a resource, or one `container` of it where that is not empty."""
        ...

    def pods(self, name: str, selector: Selector | None) -> Samples:
        """A metric of each pod."""
        ...

    def object(self, described: ObjectReference, name: str, selector: Selector | None) -> int:
        """A metric of an object."""
        ...

    def external(self, name: str, selector: Selector | None) -> Sequence[int]:
        """Every series of a metric of something outside of the cluster."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What one metric said."""

    spec: MetricSpec
    name: str
    """What it is called in messages."""
    count: Count


class Failure(NamedTuple):
    """A metric that could not be used."""

    spec: MetricSpec
    message: str

    @property
    def reason(self) -> str:
        """The reason of the condition that says so."""
        spec = self.spec
        known = (spec.resource, spec.container_resource, spec.pods, spec.object, spec.external)
        return f"FailedGet{spec.type}Metric" if any(known) else "InvalidMetricSourceType"


class Proposal(NamedTuple):
    """What all metrics together call for."""

    replicas: int | None
    """None: nothing may be concluded from what is known."""
    metric: str
    """The name of the one that calls for most."""
    readings: tuple[Reading, ...]
    failures: tuple[Failure, ...]

    @property
    def error(self) -> str:
        """What went wrong, with the first failure; empty where nothing did."""
        if not self.failures:
            return ""
        count = len(self.readings) + len(self.failures)
        spec, message = self.failures[0]
        first = f"failed to get {_subject(spec)} value: {message}"
        return f"invalid metrics ({len(self.failures)} invalid out of {count}), first error is: {first}"


def proposal(specs: Sequence[MetricSpec], calculator: Calculator, metrics: Metrics) -> Proposal:
    """The most that any metric calls for; nothing where all failed, or some did and the rest would shrink it."""
    readings: list[Reading] = []
    failures: list[Failure] = []
    replicas, name = 0, ""
    for spec in specs:
        try:
            reading = metric_count(spec, calculator, metrics)
        except MetricsError as error:
            failures.append(Failure(spec, str(error)))
            continue
        readings.append(reading)
        if replicas == 0 or reading.count.replicas > replicas:
            replicas, name = reading.count.replicas, reading.name
    unsafe = not readings or (failures and replicas < calculator.current)
    return Proposal(None if unsafe else replicas, "" if unsafe else name, tuple(readings), tuple(failures))


def metric_count(spec: MetricSpec, calculator: Calculator, metrics: Metrics) -> Reading:
    """What one metric calls for. Raises MetricsError."""
    if (resource := spec.resource) is not None:
        return _resource(spec, resource.target, calculator, metrics, (resource.name, ""))
    if (one := spec.container_resource) is not None:
        return _resource(spec, one.target, calculator, metrics, (one.name, one.container))
    if (pods := spec.pods) is not None:
        samples = metrics.pods(pods.metric.name, pods.metric.selector)
        count = calculator.by_usage(_said(pods.target.average_value, "pods"), samples)
        return Reading(spec, f"pods metric {pods.metric.name}", count)
    if (thing := spec.object) is not None:
        target = thing.target
        usage = metrics.object(thing.described_object, thing.metric.name, thing.metric.selector)
        if target.type == "Value" and target.value is not None:
            name = f"{thing.described_object.kind} metric {thing.metric.name}"
            return Reading(spec, name, calculator.by_total(target.value, usage))
        average = target.average_value if target.type == "AverageValue" else None
        count = calculator.by_average(_said(average, "object"), usage)
        return Reading(spec, f"external metric {thing.metric.name}", count)
    if (outside := spec.external) is not None:
        usage = external_total(metrics.external(outside.metric.name, outside.metric.selector))
        average = outside.target.average_value
        count = (
            calculator.by_average(average, usage)
            if average is not None
            else calculator.by_total(_said(outside.target.value, "external"), usage)
        )
        return Reading(spec, f"external metric {outside.metric.name}", count)
    raise MetricsError(f"unknown metric source type {spec.type}")


def _resource(
    spec: MetricSpec, target: MetricTarget, calculator: Calculator, metrics: Metrics, which: tuple[str, str]
) -> Reading:
    name, container = which
    if target.average_value is None and target.average_utilization is None:
        raise MetricsError(
            "invalid resource metric source: neither an average utilization target "
            "nor an average value (usage) target was set"
        )
    try:
        samples = metrics.resource(name, container)
        if target.average_value is not None:
            return Reading(spec, f"{name} resource", calculator.by_usage(target.average_value, samples, name))
        percent = _said(target.average_utilization, "resource")
        whose = f"{name} container" if container else name
        words = f"{whose} resource utilization (percentage of request)"
        return Reading(spec, words, calculator.by_utilisation(percent, samples, name, container))
    except MetricsError as error:
        what = "utilization" if target.average_value is None else "usage"
        raise MetricsError(f"failed to get {name} {what}: {error}") from error


def _said(value: int | None, source: str) -> int:
    """A target's value. Raises MetricsError where it is not said."""
    if value is None:
        raise MetricsError(
            f"invalid {source} metric source: neither a value target nor an average value target was set"
        )
    return value


def _subject(spec: MetricSpec) -> str:
    """A metric as the messages of failures call it."""
    if spec.resource is not None:
        return f"{spec.resource.name} resource metric"
    if spec.container_resource is not None:
        return f"{spec.container_resource.container} container metric"
    if spec.external is not None:
        return f"{spec.external.metric.name} external metric"
    return f"{spec.type.lower()} metric"
