# SPDX-License-Identifier: Apache-2.0
"""The policy `hpa` on a queue: what Jobs follow, what bounds them, what holds them back, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from books import name, states
from kfp_volcano.elastic.policies.guards.guarded import Guarded
from kfp_volcano.elastic.policies.hpa.policy import Hpa
from kfp_volcano.elastic.policies.memory import JobMemory, Memory, Recommendation
from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.elastic.policies.snapshot import (
    ElasticJob,
    PendingGang,
    QueueSnapshot,
    Resized,
    Sample,
    WorkerPod,
)
from kfp_volcano.schemas.hpa_validation import hpa_block

NOW = 10_000.0
ANY: dict[str, Any] = {"scaleUp": {"policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}]}}
"""A behavior that limits no growth."""
AT_ONCE = {**ANY, "scaleDown": {"stabilizationWindowSeconds": 0}}
"""Nor any change at all."""


def queue_metric(name: str, value: Any) -> dict[str, Any]:
    """A metric of the queue with a target."""
    described = {"kind": "Queue", "name": "research"}
    return {
        "type": "Object",
        "object": {"describedObject": described, "metric": {"name": name}, "target": {"type": "Value", "value": value}},
    }


def pods_metric(name: str, average: Any) -> dict[str, Any]:
    """A metric of each worker with a target."""
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def hpa(*metrics: dict[str, Any], behavior: Any = None, **more: Any) -> Hpa:
    """The policy by these metrics."""
    return Hpa(spec=hpa_block({"metrics": list(metrics), "behavior": behavior, **more}))


def job(key: str = "ml/a", workers: int = 2, *, node: int = 0, **more: Any) -> ElasticJob:
    """A Job of 2 to 8 workers with a GPU each, all on one node."""
    plain = ElasticJob(
        key=key,
        workers=workers,
        running=workers,
        min_workers=2,
        max_workers=8,
        sizes=(2, 4, 6, 8),
        gpus_per_worker=1,
        nodes=(name(node),) * workers,
    )
    return replace(plain, **more)


def queue(
    *jobs: ElasticJob, free: tuple[int, ...] = (8, 8), limit: int = 20, others: int = 0, **more: Any
) -> QueueSnapshot:
    """A queue with these Jobs, so much free on its nodes, and GPUs of other pods."""
    held = sum(each.workers * each.gpus_per_worker for each in jobs)
    return QueueSnapshot(
        queue="research",
        at=NOW,
        limit_gpus=limit,
        allocated_gpus=held + others,
        nodes=states(list(free)),
        jobs=jobs,
        **more,
    )


def remembering(snapshot: QueueSnapshot, **recommended: int) -> QueueSnapshot:
    """The snapshot with one old recommendation of each Job, by its name."""
    at = snapshot.at - 299
    jobs = {f"ml/{key}": JobMemory(recommendations=(Recommendation(at, size),)) for key, size in recommended.items()}
    return replace(snapshot, memory=Memory(jobs=jobs))


def only(policy: Hpa, snapshot: QueueSnapshot) -> Decision:
    """The one decision there is."""
    (decision,) = policy.decide(snapshot)
    return decision


def busy(*shares: float, name: str = "gpu-utilization", **more: Any) -> tuple[WorkerPod, ...]:
    """Workers that run, each with a measured value."""
    return tuple(
        WorkerPod(
            name=f"w{index}", phase="Running", ready=True, started_at=0.0, samples={name: Sample(NOW, share)}, **more
        )
        for index, share in enumerate(shares)
    )


def test_hpa_a_job_grows_until_the_share_in_use_is_reached() -> None:
    """Rounded down to a size: 13 of 18 GPUs would be one too many for the next."""
    decision = only(hpa(queue_metric("gpu-share-in-use", "900m"), behavior=ANY), queue(job(), others=11))
    assert (decision.to_workers, decision.reason, decision.urgent) == (6, Reason.QUEUE_IDLE, False)
    assert decision.explanation == (
        "13 of the queue's 20 GPUs are in use, and 90 % are to be: a grows from 2 to 6 workers"
    )
    assert decision.recommended == 6
    assert decision.numbers == {"gpu-share-in-use": 13, "target": 18.0}


@pytest.mark.parametrize(("metric", "target"), [("gpus-in-use", 18), ("gpus-idle", 2), ("gpu-share-in-use", "0.9")])
def test_hpa_three_ways_to_say_the_same_of_a_queue(metric: str, target: Any) -> None:
    """A share, a number of GPUs in use, a number of them idle."""
    assert only(hpa(queue_metric(metric, target), behavior=ANY), queue(job(), others=11)).to_workers == 6


def test_hpa_a_job_shrinks_when_more_is_in_use_than_is_to_be() -> None:
    """By as little as one of its sizes allows; it is not urgent, and its window counts."""
    policy = hpa(queue_metric("gpu-share-in-use", "0.5"), behavior=AT_ONCE)
    decision = only(policy, queue(job(workers=8), others=5))
    assert (decision.to_workers, decision.reason, decision.urgent) == (4, Reason.QUEUE_TIGHT, False)


def test_hpa_a_job_does_not_grow_beyond_what_is_physically_free() -> None:
    """Whatever the queue may use: two workers fit on the nodes, or none."""
    policy = hpa(queue_metric("gpu-share-in-use", "1"), behavior=ANY)
    assert only(policy, queue(job(), free=(1, 1))).to_workers == 4
    none = only(policy, queue(job(), free=(1, 0)))
    assert (none.to_workers, none.reason) == (2, Reason.NO_ROOM)
    large = job(gpus_per_worker=2)
    assert only(policy, queue(large, free=(1, 1, 1, 1))).reason is Reason.NO_ROOM


def test_hpa_jobs_share_what_is_there_and_none_is_handed_all_of_it() -> None:
    """The smallest first, size by size, within one priority; a higher priority before that."""
    policy = hpa(queue_metric("gpus-idle", 0.001), behavior=ANY)
    snapshot = queue(job("ml/a", 4), job("ml/b", 2), job("ml/c", 2, priority=5), limit=18)
    assert {each.job: each.to_workers for each in policy.decide(snapshot)} == {"ml/a": 4, "ml/b": 4, "ml/c": 8}
    level = queue(job("ml/a", 4), job("ml/b", 2), job("ml/c", 2), limit=18)
    assert {each.job: each.to_workers for each in policy.decide(level)} == {"ml/a": 6, "ml/b": 6, "ml/c": 4}


def test_hpa_a_waiting_gang_is_served_at_once() -> None:
    """Past windows and rates, urgently, and by no more than it needs."""
    never = {"scaleDown": {"selectPolicy": "Disabled"}}
    gang = PendingGang(key="ml/gang", pods=(2,), since=NOW - 5)
    policy = hpa(queue_metric("gpu-share-in-use", "1"), behavior=never)
    decision = only(policy, queue(job(workers=8), limit=8, free=(0,), pending=(gang,)))
    assert (decision.to_workers, decision.reason, decision.urgent) == (6, Reason.GANG_PENDING, True)
    assert decision.recommended == 6


def test_hpa_no_job_grows_into_what_a_gang_waits_for() -> None:
    """Even where there is nothing to give."""
    gang = PendingGang(key="ml/gang", pods=(8,), since=NOW - 5)
    policy = hpa(queue_metric("gpu-share-in-use", "1"), behavior=ANY)
    decision = only(policy, queue(job(), free=(8,), limit=11, pending=(gang,)))
    assert (decision.to_workers, decision.reason) == (2, Reason.GANG_FIRST)


@pytest.mark.parametrize("metric", ["pending-gangs", "pending-gpus"])
def test_hpa_growth_can_be_made_to_wait_for_gangs_that_nothing_serves(metric: str) -> None:
    """A target for what waits is a brake: beyond it no Job grows, and none gives in vain."""
    gang = PendingGang(key="ml/gang", pods=(16, 16), since=NOW - 5)
    share = queue_metric("gpu-share-in-use", "1")
    snapshot = queue(job(workers=4), pending=(gang,))
    assert only(hpa(share, behavior=ANY), snapshot).to_workers == 8
    decision = only(hpa(share, queue_metric(metric, "500m"), behavior=ANY), snapshot)
    assert (decision.to_workers, decision.reason) == (4, Reason.STEADY)


def test_hpa_workers_metrics_are_kubernetes_own() -> None:
    """Ceiling of ratio times workers, then the next size there is; and never past the queue's bound."""
    policy = hpa(pods_metric("gpu-utilization", "500m"), behavior=ANY)
    decision = only(policy, queue(job(pods=busy(0.9, 0.7))))
    assert (decision.to_workers, decision.reason) == (4, Reason.ABOVE_TARGET)
    assert decision.explanation == (
        "pods metric gpu-utilization is 0.8, 160 % of its target: a grows from 2 to 4 workers"
    )
    bounded = hpa(pods_metric("gpu-utilization", "100m"), queue_metric("gpus-in-use", 6), behavior=ANY)
    assert only(bounded, queue(job(pods=busy(0.9, 0.9)))).to_workers == 6
    idle = hpa(pods_metric("gpu-utilization", "500m"), behavior=AT_ONCE)
    down = only(idle, queue(job(workers=8, pods=busy(*[0.2] * 8))))
    assert (down.to_workers, down.reason) == (4, Reason.BELOW_TARGET)


