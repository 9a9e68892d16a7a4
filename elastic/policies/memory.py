"""What is remembered from one turn of a queue to the next: plain values, passed in with the snapshot.

Little, because a cluster's objects hold most of it (requests, outcomes, holds). What is only here may be lost when an
autoscaler dies; each entry says what that costs. `remember` is the one function that makes the next memory.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - types of fields are read when logs are
from dataclasses import dataclass, field

__all__ = ["Breaker", "JobMemory", "Memory", "Mode", "Recommendation"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A size that a policy computed before its stabilisation."""

    at: float
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMemory:
    """What is remembered of a Job."""

    recommendations: tuple[Recommendation, ...] = ()
    """Of the last stabilisation window, in the order in which HPA keeps them. Lost: as after a restart of Kubernetes'
    own controller, the present size counts as recommended, so that nothing shrinks for a window."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """The most of each resource that a worker has used, in thousandths. Lost: measured anew."""
    measured_since: float | None = None
    """Since when use is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What an adaptive policy is at present."""

    name: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Whether automatic resizes are stopped, and what led to it."""

    failures: tuple[float, ...] = ()
    """When resizes failed, of the last window."""
    open_until: float | None = None
    """None while resizes are allowed."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered of a queue."""

    jobs: Mapping[str, JobMemory] = field(default_factory=dict)
    """By key; of Jobs that are there."""
    mode: Mode | None = None
    breaker: Breaker = field(default_factory=Breaker)
