# SPDX-License-Identifier: Apache-2.0
"""Limits of Jobs in time, kept by the autoscaler whoever follows them or does not."""

from __future__ import annotations

import itertools

import pytest

from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.autoscaler.limits import limits, overdue
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.threshold import Threshold

FIXED = {"elasticity": {"strategy": "fixed"}}


def live(cluster, seconds):
    """An autoscaler of the queue, and nobody else, for some time."""
    numbers = itertools.count()
    scaler = Fleet(
        cluster,
        namespace="ml",
        queues=lambda _: ["research"],
        policies=lambda _: Guarded(Threshold()),
        identity="shared",
        view=cluster.view(),
        clock=lambda: cluster.now,
        new_id=lambda: f"r{next(numbers)}",
    )
    end = cluster.now + seconds
    while cluster.now < end:
        look_at = scaler.turn()
        cluster.wait(0, min(look_at, end) - cluster.now)
    scaler.turn()
    cluster.settle()


def phase(cluster):
    return cluster.job()["status"]["state"]["phase"]


@pytest.mark.parametrize("more", [{}, FIXED], ids=["elastic", "fixed"])
def test_a_job_ends_when_its_time_is_over(cluster, more):
    """Not before, and its object stays, with its record."""
    sizes = {"low": 2, "high": 2} if more else {}
    cluster.submit(**sizes, faults={"timeout": "5m"}, **more)
    live(cluster, 290)
    assert phase(cluster) == "Running"
    live(cluster, 15)
    assert phase(cluster) == "Terminated"


@pytest.mark.parametrize(("then", "ends"), [("fail", "Terminated"), ("abort", "Aborted")])
def test_a_gang_that_is_not_let_in_waits_no_longer_than_it_may(cluster, then, ends):
    """It has no pods, so Volcano's own policy on pods that wait never begins to count."""
    cluster.submit_gang(pods=8)
    cluster.submit(faults={"pending": {"after": "3m", "then": then}})
    assert not cluster.running("digits")
    live(cluster, 170)
    assert phase(cluster) == "Pending"
    live(cluster, 15)
    assert phase(cluster) == ends


def test_pods_that_wait_are_left_to_volcano(cluster):
    """As is a Job that runs, or has ended."""
    cluster.submit(faults={"pending": {"after": "10m"}, "timeout": "1h"})
    job = cluster.job()
    pods = list(cluster.objects("Pod"))
    assert [limit.verb for limit in limits(job, pods)] == ["TerminateJob"]
    pending = {**job, "status": {"state": {"phase": "Pending"}}}
    assert overdue(pending, pods, cluster.now + 700) is None
    assert overdue(pending, [], cluster.now + 700) is not None
    ended = {**job, "status": {"state": {"phase": "Completed"}}}
    assert overdue(ended, pods, cluster.now + 7000) is None
