# SPDX-License-Identifier: Apache-2.0
"""From a metric to a number of replicas: the ratio of what is to what should be, times what there is. Pure.

Source: replica_calculator.go and metrics/utilization.go. Values are whole thousandths, and averages are whole numbers
rounded down, as there; what is compared with a tolerance is a float made of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.hpa.numbers import INT64_MAX, ceil32, int32, quotient, ratio, total
from kfp_volcano.elastic.policies.hpa.pods import NO_PODS, MetricsError, PodSample, grouped, ready_count, requested

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfp_volcano.elastic.policies.hpa.pods import Groups, Pod, Samples
    from kfp_volcano.schemas.hpa import Behavior

__all__ = ["DEFAULT", "Calculator", "Count", "Settings", "Tolerance", "external_total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is set for a whole controller; the defaults are Kubernetes' (config/v1alpha1/defaults.go)."""

    tolerance: float = 0.1
    down_window_s: float = 300.0
    cpu_initialisation_s: float = 300.0
    readiness_s: float = 30.0
    """Within which of its start a change of a pod's readiness is its first."""
    up_factor: float = 2.0
    """How many times as many replicas there may be at once, where there are no behaviours."""
    up_minimum: float = 4.0
    """What there may be in any case then."""


DEFAULT = Settings()
_NO_METRICS = "unable to get {}: no metrics returned from resource metrics API"


class Tolerance(NamedTuple):
    """How far from its target a metric may be without a change, each way."""

    down: float = 0.1
    up: float = 0.1

    @classmethod
    def of(cls, behavior: Behavior | None, settings: Settings) -> Tolerance:
        """A behaviour's own tolerances, and the controller's where it has none (tolerancesForHpa)."""
        down, up = (behavior.scale_down.tolerance, behavior.scale_up.tolerance) if behavior else (None, None)
        return cls(settings.tolerance if down is None else down, settings.tolerance if up is None else up)

    def holds(self, usage_ratio: float) -> bool:
        """Whether a ratio of usage to target is near enough to 1; both ends count."""
        return (1.0 - self.down) <= usage_ratio <= (1.0 + self.up)


