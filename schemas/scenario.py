# SPDX-License-Identifier: Apache-2.0
"""Scenarios: a cluster, its queues and what comes to them, as typed values.

`schemas.scenario_validation` builds one from a mapping and reports every problem at once; nothing here checks. The form
on the wire is in `schemas/json/scenario.v1.schema.json`; `elastic.simulator.generating` makes jobs of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.schemas.quantities import duration, duration_text
from kfp_volcano.schemas.queue_tree import QueueTree  # noqa: TC001 - types of fields are read when documents are

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Arrivals",
    "Bursts",
    "Cluster",
    "Diurnal",
    "Durations",
    "Elastic",
    "Failures",
    "JobClass",
    "Load",
    "Lognormal",
    "Nodes",
    "Outage",
    "Point",
    "Poisson",
    "ScalingSpec",
    "ScenarioSpec",
    "StatedJob",
    "TraceSource",
]

_DAY = 86400.0
_PEAK = 14 * 3600.0
_TIMES = {"codec": (lambda values: tuple(map(duration, values)), lambda values: list(map(duration_text, values)))}
"""Durations on the wire, as seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Nodes that are alike."""

    count: int
    gpus: int
    gpu_class: str = field(default="", metadata={"key": "class"})
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How nodes fail by chance."""

    mtbf_s: float
    """Mean time between failures of a node."""
    mttr_s: float = 3600.0
    """Mean time to repair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time in which a node is gone."""

    node: str
    at_s: float
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes, which are numbered in the order of the document, from `node-0` on."""

    nodes: tuple[Nodes, ...]
    failures: Failures | None = None
    outages: tuple[Outage, ...] = ()

    def walk(self) -> Iterator[tuple[str, Nodes]]:
        """Each node's name and kind."""
        number = 0
        for group in self.nodes:
            for _ in range(group.count):
                yield f"node-{number}", group
                number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A size and its speed, in any unit."""

    gpus: int
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSpec:
    """How a job's speed follows its size."""

    serial: float = 0.01
    points: tuple[Point, ...] = ()
    spread: float = 1.0
    classes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The least and the most GPUs that a job may have, as parts of those that it asks for."""

    least: float = 0.5
    most: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """By chance, at the same rate all the time."""

    per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """By chance, more at one time of the day than at another."""

    per_hour: float
    swing: float = 0.8
    peak_s: float = _PEAK


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Many at once, again and again."""

    every_s: float
    jobs: int
    within_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When jobs come: one of these."""

    poisson: Poisson | None = None
    diurnal: Diurnal | None = None
    bursts: Bursts | None = None
    at_s: tuple[float, ...] | None = field(default=None, metadata=_TIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """By chance, a few of them very long."""

    median_s: float
    sigma: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long jobs take on the GPUs that they ask for: one of these."""

    fixed_s: float | None = None
    lognormal: Lognormal | None = None
    empirical_s: tuple[float, ...] | None = field(default=None, metadata=_TIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Where jobs go, and what their changes cost."""

    queue: str = "default"
    team: str = ""
    priority: int = 0
    classes: tuple[str, ...] = ()
    scaling: ScalingSpec = field(default_factory=ScalingSpec)
    start_s: float = 0.0
    resize_s: float = 30.0
    restart_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass(_Placed):
    """Jobs that are alike."""

    name: str
    gpus: tuple[int, ...]
    """One of these, each as likely as the others."""
    duration: Durations
    weight: float = 1.0
    elastic: Elastic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A stream of jobs."""

    name: str
    arrivals: Arrivals
    jobs: tuple[JobClass, ...]
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedJob(_Placed):
    """A job, stated."""

    name: str
    gpus: int
    duration_s: float
    at_s: float = 0.0
    gpus_per_worker: int = 1
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """Jobs from a file."""

    file: str
    format: str | None = None
    profiles: str | None = None
    load: float = 1.0
    since_s: float = 0.0
    until_s: float | None = None
    most: int | None = None
    only: tuple[str, ...] = ()
    elastic: Elastic | None = None
    scaling: ScalingSpec = field(default_factory=ScalingSpec)
    queue: str = "default"
    start_s: float = 0.0
    resize_s: float = 30.0
    restart_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSpec:
    """A scenario as it is written."""

    name: str
    seed: int = 0
    until_s: float = _DAY
    interval_s: float = 60.0
    cluster: Cluster | None = None
    queues: QueueTree | None = None
    loads: tuple[Load, ...] = ()
    jobs: tuple[StatedJob, ...] = ()
    trace: TraceSource | None = None