def test_hpa_resources_are_measured_against_what_workers_ask_for() -> None:
    """CPU, and of a container too: a worker has one."""
    target = {"type": "Utilization", "averageUtilization": 50}
    pods = busy(1.6, 1.6, name="cpu", requests={"cpu": 2000}, ready_since=0.0)
    for metric in (
        {"type": "Resource", "resource": {"name": "cpu", "target": target}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "train", "target": target}},
    ):
        decision = only(hpa(metric, behavior=ANY), queue(job(pods=pods)))
        assert decision.to_workers == 4
        assert "is 80 %, 160 % of its target" in decision.explanation


def test_hpa_metrics_from_outside_go_by_their_names() -> None:
    """What is not known is no reason to shrink."""
    target = {"type": "AverageValue", "averageValue": 100}
    policy = hpa({"type": "External", "external": {"metric": {"name": "backlog"}, "target": target}}, behavior=AT_ONCE)
    assert only(policy, queue(job(), metrics={"backlog": 550.0})).to_workers == 6
    missing = only(policy, queue(job(workers=8)))
    assert (missing.to_workers, missing.reason) == (8, Reason.METRICS_MISSING)
    assert "failed to get backlog external metric value" in missing.explanation


def test_hpa_metrics_that_call_for_more_than_there_is_say_so() -> None:
    """At the maximum, at the minimum, and within the tolerance."""
    policy = hpa(pods_metric("gpu-utilization", "500m"), behavior=AT_ONCE)
    assert only(policy, queue(job(workers=8, pods=busy(*[0.9] * 8)))).reason is Reason.AT_MAXIMUM
    assert only(policy, queue(job(pods=busy(0.1, 0.1)))).reason is Reason.AT_MINIMUM
    near = only(policy, queue(job(pods=busy(0.52, 0.52))))
    assert (near.reason, near.to_workers) == (Reason.WITHIN_TOLERANCE, 2)
    assert only(policy, queue(job(pods=busy(0.5, 0.5)))).reason is Reason.STEADY