class Count(NamedTuple):
    """How many replicas a metric calls for, and what it was."""

    replicas: int
    usage: int
    """Thousandths: of the object, or on average of a replica."""
    usage_ratio: float
    """Usage to target."""
    utilisation: int | None = None
    """Percent of what is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculator:
    """A target at one moment, and what a metric means for it."""

    current: int
    """Replicas asked for."""
    status: int
    """Replicas there are."""
    pods: Sequence[Pod]
    at: float
    """Unix seconds."""
    tolerance: Tolerance
    settings: Settings = DEFAULT

    def by_utilisation(self, target: int, samples: Samples, resource: str, container: str = "") -> Count:
        """For a target in percent of what the pods ask for (GetResourceReplicas). Raises MetricsError."""
        groups, counted = self._counted(samples, resource)
        requests = requested(self.pods, container, resource)
        missing = {name: PodSample(quotient(requests[name] * max(100, target), 100)) for name in groups.missing}

        def compare(those: Samples) -> tuple[float, int, int]:
            return _utilisation(those, requests, target)

        usage_ratio, utilisation, usage = compare(counted)
        replicas = self._replicas(groups, counted, missing, lambda those: compare(those)[0])
        return Count(replicas, usage, usage_ratio, utilisation)

    def by_usage(self, target: int, samples: Samples, resource: str = "") -> Count:
        """For a target in thousandths a pod (calcPlainMetricReplicas); `resource` is "" for a metric that is none.

        Raises MetricsError.
        """
        groups, counted = self._counted(samples, resource)
        missing = {name: PodSample(target) for name in groups.missing}

        def compare(those: Samples) -> tuple[float, int]:
            usage = quotient(sum(each.value for each in those.values()), len(those))
            return ratio(usage, target), usage

        usage_ratio, usage = compare(counted)
        replicas = self._replicas(groups, counted, missing, lambda those: compare(those)[0])
        return Count(replicas, usage, usage_ratio)

    def by_total(self, target: int, usage: int) -> Count:
        """For a target of an object or of an external metric as a whole (getUsageRatioReplicaCount).

        Without replicas neither tolerance nor pods count. Raises MetricsError where there is no pod.
        """
        usage_ratio = ratio(usage, target)
        if self.current == 0:
            return Count(ceil32(usage_ratio), usage, usage_ratio)
        if self.tolerance.holds(usage_ratio):
            return Count(self.current, usage, usage_ratio)
        return Count(ceil32(usage_ratio * ready_count(self.pods)), usage, usage_ratio)

    def by_average(self, target: int, usage: int) -> Count:
        """For a target that each replica has its part of.

        GetObjectPerPodMetricReplicas and GetExternalPerPodMetricReplicas; they go by the replicas there are.
        """
        usage_ratio = ratio(usage, float(target) * float(self.status))
        replicas = self.status if self.tolerance.holds(usage_ratio) else ceil32(ratio(usage, target))
        if float(usage) >= float(INT64_MAX) or not self.status:
            return Count(replicas, usage, usage_ratio)
        return Count(replicas, math.ceil(ratio(usage, self.status)), usage_ratio)

    def _counted(self, samples: Samples, resource: str) -> tuple[Groups, dict[str, PodSample]]:
        if not samples:
            raise MetricsError(_NO_METRICS.format(f"metrics for resource {resource}" if resource else "metric"))
        if not self.pods:
            raise MetricsError(NO_PODS)
        groups = grouped(
            self.pods,
            samples,
            resource,
            self.at,
            cpu_initialisation_s=self.settings.cpu_initialisation_s,
            readiness_s=self.settings.readiness_s,
        )
        counted = groups.counted(samples)
        if not counted:
            raise MetricsError("did not receive metrics for targeted pods (pods might be unready)")
        return groups, counted

    def _replicas(self, groups: Groups, counted: Samples, missing: Samples, compare: Callable[[Samples], float]) -> int:
        """The replicas that a ratio of usage to target calls for.

        Pods of which nothing is known speak against a change: when it would go down they are taken for busy
        (`missing`), when it would go up for idle, as are those that are not ready. What then lies within the
        tolerance, or would turn the change around, is no change.
        """
        usage_ratio = compare(counted)
        rising_unready = bool(groups.unready) and usage_ratio > 1.0
        if not rising_unready and not groups.missing:
            return self.current if self.tolerance.holds(usage_ratio) else ceil32(usage_ratio * groups.ready)
        enlarged = dict(counted)
        if usage_ratio < 1.0:
            enlarged.update(missing)
        elif usage_ratio > 1.0:
            enlarged.update(dict.fromkeys(groups.missing, PodSample(0)))
        if rising_unready:
            enlarged.update(dict.fromkeys(groups.unready, PodSample(0)))
        again = compare(enlarged)
        if self.tolerance.holds(again) or (usage_ratio < 1.0 < again) or (again < 1.0 < usage_ratio):
            return self.current
        replicas = ceil32(again * len(enlarged))
        if (again < 1.0 and replicas > self.current) or (again > 1.0 and replicas < self.current):
            return self.current
        return replicas


def external_total(series: Sequence[int]) -> int:
    """What an external metric is: the sum of its series. Raises MetricsError where there is none."""
    if not series:
        raise MetricsError("unable to fetch metrics from external metrics API: no metrics returned")
    return total(list(series))


def _utilisation(samples: Samples, requests: Mapping[str, int], target: int) -> tuple[float, int, int]:
    """(Ratio, percent, mean usage) of the pods that ask for something (GetResourceUtilizationRatio)."""
    known = [name for name in samples if name in requests]
    used, asked = sum(samples[name].value for name in known), sum(requests[name] for name in known)
    if not asked:
        raise MetricsError("no metrics returned matched known pods")
    percent = int32(quotient(used * 100, asked))
    return ratio(percent, target), percent, quotient(used, len(known))
