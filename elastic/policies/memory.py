"""What is remembered from one turn of a queue to the next: plain values, passed in with the snapshot.

Little, because a cluster's objects hold most of it (requests, outcomes, holds). What is only here may be lost when an
autoscaler dies; each entry says what that costs. `remember` is the one function that makes the next memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - types of fields are read when logs are
from dataclasses import dataclass, field

__all__ = ["Breaker", "JobMemory", "Memory", "Mode", "Recommendation", "compact", "noted"]


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


def noted(log: tuple[Recommendation, ...], present: int, wanted: int, at: float) -> tuple[Recommendation, ...]:
    """The recommendations of a Job once `wanted` was computed at its `present` size.

    The first time its size counts as recommended too. What is older than any window of HPA's is dropped.
    """
    kept = [each for each in log or (Recommendation(at, present),) if each.at >= at - _LONGEST_WINDOW_S]
    return compact((*kept, Recommendation(at, wanted)))


def compact(log: tuple[Recommendation, ...]) -> tuple[Recommendation, ...]:
    """The log without what no window will ever ask for: neither lowest nor highest of all that is as new, or newer.

    Whichever windows it is read with, at any later time, the lowest and the highest in them stay the same. A turn of
    a busy queue can come every few milliseconds; kept whole, a window of an hour would hold a million.
    """
    kept: list[Recommendation] = []
    low, high = math.inf, -math.inf
    for each in sorted(log, key=lambda each: each.at, reverse=True):
        if each.workers < low or each.workers > high:
            kept.append(each)
            low, high = min(low, each.workers), max(high, each.workers)
    return tuple(reversed(kept))


_LONGEST_WINDOW_S = 3600.0
"""What `autoscaling/v2` allows a stabilisation window to be at most."""
