# SPDX-License-Identifier: Apache-2.0
"""What is remembered from one turn of a queue to the next: plain values, passed in with the snapshot.

Little, because a cluster's objects hold most of it (requests, outcomes, holds). What is only here may be lost when an
autoscaler dies; each entry says what that costs. `remember` is the one function that makes the next memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - types of fields are read when logs are
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.requests import peaks
from kfp_volcano.elastic.policies.settings import GuardSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot

__all__ = ["Breaker", "JobMemory", "Memory", "Mode", "Recommendation", "compact", "next_breaker", "noted", "remember"]

_DEFAULTS = GuardSettings()


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
    contrary_since: float | None = None
    """Since when what is seen speaks for another mode. Lost, like the mode: it is careful, and waits anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Whether automatic resizes are stopped, and what led to it."""

    failures: tuple[float, ...] = ()
    """When resizes failed, of the last window. Lost: read again from the Jobs that are still there."""
    open_until: float | None = None
    """None while resizes are allowed."""
    why: str = ""
    since: float = 0.0
    """When it was last closed: what failed before does not count any more. Lost: it counts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered of a queue."""

    jobs: Mapping[str, JobMemory] = field(default_factory=dict)
    """By key; of Jobs that are there."""
    mode: Mode | None = None
    breaker: Breaker = field(default_factory=Breaker)


def remember(
    snapshot: QueueSnapshot,
    decisions: Sequence[Decision],
    *,
    settings: GuardSettings = _DEFAULTS,
    mode: Mode | None = None,
) -> Memory:
    """What the next snapshot of a queue is to hold of this one.

    Args:
        snapshot: What was decided on, with what was remembered before.
        decisions: What was decided.
        settings: Of the guards: how long failures count.
        mode: What the policy is at this snapshot, where it is one of several things.
    """
    decided = {decision.job: decision for decision in decisions}
    jobs = {}
    for job in sorted(snapshot.jobs, key=lambda job: job.key):
        memory = snapshot.memory.jobs.get(job.key, JobMemory())
        used = peaks(job, memory.peaks)
        if used:
            since = snapshot.at if memory.measured_since is None else memory.measured_since
            memory = replace(memory, peaks=used, measured_since=since)
        decision = decided.get(job.key)
        if decision is not None and decision.recommended is not None:
            kept = noted(memory.recommendations, job.workers, decision.recommended, snapshot.at)
            memory = replace(memory, recommendations=kept)
        if memory != JobMemory():
            jobs[job.key] = memory
    return Memory(jobs=jobs, mode=mode, breaker=next_breaker(snapshot, settings))


def next_breaker(snapshot: QueueSnapshot, settings: GuardSettings = _DEFAULTS) -> Breaker:
    """Whether automatic resizes are stopped at this snapshot: pure, so that decisions need not wait for a memory.

    It opens when at least `breaker_failures` resizes have failed within `breaker_window_s`, and more than have
    succeeded. It closes after `breaker_open_s`, or when a resize succeeds meanwhile; what failed before is forgiven
    then. A failure is counted once, however often it is seen: those of Jobs that are there are read from their records,
    and those of Jobs that have gone are remembered.
    """
    before = snapshot.memory.breaker
    done = [(resize.at, resize.failed) for job in snapshot.jobs for resize in job.resizes]
    if before.open_until is not None:
        opened = before.open_until - settings.breaker_open_s
        succeeded = [at for at, failed in done if not failed and at > opened]
        if before.open_until > snapshot.at and not succeeded:
            return before
        before = Breaker(since=min([before.open_until, *succeeded]))
    begin = max(before.since, snapshot.at - settings.breaker_window_s)
    seen = Counter(at for at, failed in done if failed and at > begin)
    failures = sorted((seen | Counter(at for at in before.failures if at > begin)).elements())
    successes = sum(1 for at, failed in done if not failed and at > begin)
    if len(failures) < settings.breaker_failures or len(failures) <= successes:
        return Breaker(failures=tuple(failures), since=before.since)
    return Breaker(
        failures=tuple(failures),
        open_until=snapshot.at + settings.breaker_open_s,
        why=f"{len(failures)} resizes failed within {settings.breaker_window_s:.0f} s",
        since=before.since,
    )


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
