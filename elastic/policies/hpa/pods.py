# SPDX-License-Identifier: Apache-2.0
"""A target's pods as the algorithm sees them: what each asks for and uses, and which of them count. Pure.

Source: replica_calculator.go, groupPods and calculateRequests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "NO_PODS",
    "Container",
    "Groups",
    "MetricsError",
    "Pod",
    "PodSample",
    "Samples",
    "grouped",
    "ready_count",
    "requested",
]

CPU = "cpu"
NO_PODS = "no pods returned by selector while calculating replica count"


class MetricsError(Exception):
    """A metric that cannot be had or used at present; the message is what Kubernetes' own says."""


class PodSample(NamedTuple):
    """What a pod used, in thousandths."""

    value: int
    at: float = 0.0
    """When it was taken, Unix seconds."""
    window_s: float = 60.0
    """Over which time it was taken."""


Samples: TypeAlias = "Mapping[str, PodSample]"
"""By name of the pod; a pod whose sample is missing has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container that runs as long as its pod: a sidecar (an init container that is always restarted) is one too."""

    name: str
    requests: Mapping[str, int] = field(default_factory=dict)
    """In thousandths, by resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One replica."""

    name: str
    phase: str = "Running"
    terminating: bool = False
    ready: Literal["True", "False", "Unknown"] | None = "True"
    """Its condition Ready; None where it has none."""
    ready_since: float = 0.0
    """When the condition last changed, Unix seconds."""
    started_at: float | None = None
    containers: tuple[Container, ...] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    """What is asked for at the level of the pod, in thousandths; it goes before what the containers ask for."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Which pods count, by name."""

    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    """They run, and nothing is known of what they use."""
    ignored: frozenset[str]
    """They are going or gone."""

    def counted(self, samples: Samples) -> dict[str, PodSample]:
        """The samples without those of pods that do not count."""
        return {name: each for name, each in samples.items() if name not in self.ignored and name not in self.unready}


def grouped(
    pods: Iterable[Pod], samples: Samples, resource: str, at: float, *, cpu_initialisation_s: float, readiness_s: float
) -> Groups:
    """The pods by what is known of them.

    CPU alone is distrusted while a pod starts: within `cpu_initialisation_s` a sample counts if the pod is ready, and
    all of its window lies after it became so; later, unless the pod was never ready, which is taken for so where its
    condition last changed within `readiness_s` of its start.
    """
    ready = 0
    unready, missing, ignored = set(), set(), set()
    for pod in pods:
        sample = samples.get(pod.name)
        if pod.terminating or pod.phase == "Failed":
            ignored.add(pod.name)
        elif pod.phase == "Pending":
            unready.add(pod.name)
        elif sample is None:
            missing.add(pod.name)
        elif resource == CPU and _starting(pod, sample, at, cpu_initialisation_s, readiness_s):
            unready.add(pod.name)
        else:
            ready += 1
    return Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _starting(pod: Pod, sample: PodSample, at: float, cpu_initialisation_s: float, readiness_s: float) -> bool:
    if pod.ready is None or pod.started_at is None:
        return True
    if pod.started_at + cpu_initialisation_s > at:
        return pod.ready == "False" or sample.at < pod.ready_since + sample.window_s
    return pod.ready == "False" and pod.started_at + readiness_s > pod.ready_since


def ready_count(pods: Sequence[Pod]) -> int:
    """How many run and are ready. Raises MetricsError where there is no pod at all."""
    if not pods:
        raise MetricsError(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count"
        )
    return sum(pod.phase == "Running" and pod.ready == "True" for pod in pods)


def requested(pods: Iterable[Pod], container: str, resource: str) -> dict[str, int]:
    """What each pod asks for, in thousandths: all of it, or what one container does where `container` names it.

    Raises MetricsError where a container does not say.
    """
    return {pod.name: _requested(pod, container, resource) for pod in pods}


def _requested(pod: Pod, container: str, resource: str) -> int:
    if pod.requests and not container:
        said = [each.requests[resource] for each in pod.containers if resource in each.requests]
        if resource not in pod.requests and not said:
            raise MetricsError(f"missing pod-level request for {resource} in Pod {pod.name}")
        return pod.requests.get(resource, sum(said))
    total = 0
    for each in pod.containers:
        if container in ("", each.name):
            if resource not in each.requests:
                raise MetricsError(f"missing request for {resource} in container {each.name} of Pod {pod.name}")
            total += each.requests[resource]
        if container == each.name:
            return total
    if container:
        raise MetricsError(f"container {container} not found in Pod {pod.name}")
    return total
