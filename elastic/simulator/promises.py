# SPDX-License-Identifier: Apache-2.0
"""What a policy promises, and where an outcome breaks it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.figures import rhos

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.elastic.simulator.outcome import JobOutcome, Outcome
    from kfp_volcano.elastic.simulator.scenario import Scenario

__all__ = ["Breach", "Promises", "breaches"]

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What has to hold for every job; None: nothing is promised."""

    share_wait_s: float | None = 600.0
    """A gang does not wait longer than this while its queue, with it, would be within its share: what it deserves, may
    have at most where that is not said, or else the whole cluster."""
    rho: float | None = None
    """Finish-time fairness: completion time over that on a fair share of the cluster (Themis, NSDI 2020)."""
    wait_s: float | None = 24 * _HOUR
    """No job waits longer for its first GPUs: what does is starved."""
    resizes_per_hour: int | None = 12
    """A job is not resized more often within any hour: that is a storm."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A promise that was broken."""

    promise: str
    """The field of `Promises`."""
    job: str
    at: float
    """When it was, from the scenario's beginning."""
    text: str
    """In words."""


def breaches(scenario: Scenario, outcome: Outcome, promises: Promises) -> tuple[Breach, ...]:
    """All that is broken, by time."""
    found: list[Breach] = []
    if promises.wait_s is not None:
        found += _starved(outcome, promises.wait_s)
    if promises.resizes_per_hour is not None:
        found += _storms(outcome, promises.resizes_per_hour)
    if promises.rho is not None:
        found += _unfair(outcome, promises.rho)
    if promises.share_wait_s is not None:
        found += _kept_out(scenario, outcome, promises.share_wait_s)
    return tuple(sorted(found, key=lambda breach: (breach.at, breach.job, breach.promise)))


def _waited_until(job: JobOutcome, outcome: Outcome) -> float:
    return outcome.ended_at if job.started_at is None else job.started_at


def _starved(outcome: Outcome, most_s: float) -> Iterator[Breach]:
    for job in outcome.jobs:
        waited = _waited_until(job, outcome) - job.submitted_at
        if waited > most_s:
            never = ", and never started" if job.started_at is None else ""
            text = f"{job.name} waited {_time(waited)}{never}; no more than {_time(most_s)} was promised"
            yield Breach("wait_s", job.name, job.submitted_at + most_s, text)


def _storms(outcome: Outcome, most: int) -> Iterator[Breach]:
    for job in outcome.jobs:
        changes = [
            later.begin
            for earlier, later in pairwise(job.spans)
            if earlier.gpus and later.gpus and earlier.gpus != later.gpus
        ]
        for first, at in zip(changes, changes[most:], strict=False):
            if at - first <= _HOUR:
                text = (
                    f"{job.name} was resized {most + 1} times within {_time(at - first)}; {most} an hour were promised"
                )
                yield Breach("resizes_per_hour", job.name, at, text)
                break


def _unfair(outcome: Outcome, most: float) -> Iterator[Breach]:
    for job, rho in zip(outcome.jobs, rhos(outcome), strict=True):
        if rho is not None and rho > most:
            text = f"{job.name} took {rho:.2f} times as long as on its fair share; {most:g} was promised"
            yield Breach("rho", job.name, job.ended_at or outcome.ended_at, text)


def _kept_out(scenario: Scenario, outcome: Outcome, most_s: float) -> Iterator[Breach]:
    """Gangs that waited though their queue, with them, would have been within its share."""
    total = scenario.gpus
    shares = {queue.name: _least(queue.deserved, queue.capability, total) for queue in scenario.queues}
    gangs = {job.name: job.min_workers * job.gpus_per_worker for job in scenario.jobs}
    by_queue: dict[str, list[JobOutcome]] = {}
    for job in outcome.jobs:
        by_queue.setdefault(job.queue, []).append(job)
    for queue, jobs in by_queue.items():
        steps = _held(jobs)
        for job in jobs:
            room = shares.get(queue, total) - gangs.get(job.name, job.asked_gpus)
            at = _within(steps, job.submitted_at, _waited_until(job, outcome), room, most_s)
            if at is not None:
                text = (
                    f"{job.name} waited more than {_time(most_s)} while {queue}, with it, would have been within its "
                    f"share of {shares.get(queue, total)} GPUs"
                )
                yield Breach("share_wait_s", job.name, at, text)


def _least(deserved: int | None, capability: int | None, total: int) -> int:
    return min(total if deserved is None else deserved, total if capability is None else capability, total)


def _held(jobs: Sequence[JobOutcome]) -> list[tuple[float, int]]:
    """(from when, GPUs held) of a queue's jobs together, by time."""
    changes: dict[float, int] = {}
    for job in jobs:
        for span in job.spans:
            changes[span.begin] = changes.get(span.begin, 0) + span.gpus
            changes[span.end] = changes.get(span.end, 0) - span.gpus
    held, steps = 0, [(float("-inf"), 0)]
    for at in sorted(changes):
        held += changes[at]
        steps.append((at, held))
    return steps


def _within(steps: Sequence[tuple[float, int]], begin: float, end: float, room: int, most_s: float) -> float | None:
    """When a wait had lasted too long while the queue held no more than `room`; None where it never had."""
    if room < 0 or end - begin <= most_s:
        return None
    waited = 0.0
    for index, (at, held) in enumerate(steps):
        until = steps[index + 1][0] if index + 1 < len(steps) else float("inf")
        if held > room or until <= begin or at >= end:
            continue
        first = max(at, begin)
        lasted = min(until, end) - first
        if waited + lasted > most_s:
            return first + most_s - waited
        waited += lasted
    return None


def _time(seconds: float) -> str:
    for unit, size in (("h", _HOUR), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
