# SPDX-License-Identifier: Apache-2.0
"""What a queue's snapshot knows of one Job's workers, as the metrics that the algorithm asks for. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from kfp_volcano.elastic.policies.hpa.pods import Container, MetricsError, Pod, PodSample
from kfp_volcano.elastic.policies.hpa.replicas import Calculator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.elastic.policies.hpa.pods import Samples
    from kfp_volcano.elastic.policies.hpa.replicas import Settings, Tolerance
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, WorkerPod
    from kfp_volcano.schemas.hpa import ObjectReference, Selector

__all__ = ["JobMetrics", "calculator_of"]


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """Metrics of a Job's workers, and of what is outside of the cluster.

    A worker's pod has one container that counts, so that a metric of a container is the pod's.
    """

    job: ElasticJob
    external_values: Mapping[str, float]

    def resource(self, name: str, container: str) -> Samples:
        """What each worker uses of a resource."""
        del container
        return self._samples(name)

    def pods(self, name: str, selector: Selector | None) -> Samples:
        """A metric of each worker; they are told apart by name alone, so that there is nothing to select by."""
        _no_selector(selector)
        return self._samples(name)

    def object(self, described: ObjectReference, name: str, selector: Selector | None) -> NoReturn:
        """Objects have no metrics here but a queue, whose metrics bound all of its Jobs together."""
        del selector
        raise MetricsError(f"unable to get metric {name}: nothing is measured of {described.kind} {described.name}")

    def external(self, name: str, selector: Selector | None) -> Sequence[int]:
        """A metric of something outside of the cluster; what it is the sum of was decided where it was read."""
        _no_selector(selector)
        if name not in self.external_values:
            raise MetricsError(f"unable to get external metric {name}: it is not known")
        return [_milli(self.external_values[name])]

    def _samples(self, name: str) -> dict[str, PodSample]:
        found = {}
        for pod in self.job.pods:
            sample = pod.samples.get(name)
            if sample is not None and math.isfinite(sample.value):
                found[pod.name] = PodSample(_milli(sample.value), sample.at, sample.window_s)
        return found


def calculator_of(
    job: ElasticJob, at: float, tolerance: Tolerance, settings: Settings, containers: Iterable[str] = ()
) -> Calculator:
    """The Job at a moment, with the `containers` that metrics ask for by name.

    Where single workers are not looked at, those that run are taken for ready. The workers asked for stand for those
    there are, too: what is still coming is no reason to ask for more.
    """
    names = sorted(set(containers))
    pods = [_pod(pod, names) for pod in job.pods] or [Pod(name=str(index)) for index in range(job.running)]
    return Calculator(current=job.workers, status=job.workers, pods=pods, at=at, tolerance=tolerance, settings=settings)


def _pod(pod: WorkerPod, containers: Iterable[str]) -> Pod:
    return Pod(
        name=pod.name,
        phase=pod.phase,
        terminating=pod.terminating,
        ready=None if pod.ready is None else "True" if pod.ready else "False",
        ready_since=pod.ready_since or 0.0,
        started_at=pod.started_at,
        containers=tuple(Container(name=name, requests=pod.requests) for name in containers),
        requests=pod.requests,
    )


def _milli(value: float) -> int:
    return math.ceil(value * 1000)


def _no_selector(selector: Selector | None) -> None:
    if selector is not None and (selector.match_labels or selector.match_expressions):
        raise MetricsError("its series cannot be told apart by labels here: leave the selector out")
