# SPDX-License-Identifier: Apache-2.0
"""Laws of the engine for schedulers that place all jobs themselves at intervals."""

from __future__ import annotations

import pytest

from kfp_volcano.elastic.simulator.scenario import Job, Node, Outage, Scenario
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.traced import Traced


def _job(name: str, at: float, gpus: int, duration_s: float) -> Job:
    return Job(
        name=name,
        submitted_at=at,
        work=Traced(duration_s=duration_s, gpus=gpus),
        workers=gpus,
        min_workers=gpus,
        max_workers=gpus,
        start_s=30.0,
        restart_s=45.0,
    )


_NODES = tuple(Node(name=f"node-{number}", gpus=4) for number in range(2))


def test_a_job_starts_at_the_first_look_after_it_came_and_ends_to_the_second() -> None:
    """It pays its start, trains for its duration, and ends in the middle of an interval."""
    (job,) = simulate(Scenario(name="one", nodes=_NODES, jobs=(_job("a", 61.0, 2, 100.0),)), "tiresias").jobs
    assert (job.started_at, job.ended_at, job.lost_gpu_s) == (120.0, 250.0, 60.0)


def test_a_job_whose_node_goes_comes_back_elsewhere_for_what_that_costs() -> None:
    """The work done stays done; what it pays is the time to come back, and the wait for the next look."""
    jobs = (_job("a", 0.0, 4, 1000.0),)
    outage = Outage(node="node-0", at=200.0, until=5000.0)
    (job,) = simulate(Scenario(name="outage", nodes=_NODES, jobs=jobs, outages=(outage,)), "tiresias").jobs
    assert [span.nodes for span in job.spans] == [("node-0",), ("node-1",)]
    assert (job.restarts, job.resizes) == (1, 0)
    assert job.ended_at == pytest.approx(60 + 30 + 1000 + 40 + 45)


def test_a_job_that_can_never_run_ends_the_simulation_without_it() -> None:
    """Where nothing runs and nothing comes, nobody waits for ever."""
    outcome = simulate(Scenario(name="large", nodes=_NODES, jobs=(_job("a", 0.0, 9, 10.0),)), "tiresias")
    assert outcome.jobs[0].started_at is None