def test_hpa_a_queue_near_its_target_is_left_alone() -> None:
    """By a tolerance of its own each way."""
    share = queue_metric("gpu-share-in-use", "0.5")
    snapshot = queue(job(workers=6), others=4, limit=21)
    assert only(hpa(share, behavior=AT_ONCE), snapshot).reason is Reason.WITHIN_TOLERANCE
    tight = {
        "scaleUp": {**ANY["scaleUp"], "tolerance": 0},
        "scaleDown": {"stabilizationWindowSeconds": 0, "tolerance": 0},
    }
    assert only(hpa(share, behavior=tight), queue(job(workers=6), others=1)).to_workers == 8
    assert only(hpa(share, behavior=tight), queue(job(workers=8), others=3)).to_workers == 6


def test_hpa_a_window_holds_a_job_back_and_says_by_what() -> None:
    """What was recommended within it, how long ago."""
    policy = hpa(queue_metric("gpu-share-in-use", "0.3"), behavior={})
    held = only(policy, remembering(queue(job(workers=8)), a=8))
    assert (held.to_workers, held.reason, held.recommended) == (8, Reason.STABILISING, 6)
    assert held.explanation == (
        "8 of the queue's 20 GPUs are in use, and 30 % are to be, which calls for 6 workers, and 8 were 299 s ago; "
        "the highest of the last 300 s counts: a stays at 8 workers"
    )
    after = remembering(replace(queue(job(workers=8)), at=NOW), a=6)
    assert only(policy, after).to_workers == 6


