# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's own metrics: what they count."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from kfp_volcano.elastic.autoscaler.telling.telemetry import PREFIX, Telemetry
from kfp_volcano.elastic.policies.memory import Breaker, Memory
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.errors import SpecError, UnavailableError
from kfp_volcano.schemas.records import Phase
from told import AT, class_change, decision, outcome, snapshot


class Metrics:
    """A Telemetry, and the values it shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.telemetry = Telemetry(self.registry, clock=lambda: AT + 0.3)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"{PREFIX}_{name}", {"queue": "research", **labels})


@pytest.fixture(name="metrics")
def _metrics() -> Metrics:
    return Metrics()


def test_decisions_and_requests_are_counted_by_reason(metrics: Metrics) -> None:
    """Each turn counts every decision, and as a request only what led to one."""
    grow = decision("ml/digits", 8, Reason.QUEUE_IDLE)
    for _ in range(2):
        metrics.telemetry.decided(snapshot(), [grow, decision("ml/other")], {"ml/digits": "r1"}, lag_s=0.03)
    assert metrics("decisions_total", policy="threshold", reason="QueueIdle") == 2
    assert metrics("decisions_total", policy="threshold", reason="AtMaximum") == 2
    assert metrics("requests_total", policy="threshold", reason="QueueIdle") == 2
    assert metrics("requests_total", policy="threshold", reason="AtMaximum") is None
    assert metrics("lag_seconds_bucket", le="0.02") == 0
    assert metrics("lag_seconds_bucket", le="0.05") == 2
    assert metrics("turn_seconds_sum") == pytest.approx(0.6)


def test_gauges_show_the_queue_as_it_was_seen_last(metrics: Metrics) -> None:
    """GPUs, gangs, Jobs, and whether resizes are stopped."""
    breaker = Breaker(open_until=AT + 60, why="three resizes failed")
    metrics.telemetry.decided(snapshot(stale_s=2.5, memory=Memory(breaker=breaker)), [], {}, lag_s=0.0)
    shown = {
        name: metrics(f"queue_{name}")
        for name in (
            "limit_gpus",
            "deserved_gpus",
            "allocated_gpus",
            "free_gpus",
            "pending_gangs",
            "pending_gpus",
            "longest_wait_seconds",
            "elastic_jobs",
            "stale_seconds",
            "breaker_open",
        )
    }
    assert shown == {
        "limit_gpus": 8,
        "deserved_gpus": 5,
        "allocated_gpus": 6,
        "free_gpus": 0,
        "pending_gangs": 1,
        "pending_gpus": 4,
        "longest_wait_seconds": 40,
        "elastic_jobs": 2,
        "stale_seconds": 2.5,
        "breaker_open": 1,
    }
    metrics.telemetry.decided(snapshot(memory=Memory(breaker=Breaker(open_until=AT))), [], {}, lag_s=0.0)
    assert metrics("queue_breaker_open") == 0


def test_resizes_are_counted_by_how_they_ended(metrics: Metrics) -> None:
    """Times are of those that were done; a refused one has none."""
    metrics.telemetry.resized("research", "ml/digits", outcome())
    metrics.telemetry.resized("research", "ml/digits", outcome(Phase.REFUSED))
    assert metrics("resizes_total", outcome="Done", reason="QueueIdle") == 1
    assert metrics("resizes_total", outcome="Refused", reason="QueueIdle") == 1
    assert metrics("request_to_done_seconds_count") == 1
    assert metrics("request_to_done_seconds_sum") == 12
    assert metrics("pause_seconds_sum") == 0.3


def test_changes_of_class_are_counted_by_reason(metrics: Metrics) -> None:
    """As resizes are."""
    metrics.telemetry.reranked("research", "ml/digits", class_change())
    assert metrics("class_changes_total", reason="WaitedLong") == 1


def test_one_that_stands_by_shows_no_queue(metrics: Metrics) -> None:
    """Whoever lost a queue shows what it counted, and none of what may have changed since."""
    metrics.telemetry.leads("research", leading=True)
    metrics.telemetry.decided(snapshot(), [decision("ml/digits")], {}, lag_s=0.0)
    assert metrics("queue_leading") == 1
    metrics.telemetry.leads("research", leading=False)
    assert metrics("queue_leading") == 0
    assert metrics("queue_limit_gpus") is None
    assert metrics("decisions_total", policy="threshold", reason="AtMaximum") == 1


def test_a_queue_that_went_leaves_no_series(metrics: Metrics) -> None:
    """Queues come and go; what an actor shows does not grow with them."""
    metrics.telemetry.leads("research", leading=True)
    metrics.telemetry.decided(snapshot(), [decision("ml/digits")], {"ml/digits": "r1"}, lag_s=0.0)
    metrics.telemetry.resized("research", "ml/digits", outcome())
    metrics.telemetry.failed("research", UnavailableError("no answer"))
    assert metrics("failures_total", error="UnavailableError") == 1
    metrics.telemetry.forget("research")
    assert {family.name for family in metrics.registry.collect() if family.samples} == {f"{PREFIX}_policies_wrong"}


def test_wrong_policies_show_until_they_are_right(metrics: Metrics) -> None:
    """The last good ones stay in force; this is how one learns of it."""
    metrics.telemetry.policies(SpecError("no such policy"))
    assert metrics.registry.get_sample_value(f"{PREFIX}_policies_wrong") == 1
    metrics.telemetry.policies(None)
    assert metrics.registry.get_sample_value(f"{PREFIX}_policies_wrong") == 0
