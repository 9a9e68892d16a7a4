# SPDX-License-Identifier: Apache-2.0
"""Laws of the engine for everything that Volcano schedules."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.elastic.simulator.scenario import Job, Node, Outage, Queue, Scenario
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.traced import Scaling, Traced
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.policy import QueuePolicy

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.outcome import JobOutcome, Outcome

_NODES = tuple(Node(name=f"node-{number}", gpus=4) for number in range(4))
_SCALING = Scaling(serial=0.02)


def _random(seed: int, jobs: int = 24) -> Scenario:
    draw, at, made = random.Random(seed), 0.0, []
    for number in range(jobs):
        at += draw.choice([0.0, draw.expovariate(1 / 120)])
        gpus = draw.choice([1, 1, 2, 4])
        elastic = draw.random() < 0.7
        made.append(
            Job(
                name=f"job-{number:02}",
                submitted_at=at,
                work=Traced(duration_s=draw.uniform(50, 2000), gpus=gpus, scaling=_SCALING),
                workers=gpus,
                min_workers=max(1, gpus // 2) if elastic else gpus,
                max_workers=3 * gpus if elastic else gpus,
                queue=draw.choice(["a", "b"]),
                start_s=20.0,
                resize_s=5.0,
            )
        )
    queues = (Queue(name="a", deserved=8), Queue(name="b", deserved=8))
    outages = (Outage(node="node-1", at=700.0, until=1500.0),)
    return Scenario(name="random", nodes=_NODES, jobs=tuple(made), queues=queues, outages=outages)


def _one(**changes: object) -> Job:
    job = Job(
        name="one",
        submitted_at=10.0,
        work=Traced(duration_s=1000.0, gpus=2),
        workers=2,
        min_workers=2,
        max_workers=8,
        start_s=30.0,
        resize_s=5.0,
    )
    return replace(job, **changes)


def _work_done(job: JobOutcome, of: Job) -> float:
    assert isinstance(of.work, Traced)
    own = _SCALING.speed(of.work.gpus)
    return sum((span.end - span.begin - span.lost_s) * _SCALING.speed(span.gpus) / own for span in job.spans)


def _most_held(outcome: Outcome, node: str) -> int:
    """GPUs of a node in use at once, at most: a job's GPUs are evenly spread in these scenarios' checks."""
    moments = sorted({span.begin for job in outcome.jobs for span in job.spans})
    return max(
        sum(
            span.gpus
            for job in outcome.jobs
            for span in job.spans
            if span.begin <= at < span.end and span.nodes == (node,)
        )
        for at in moments
    )


@pytest.mark.parametrize("policy", ["fifo", "drf", "priority", "greedy", "ray", "threshold", "adaptive"])
def test_every_job_does_all_its_work_on_gpus_that_nobody_else_has(policy: str) -> None:
    """Over resizes and outages: what its spans come to is its work, and no more GPUs are held than there are."""
    scenario = _random(3)
    outcome = simulate(scenario, policy)
    for job, of in zip(outcome.jobs, scenario.jobs, strict=True):
        assert isinstance(of.work, Traced)
        assert job.ended_at is not None
        assert _work_done(job, of) == pytest.approx(of.work.duration_s)
    moments = {span.begin for job in outcome.jobs for span in job.spans}
    for at in moments:
        held = [span for job in outcome.jobs for span in job.spans if span.begin <= at < span.end]
        assert sum(span.gpus for span in held) <= outcome.gpus
        assert at < 700.0 or at >= 1500.0 or all("node-1" not in span.nodes for span in held)
    assert all(_most_held(outcome, node.name) <= node.gpus for node in _NODES)


@pytest.mark.parametrize("policy", ["fifo", "adaptive"])
def test_the_order_of_jobs_in_the_input_changes_nothing(policy: str) -> None:
    """Also of those that come at the same time; and twice the same is the same."""
    scenario = _random(5)
    jobs = list(scenario.jobs)
    random.Random(1).shuffle(jobs)
    first = simulate(scenario, policy)
    again = simulate(replace(scenario, jobs=tuple(jobs)), policy)
    assert {job.name: job for job in first.jobs} == {job.name: job for job in again.jobs}
    assert first.decided == again.decided
    assert simulate(scenario, policy) == first


def test_a_job_alone_grows_pays_for_it_and_ends_when_that_says() -> None:
    """It starts at its minimum, grows at once, and ends to the second when start, resize and training are over."""
    outcome = simulate(Scenario(name="alone", nodes=_NODES, jobs=(_one(),)), "greedy")
    (decided,), (job,) = outcome.decided, outcome.jobs
    assert (decided.at, decided.from_workers, decided.to_workers, decided.reason) == (10.0, 2, 8, "QueueIdle")
    assert job.ended_at == pytest.approx(10 + 5 + 1000 / 4)


def test_a_gang_that_waits_gets_the_surplus_of_another_job() -> None:
    """The larger job lets go after its pause, and the gang starts then."""
    late = _one(name="late", submitted_at=500.0, min_workers=8, workers=8, max_workers=8)
    early = _one(name="early", work=Traced(duration_s=10_000.0, gpus=2), max_workers=16)
    outcome = simulate(Scenario(name="two", nodes=_NODES, jobs=(early, late)), "threshold")
    shrinks = [each for each in outcome.decided if each.to_workers < each.from_workers]
    assert [(each.at, each.job, each.to_workers, each.reason) for each in shrinks] == [
        (500.0, "early", 8, "GangPending")
    ]
    assert outcome.jobs[1].started_at == 505.0


def test_a_broken_gang_comes_back_as_a_whole() -> None:
    """What was done stays done; it waits for all its workers anew and pays for coming back."""
    job = _one(min_workers=4, workers=4, max_workers=4, work=Traced(duration_s=1000.0, gpus=4))
    outage = Outage(node="node-0", at=140.0, until=150.0)
    (found,) = simulate(Scenario(name="broken", nodes=_NODES, jobs=(job,), outages=(outage,)), "fifo").jobs
    assert found.restarts == 1
    assert found.ended_at == pytest.approx(140 + 60 + 900)


def test_a_job_that_runs_as_the_scenario_begins_goes_on_where_it_is() -> None:
    """It pays no start."""
    job = _one(submitted_at=-50.0, placed=("node-2", "node-3"), max_workers=2)
    (found,) = simulate(Scenario(name="placed", nodes=_NODES, jobs=(job,)), "fifo").jobs
    assert [span.nodes for span in found.spans] == [("node-2", "node-3")]
    assert found.ended_at == 1000.0


def test_under_ray_sizes_change_at_whole_minutes_only() -> None:
    """Its monitor looks every 60 seconds."""
    outcome = simulate(_random(7), "ray")
    assert outcome.decided
    assert all(each.at % 60 == 0 for each in outcome.decided)


def test_drf_gives_two_teams_equal_parts_where_first_come_would_not() -> None:
    """A team that comes late with one job is served before the other's many."""
    many = [_one(name=f"many-{number}", team="many", max_workers=2, workers=2) for number in range(30)]
    late = _one(name="late", team="late", submitted_at=11.0, max_workers=2, workers=2)
    scenario = Scenario(name="teams", nodes=_NODES, jobs=(*many, late))
    by_policy = {policy: simulate(scenario, policy).jobs[-1].started_at for policy in ("fifo", "drf")}
    assert by_policy["drf"] == 1040.0
    assert by_policy["fifo"] == 10 + 3 * 1030.0


def test_priority_goes_before_age() -> None:
    """A later job of higher priority is served before those that wait."""
    jobs = [_one(name=f"job-{number}", max_workers=2, priority=number, team="t") for number in range(20)]
    outcome = simulate(Scenario(name="priorities", nodes=_NODES, jobs=tuple(jobs)), "priority")
    later = [job.started_at for job in outcome.jobs[:12]]
    assert max(each for each in later if each is not None) > 10.0
    assert all(job.started_at == 10.0 for job in outcome.jobs[12:])


def test_a_policy_that_is_written_decides_with_its_settings() -> None:
    """A Policy document goes the way that it goes in production."""
    never = QueuePolicy(
        name="never", queues=("*",), policy="threshold", blocks={"threshold": {"up": {"idleShare": 2.0}}}
    )
    outcome = simulate(Scenario(name="alone", nodes=_NODES, jobs=(_one(),)), never)
    assert outcome.decided == ()
    assert outcome.policy == "never"


def test_a_policy_that_is_not_there_is_named() -> None:
    """With those that are."""
    with pytest.raises(SpecError, match="there is no policy 'magic'; known are fifo"):
        simulate(Scenario(name="none", nodes=_NODES, jobs=()), "magic")
