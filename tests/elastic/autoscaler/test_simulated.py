# SPDX-License-Identifier: Apache-2.0
"""The simulator decides as a fleet does: the same scenario, once simulated, once over objects in virtual time."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.simulator.scenario import Job, Node, Queue, Scenario
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.traced import Traced
from kfp_volcano.schemas.names import PROGRESS
from kfp_volcano.schemas.policy import QueuePolicy
from kfp_volcano.schemas.records import Progress, dump
from kfp_volcano.volcano.cluster.annotations import update_annotation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.simulator.outcome import JobOutcome, Outcome

_STEPS = 1_000_000
_POLICIES = {
    "threshold": {"threshold": {"up": {"idleShare": 0.25}}},
    "adaptive": {"adaptive": {"idleShare": 0.3, "tightShare": 0.1}},
}


def _scenario(seed: int) -> Scenario:
    """Elastic jobs and other teams' gangs on two nodes of four GPUs."""
    draw, at, jobs = random.Random(seed), 10.0, []
    for number in range(7):
        at += draw.randint(100, 500)
        elastic = draw.random() < 0.6
        least = draw.choice([1, 2]) if elastic else draw.choice([1, 2, 4])
        jobs.append(
            Job(
                name=f"{'elastic' if elastic else 'gang'}-{number}",
                submitted_at=at,
                work=Traced(duration_s=draw.randint(600, 3000) + 0.5, gpus=least),
                workers=least,
                min_workers=least,
                max_workers=draw.choice([4, 6, 8]) if elastic else least,
                queue="research",
                resize_s=1.0,
            )
        )
    nodes = tuple(Node(name=f"node-{number}", gpus=4) for number in range(2))
    return Scenario(name="both", nodes=nodes, jobs=tuple(jobs), queues=(Queue(name="research", capability=8),))


class _Asked:
    """Recorder of the resizes that a fleet asks for."""

    def __init__(self) -> None:
        self.all: list[tuple[str, int, int, str]] = []

    def decided(
        self,
        snapshot: Any,
        decisions: Sequence[Decision],
        requests: Mapping[str, str],
        *,
        lag_s: float,
    ) -> None:
        """What was decided and asked."""
        self.all += [
            (each.job.rpartition("/")[2], each.from_workers, each.to_workers, each.reason.value)
            for each in decisions
            if each.job in requests
        ]

    def resized(self, *_: Any) -> None:
        """Nothing is kept of it."""

    def reranked(self, *_: Any) -> None:
        """Nothing is kept of it."""

    def ended(self, *_: Any) -> None:
        """Nothing is kept of it."""


def _progress(job: JobOutcome, duration_s: float, own: int, at: float) -> tuple[float, float, int]:
    """What is done of it, seconds to its end, and its GPUs."""
    done, speed = 0.0, 1.0
    for span in job.spans:
        if span.begin < at:  # what begins now is the answer to what is reported now
            speed = span.gpus / own
            trained = max(0.0, min(span.end, at) - span.begin - span.lost_s)
            done += trained * speed / duration_s
    return done, max(0.0, duration_s * (1 - done) / speed), round(speed * own)


def _live(cluster: Any, policy: QueuePolicy, scenario: Scenario, outcome: Outcome) -> list[tuple[str, int, int, str]]:
    """The same history over objects: jobs come when they do, and go when they went."""
    asked, numbers, start = _Asked(), itertools.count(1), cluster.now
    decides = policy_for(policy)
    fleet = Fleet(
        cluster,
        namespace="ml",
        queues=lambda _: ["research"],
        policies=lambda _: decides,
        identity="sidecar",
        recorders=[asked],
        view=cluster.view(),
        clock=lambda: cluster.now,
        new_id=lambda: f"r{next(numbers)}",
    )
    stated = {job.name: job for job in scenario.jobs}
    found = {job.name: job for job in outcome.jobs}

    def report() -> None:
        for job in cluster.objects("Job"):
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            workers = cluster.running(name)
            if namespace != "ml" or not workers:
                continue
            of = stated[name]
            assert isinstance(of.work, Traced)
            done, left, _ = _progress(found[name], of.work.duration_s, of.work.gpus, cluster.now - start)
            progress = Progress(
                step=round(done * _STEPS),
                total_steps=_STEPS,
                samples=0,
                epoch=0,
                throughput=(1 - done) * _STEPS * 64 / left if left else 1e9,
                workers=workers,
                batch=64,
                lr=0.1,
                at=cluster.now,
            )
            update_annotation(cluster.store, "Job", name, namespace, PROGRESS, lambda _, said=progress: dump(said))

    cluster.trains = False  # it says what the simulation says of it
    happens = [(job.submitted_at, job.name, True) for job in scenario.jobs]
    happens += [(job.ended_at, job.name, False) for job in outcome.jobs if job.ended_at is not None]
    for at, name, comes in sorted(happens):
        while cluster.now < start + at:
            report()
            cluster.wait(0, min(fleet.turn(), start + at) - cluster.now)
        of = stated[name]
        if not comes:
            cluster.delete("Job", name, "ml" if of.elastic else "vision")
        elif of.elastic:
            cluster.submit(name, initial=of.min_workers, low=of.min_workers, high=of.max_workers)
        else:
            cluster.submit_gang(name, pods=of.workers)
    return asked.all


@pytest.mark.parametrize("name", _POLICIES)
@pytest.mark.parametrize("seed", [1, pytest.param(11, marks=pytest.mark.slow)])
def test_a_simulation_decides_what_a_fleet_decides(cluster: Any, seed: int, name: str) -> None:
    """Job by job the same sizes for the same reasons in the same order, from the first job that comes to the last."""
    policy = QueuePolicy(name=name, queues=("*",), policy=name, blocks=_POLICIES[name])
    scenario = _scenario(seed)
    outcome = simulate(scenario, policy)
    simulated = [(each.job, each.from_workers, each.to_workers, each.reason) for each in outcome.decided]
    assert simulated
    assert _live(cluster, policy, scenario, outcome) == simulated
