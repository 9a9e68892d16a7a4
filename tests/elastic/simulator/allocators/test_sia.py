# SPDX-License-Identifier: Apache-2.0
"""What holds of the integer programme: nobody beyond the cluster or the classes it may have, and none without need."""

from __future__ import annotations

from kfp_volcano.elastic.simulator.outcome import Outcome
from kfp_volcano.elastic.simulator.scenario import Job, Node, Scenario
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.traced import Traced


def _job(name: str, *, classes: tuple[str, ...] = (), at: float = 0.0) -> Job:
    work = Traced(gpus=1, duration_s=1800.0)
    return Job(
        name=name,
        submitted_at=at,
        work=work,
        workers=1,
        min_workers=1,
        max_workers=8,
        gpu_classes=classes,
        resize_s=30.0,
    )


def _simulated(*jobs: Job) -> Outcome:
    nodes = (Node(name="a", gpus=4, gpu_class="old"), Node(name="b", gpus=4, gpu_class="new"))
    return simulate(Scenario(name="two classes", nodes=nodes, jobs=jobs), "sia")


def test_jobs_get_gpus_of_the_classes_that_they_may_have_and_no_more_than_there_are() -> None:
    """At no time more GPUs of a node are held than it has, and none of a class that a job may not have."""
    outcome = _simulated(*(_job(f"job-{n}", classes=("new",) if n % 2 else ()) for n in range(7)))
    assert all(job.ended_at is not None for job in outcome.jobs)
    for number, job in enumerate(outcome.jobs):
        assert all(span.nodes == ("b",) for span in job.spans if number % 2 and span.gpus)
    moments = {span.begin for job in outcome.jobs for span in job.spans}
    for at in moments:
        held = [span.gpus for job in outcome.jobs for span in job.spans if span.begin <= at < span.end]
        assert sum(held) <= 8


def test_a_job_alone_grows() -> None:
    """It ends sooner than on the one GPU that it asks for."""
    (alone,) = _simulated(_job("alone")).jobs
    assert max(span.gpus for span in alone.spans) > 1
    assert alone.jct is not None
    assert alone.jct < 1800.0
