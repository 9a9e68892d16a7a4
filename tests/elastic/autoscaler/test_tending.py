# SPDX-License-Identifier: Apache-2.0
"""Beside sizes: classes and requests follow what a Policy says, turn by turn."""

from __future__ import annotations

import json

import pytest

from kfp_volcano.elastic.autoscaler.contracts import read
from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.autoscaler.ranking import class_changes
from kfp_volcano.elastic.autoscaler.tending import Tender
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.policies.snapshot import Sample
from kfp_volcano.schemas.names import ADVICE, PROGRESS
from kfp_volcano.schemas.policy import QueuePolicy
from kfp_volcano.schemas.records import Advice, Progress
from kfp_volcano.volcano.cluster.annotations import annotation

VALUES = {"batch-low": 1000, "batch": 10_000, "batch-low-surplus": 500, "batch-surplus": 9500}
CLASSES = {"classes": ["batch-low", "batch"], "waiting": "30m"}


class Used:
    """Every worker uses a CPU and a GiB."""

    def of_queue(self, queue):
        return {}

    def of_pod(self, namespace, name):
        return {"cpu": Sample(0.0, 1.0), "memory": Sample(0.0, float(2**30))}

    def utilisation(self, namespace, pods):
        return None


@pytest.fixture
def cluster(cluster):
    for name, value in VALUES.items():
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        cluster.create({**kind, "metadata": {"name": name}, "value": value})
    return cluster


def fleet(cluster, **blocks):
    spec = QueuePolicy(name="all", queues=("*",), blocks=blocks)
    made = Fleet(
        cluster,
        queues=lambda _: ["research"],
        policies=lambda _: policy_for(spec),
        identity="autoscaler",
        namespace="ml",
        metrics=Used(),
        tender=Tender(cluster, lambda _: spec, identity="autoscaler", namespace="ml"),
        view=cluster.view(),
        clock=lambda: cluster.now,
    )
    cluster.settle()
    return made


def pass_by(cluster, of, seconds):
    """Time in which nothing else happens."""
    for _ in range(int(seconds // 60)):
        cluster.now += 60
        cluster.settle()
        of.wake()
        of.turn()


def test_a_gang_that_waits_rises(cluster):
    """After its time, told on the Job; not again, for its range ends there."""
    cluster.submit_gang(pods=8)
    cluster.submit("waiting", priority="batch-low")
    ours = fleet(cluster, priorities=CLASSES)
    pass_by(cluster, ours, 1740)
    assert cluster.job("waiting")["spec"]["priorityClassName"] == "batch-low"
    pass_by(cluster, ours, 3600)
    assert cluster.job("waiting")["spec"]["priorityClassName"] == "batch"
    [change] = class_changes(cluster.job("waiting"))
    assert change.reason == "WaitedLong"


def test_without_the_block_classes_stay(cluster):
    """A Policy that does not name them changes none."""
    cluster.submit_gang(pods=8)
    cluster.submit("waiting", priority="batch-low")
    pass_by(cluster, fleet(cluster), 7200)
    assert cluster.job("waiting")["spec"]["priorityClassName"] == "batch-low"


def test_a_job_that_is_almost_done_rises_and_says_so(cluster):
    """Completion is what training reports."""
    cluster.submit(priority="batch-low")
    ours = fleet(cluster, priorities=CLASSES)
    pass_by(cluster, ours, 600)
    assert cluster.job()["spec"]["priorityClassName"] == "batch-low"
    report = json.loads(annotation(cluster.job(), PROGRESS))
    cluster.annotate(PROGRESS, Progress(**{**report, "step": 95, "total_steps": 100, "at": cluster.now}))
    pass_by(cluster, ours, 120)
    [change] = class_changes(cluster.job())
    assert (change.to_class, change.reason) == ("batch", "AlmostDone")


def test_requests_are_advised_on_from_what_was_measured(cluster):
    """Once it was measured for long enough."""
    cluster.submit()
    ours = fleet(cluster, requests={"after": "10m"})
    pass_by(cluster, ours, 540)
    assert annotation(cluster.job(), ADVICE) is None
    pass_by(cluster, ours, 300)
    advice = read(Advice, annotation(cluster.job(), ADVICE))
    assert (advice.cpu, advice.memory) == ("1200m", str(1178 * 2**20))
