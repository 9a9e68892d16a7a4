# SPDX-License-Identifier: Apache-2.0
"""Outcomes and scenarios made by hand, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from kfp_volcano.elastic.simulator.outcome import Decided, JobOutcome, Outcome, Span
from kfp_volcano.elastic.simulator.scenario import Job, Node, Scenario
from kfp_volcano.elastic.simulator.traced import Traced

__all__ = ["outcome", "outcomes", "scenario"]


def job(index: int, wait: float, *, team: str = "vision", name: str = "") -> JobOutcome:
    """A job of 100 s on two GPUs that waits so long, and has four GPUs in its second half."""
    begin = 30.0 * index + wait
    spans = (Span(begin=begin, end=begin + 50, gpus=2), Span(begin=begin + 50, end=begin + 80, gpus=4, lost_s=5.0))
    return JobOutcome(
        name=name or f"job-{index}", team=team, queue="research", submitted_at=30.0 * index, started_at=begin,
        ended_at=begin + 80, spans=spans, asked_gpus=2, alone_s=100.0, resizes=1,
    )  # fmt: skip


def outcome(policy: str, wait: float, count: int = 4, **given: Any) -> Outcome:
    """An outcome of so many such jobs, of two teams in turn."""
    jobs = tuple(job(index, wait * index, team=("vision", "speech")[index % 2]) for index in range(count))
    decided = tuple(
        Decided(
            at=(each.started_at or 0.0) + 50, job=each.name, from_workers=2, to_workers=4, reason="QueueIdle",
            explanation="4 of 8 GPUs are idle",
        )
        for each in jobs
    )  # fmt: skip
    whole: dict[str, Any] = {"decided": decided, **given}
    ended_at = max(each.ended_at or 0.0 for each in jobs)
    return Outcome(scenario="small", policy=policy, gpus=8, jobs=jobs, ended_at=ended_at, events=9, **whole)


def outcomes(count: int = 4) -> dict[str, Outcome]:
    """Two policies, of which the second lets jobs wait less."""
    return {"fifo": outcome("fifo", 20.0, count), "adaptive": outcome("adaptive", 5.0, count)}


def scenario(count: int = 4, *, gap_s: float = 30.0) -> Scenario:
    """The scenario that these could have come of."""
    jobs = tuple(
        Job(
            name=f"job-{index}", submitted_at=gap_s * index, work=Traced(duration_s=100.0, gpus=2), workers=2,
            min_workers=1, max_workers=4, team=("vision", "speech")[index % 2],
        )
        for index in range(count)
    )  # fmt: skip
    nodes = (Node(name="a", gpus=4), Node(name="b", gpus=4))
    return Scenario(name="small", nodes=nodes, jobs=jobs, source="small.csv", notes=("the cluster is made up",))
