# SPDX-License-Identifier: Apache-2.0
"""Experiments: which Job is in which arm, and what the arms do with one room."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.arms import TURN_S, Arms, arm_of
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.policies.policy import Decision, Reason, hold
from kfp_volcano.elastic.policies.settings import Down, ThresholdSettings, Up
from kfp_volcano.elastic.policies.snapshot import ElasticJob, NodeState, PendingGang, QueueSnapshot
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.schemas.policy import Arm, QueuePolicy


def spec(*shares: float, name: str = "compare", policy: str = "greedy") -> QueuePolicy:
    """An experiment with arms a0, a1, …"""
    arms = tuple(Arm(name=f"a{index}", share=share, policy=policy) for index, share in enumerate(shares))
    return QueuePolicy(name=name, queues=("*",), arms=arms)


@dataclass
class Greedy:
    """Grows every Job to the most it may have, whether there is room or not."""

    name: str = "greedy"

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        return tuple(self._one(job) for job in sorted(snapshot.jobs, key=lambda job: job.key))

    def _one(self, job: ElasticJob) -> Decision:
        size = max(job.sizes)
        if size == job.workers:
            return hold(job, Reason.AT_MAXIMUM, "it has all", self.name)
        grown = {"from_workers": job.workers, "to_workers": size, "explanation": f"{job.arm} wants it"}
        return Decision(job=job.key, reason=Reason.QUEUE_IDLE, urgent=False, policy=self.name, **grown)


def job(name: str, workers: int = 1, **fields: Any) -> ElasticJob:
    """A Job of one to eight workers with a GPU each, on a node of its own."""
    size = {"running": workers, "min_workers": 1, "max_workers": 8, "sizes": tuple(range(1, 9)), "gpus_per_worker": 1}
    return ElasticJob(key=f"ml/{name}", workers=workers, nodes=(f"on-{name}",) * workers, **{**size, **fields})


def queue(jobs: list[ElasticJob], free: int, **fields: Any) -> QueueSnapshot:
    """A queue with these Jobs, and so many GPUs free on a node of their own."""
    held = sum(each.workers for each in jobs)
    nodes = {node: NodeState(free=0) for each in jobs for node in each.nodes}
    kept = {"limit_gpus": held + free, "allocated_gpus": held, "nodes": nodes, "crowd": {NodeState(free=free): 1}}
    return QueueSnapshot(queue="q", **{"at": 0.0, **kept, **fields}, jobs=tuple(jobs))


def test_jobs_are_split_by_the_shares_and_stay_where_they_are() -> None:
    """Whatever else is in the queue, and after every restart: these are the numbers that must never change."""
    found = Counter(arm_of(spec(3, 1), f"ml/job-{index}") for index in range(10_000))
    assert abs(found["a0"] - 7500) < 150
    assert [arm_of(spec(1, 1), f"ml/job-{index}") for index in range(8)] == [
        "a0",
        "a1",
        "a0",
        "a1",
        "a1",
        "a1",
        "a1",
        "a1",
    ]
    assert arm_of(QueuePolicy(name="p", queues=("q",)), "ml/job-1") == ""


def test_another_experiment_draws_anew() -> None:
    """Or whoever was lucky in one would be in all that follow."""
    names = [f"ml/job-{index}" for index in range(1000)]
    both = Counter((arm_of(spec(1, 1), name), arm_of(spec(1, 1, name="next"), name)) for name in names)
    assert all(200 < count < 300 for count in both.values())


def test_a_larger_share_takes_jobs_and_gives_none_away() -> None:
    """The first arm's; what was in it stays in it."""
    names = [f"ml/job-{index}" for index in range(1000)]
    assert all(arm_of(spec(2, 1), name) == "a0" for name in names if arm_of(spec(1, 1), name) == "a0")


def test_each_arm_decides_for_its_own_jobs() -> None:
    """And for no other's, whatever its policy says of them."""

    class Still(Greedy):
        def _one(self, job: ElasticJob) -> Decision:
            return hold(job, Reason.STEADY, "it stays", "still")

    jobs = [job(f"job-{index}") for index in range(12)]
    decisions = Arms(spec(1, 1), (Greedy(), Still())).decide(queue(jobs, free=1000))
    assert [each.job for each in decisions] == sorted(each.key for each in jobs)
    for each in decisions:
        assert each.resizes == (arm_of(spec(1, 1), each.job) == "a0")


@given(
    sizes=st.lists(st.integers(1, 7), min_size=2, max_size=8),
    free=st.integers(0, 20),
    shares=st.lists(st.floats(0.1, 5), min_size=2, max_size=4),
    at=st.floats(0, 1e9),
)
def test_the_arms_together_never_take_more_than_there_is(
    sizes: list[int], free: int, shares: list[float], at: float
) -> None:
    """However greedy each of them is."""
    seen = queue([job(f"job-{index}", size) for index, size in enumerate(sizes)], free=free, at=at)
    decisions = policy_for(spec(*shares), {"greedy": lambda _: Greedy()}).decide(seen)
    assert sum(each.to_workers - each.from_workers for each in decisions) <= free
    assert len(decisions) == len(sizes)


@pytest.mark.parametrize("at", [0.0, TURN_S])
def test_a_gang_is_served_once(at: float) -> None:
    """What one arm gives for it the next does not give again, whoever has the first choice."""
    jobs = [job(f"job-{index}", 4) for index in range(8)]
    gang = PendingGang(key="x/gang", pods=(1, 1, 1), since=0.0)
    decisions = policy_for(spec(1, 1, policy="threshold")).decide(queue(jobs, free=0, pending=(gang,), at=at))
    assert sum(each.from_workers - each.to_workers for each in decisions) == 3


def test_arms_shrink_together_by_no_more_than_one_policy_would() -> None:
    """What one arm's Jobs give to a queue that is too full is enough for the next arm's, too."""
    seen = queue([job(f"job-{index}", 4) for index in range(8)], free=0)
    careful = Threshold(settings=ThresholdSettings(down=Down(used_share=0.97)))
    alone = sum(each.from_workers - each.to_workers for each in careful.decide(seen))
    assert alone == sum(
        each.from_workers - each.to_workers for each in Arms(spec(1, 1), (careful, careful)).decide(seen)
    )


def test_each_arm_has_the_first_choice_in_its_turn() -> None:
    """Of the last free GPUs; so that the experiment does not favour the one that is written first."""
    seen = queue([job(f"job-{index}", 1) for index in range(8)], free=1)
    threshold = Threshold(settings=ThresholdSettings(up=Up(idle_share=0.0)))
    eager = Arms(spec(1, 1), (threshold, threshold))
    growing = []
    for turn in range(4):
        decisions = eager.decide(replace(seen, at=turn * TURN_S))
        growing.append({arm_of(spec(1, 1), each.job) for each in decisions if each.resizes})
    assert growing == [{"a0"}, {"a1"}, {"a0"}, {"a1"}]