def test_hpa_a_job_that_nothing_is_remembered_of_does_not_shrink_for_a_window() -> None:
    """As Kubernetes' controller when it starts."""
    policy = hpa(queue_metric("gpu-share-in-use", "0.3"), behavior={})
    assert only(policy, queue(job(workers=8))).reason is Reason.STABILISING


def test_hpa_rates_count_what_a_job_changed_by_itself_or_by_others() -> None:
    """Within the policies' periods, from its own record; what came to nothing is no change."""
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}
    policy = hpa(queue_metric("gpu-share-in-use", "1"), behavior=slow)
    before = Resized(at=NOW - 30, from_workers=2, to_workers=4)
    limited = only(policy, queue(job(workers=4, resizes=(before,))))
    assert (limited.to_workers, limited.reason) == (4, Reason.RATE_LIMITED)
    assert only(policy, queue(job(workers=4, resizes=(replace(before, at=NOW - 60),)))).to_workers == 6
    nothing = Resized(at=NOW - 30, from_workers=4, to_workers=4, failed=True)
    assert only(policy, queue(job(workers=4, resizes=(nothing,)))).to_workers == 6
    forbidden = hpa(queue_metric("gpu-share-in-use", "1"), behavior={"scaleUp": {"selectPolicy": "Disabled"}})
    assert only(forbidden, queue(job())).reason is Reason.RATE_LIMITED


def test_hpa_a_rate_below_one_size_allows_one_size_a_period() -> None:
    """Or it would never change, as with a percentage that is rounded up."""
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    policy = hpa(queue_metric("gpu-share-in-use", "1"), behavior=slow)
    assert only(policy, queue(job())).to_workers == 4
    moved = Resized(at=NOW - 30, from_workers=2, to_workers=4)
    assert only(policy, queue(job(workers=4, resizes=(moved,)))).reason is Reason.RATE_LIMITED


def test_hpa_the_specs_range_holds_beside_the_jobs() -> None:
    """The narrower counts, and a Job out of it goes there at once."""
    policy = hpa(queue_metric("gpu-share-in-use", "1"), behavior=ANY, minReplicas=3, maxReplicas=6)
    assert only(policy, queue(job(workers=4))).to_workers == 6
    assert only(policy, queue(job(workers=8))).to_workers == 6
    small = only(policy, queue(job(workers=2), free=(2,)))
    assert (small.to_workers, small.reason) == (4, Reason.OUT_OF_RANGE)


def test_hpa_without_settings_goes_for_nine_tenths_of_the_queue() -> None:
    """With the rates of the time before behaviours: double, or four."""
    decision = only(Hpa(), queue(job()))
    assert decision.to_workers == 4
    assert decision.recommended == 8


def test_hpa_a_queue_that_may_not_borrow_is_not_taken_for_full() -> None:
    """What a gang within its share waits for in vain is withheld; it is not in use, so that nobody shrinks for it."""
    gang = PendingGang(key="ml/gang", pods=(16,), since=NOW - 5)
    snapshot = queue(job(workers=4), deserved_gpus=20, limit=40, free=(8, 8), pending=(gang,))
    decision = only(hpa(queue_metric("gpu-share-in-use", "0.5"), behavior=AT_ONCE), snapshot)
    assert decision.numbers["gpu-share-in-use"] == 4
    assert decision.to_workers >= 4


def test_hpa_within_its_guards_a_jobs_own_cooldown_holds() -> None:
    """And what was recommended is remembered all the same."""
    policy = Guarded(hpa(queue_metric("gpu-share-in-use", "1"), behavior=ANY))
    snapshot = queue(job(last_resize_at=NOW - 10))
    decisions = policy.decide(snapshot)
    assert decisions[0].reason is Reason.COOLDOWN
    assert "ml/a" in policy.remember(snapshot, decisions).jobs


def test_hpa_asks_for_a_turn_when_a_window_or_a_period_ends() -> None:
    """For its decisions may change then although nothing happens."""
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}
    policy = hpa(queue_metric("gpu-share-in-use", "1"), behavior=slow)
    assert policy.next_change(queue(job())) is None
    assert policy.next_change(remembering(queue(job()), a=8)) == NOW + 1
    resized = Resized(at=NOW - 30, from_workers=2, to_workers=4)
    assert policy.next_change(queue(job(workers=4, resizes=(resized,)))) == NOW + 30
