# SPDX-License-Identifier: Apache-2.0
"""Unfit nodes are seen to by the autoscaler, whoever follows their Jobs or does not."""

from __future__ import annotations

from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.schemas.names import PREFLIGHT, UNFIT_LABEL
from kfp_volcano.volcano.model.objects import time_text

UNFIT_S = 600.0


def fleet(cluster):
    return Fleet(
        cluster,
        namespace="ml",
        queues=lambda _: ["research"],
        policies=lambda _: Guarded(Threshold()),
        identity="shared",
        view=cluster.view(),
        clock=lambda: cluster.now,
    )


def fail_preflight(cluster, name):
    """A pod's preflight has just failed. Returns the pod's uid and node."""
    with cluster.store.transaction() as (world, now):
        pod = world.get("Pod", ("ml", name))
        ended = {"terminated": {"exitCode": 1, "finishedAt": time_text(now), "message": "no devices"}}
        statuses = [{"name": PREFLIGHT, "state": ended}]
        world.update({**pod, "status": {"phase": "Pending", "initContainerStatuses": statuses}})
    return pod["metadata"]["uid"], pod["spec"]["nodeName"]


def test_a_pod_whose_preflight_failed_is_made_anew_elsewhere_and_its_node_avoided_for_a_time(cluster):
    """The node is marked, the pod goes, and when its time is over the mark goes too."""
    cluster.broken_nodes = True
    cluster.submit(faults={"preflight": {"command": ["check"], "unfitFor": UNFIT_S}})
    uid, node = fail_preflight(cluster, "digits-core-0")
    scaler = fleet(cluster)
    cluster.live(scaler, 5)
    assert UNFIT_LABEL in cluster.get("Node", node)["metadata"]["labels"]
    again = cluster.get("Pod", "digits-core-0", "ml")
    assert again["metadata"]["uid"] != uid
    assert again["spec"]["nodeName"] != node
    cluster.live(scaler, UNFIT_S + 20)
    assert UNFIT_LABEL not in cluster.get("Node", node)["metadata"]["labels"]


def test_jobs_are_read_only_where_something_is_due(cluster, monkeypatch):
    """A preflight that passes, and a limit that is far away, cost no call."""
    cluster.submit(initial=8, faults={"preflight": {"command": ["check"]}, "timeout": "1h"})
    cluster.follow()
    scaler = fleet(cluster)
    cluster.live(scaler, 2)
    read = []
    get = cluster.get
    monkeypatch.setattr(cluster, "get", lambda kind, *args: read.append(kind) or get(kind, *args))
    cluster.live(scaler, 50)
    assert set(read) <= {"Lease"}
