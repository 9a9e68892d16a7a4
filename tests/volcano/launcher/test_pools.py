# SPDX-License-Identifier: Apache-2.0
"""Pools on a cluster whose pods run: a burst in one pool brings it a node of the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.gpu_pools import GPUPools, bound, gpu_pools
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.pools import apply, look
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LABEL = "kfp-volcano/gpu-pool"
PATIENCE_S = 60.0
DOCUMENT = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "GPUPools",
    "metadata": {"name": "shared"},
    "spec": {
        "pools": {
            "interactive": {"priorities": ["interactive"], "min": 1, "max": 3},
            "batch": {"priorities": ["batch", "batch-low"], "min": 1, "max": 4},
        }
    },
}


@pytest.fixture
def pools() -> GPUPools:
    """Two pools."""
    return gpu_pools(DOCUMENT)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """Three nodes, each with one GPU of 24 GiB that pods share."""
    cluster = EmbeddedCluster(tmp_path, nodes="3x1@24Gi", workdir=tmp_path)
    yield cluster
    cluster.shutdown(grace_s=0)


def start(
    cluster: EmbeddedCluster, pools: GPUPools, name: str, priority: str, replicas: int, memory: str = "12Gi"
) -> None:
    """A Job of sleeping pods that ask for half a card each."""
    share = {"cpu": 1, "gpu": 1, "gpuShare": {"memory": memory, "cores": 50}}
    spec = {
        "framework": "custom",
        "image": "x",
        "command": ["sleep", "600"],
        "queue": "default",
        "priority": priority,
        "minPods": 1,
        "elasticity": {"strategy": "fixed", "grace": "1s"},
        "roles": {"worker": {"replicas": replicas, "min": 1, "resources": share}},
    }
    value = {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}
    submit(cluster, bound(training_job(value), pools), run_id="r", step="submit", now=0)


def until(cluster: EmbeddedCluster, condition: Callable[[list[Any]], bool]) -> list[Any]:
    """The pods, once something holds of them."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found, version = cluster.list("Pod")
        if condition(found):
            return found
        assert time.monotonic() < deadline, found
        next(iter(cluster.watch("Pod", resource_version=version, timeout_s=deadline - time.monotonic())), None)


def in_pools(cluster: EmbeddedCluster) -> dict[str, list[str]]:
    """Nodes by pool."""
    found: dict[str, list[str]] = {}
    for node in cluster.list("Node")[0]:
        found.setdefault(node["metadata"]["labels"].get(LABEL, ""), []).append(node["metadata"]["name"])
    return found


def running(found: list[Any], job: str) -> list[Any]:
    """The running pods of a Job."""
    return [
        pod for pod in found if pod["metadata"]["name"].startswith(f"{job}-") and pod["status"]["phase"] == "Running"
    ]


def unschedulable(pod: Any) -> bool:
    """Whether the scheduler has tried a pod in vain."""
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions") or ())


def test_a_burst_in_one_pool_brings_it_a_node_of_the_other(cluster: EmbeddedCluster, pools: GPUPools) -> None:
    """Its pods share cards, those that found no room run once a node has moved, and then nothing moves any more."""
    silent: Callable[[object], None] = lambda _: None  # noqa: E731  # nobody listens
    first = apply(cluster, look(cluster, pools, now=1000), now=1000, tell=silent)
    assert [str(move).split(":")[0] for move in first.done] == ["node-0 (1 GPU)", "node-1 (1 GPU)"]
    assert in_pools(cluster) == {"batch": ["node-0"], "interactive": ["node-1"], "": ["node-2"]}

    start(cluster, pools, "train", "batch", 4)
    until(cluster, lambda found: len(running(found, "train")) == 2 and sum(map(unschedulable, found)) == 2)
    second = apply(cluster, look(cluster, pools, now=2000), now=2000, tell=silent)
    assert [(move.node, move.before, move.after) for move in second.done] == [("node-2", "", "batch")]
    until(cluster, lambda found: len(running(found, "train")) == 4)

    for job in cluster.list("Job")[0]:
        cluster.delete("Job", job["metadata"]["name"], "default")
    until(cluster, lambda found: not found)
    start(cluster, pools, "notebooks", "interactive", 4)
    until(cluster, lambda found: len(running(found, "notebooks")) == 2 and sum(map(unschedulable, found)) == 2)
    early = look(cluster, pools, now=2100)
    assert [move.node for move in early.moves] == ["node-0"]  # node-2 has just come
    third = apply(cluster, early, now=2100, tell=silent)
    assert third.kept == []
    assert "-core-2 and 1 more; batch uses 0%" in third.done[0].reason
    found = until(cluster, lambda found: len(running(found, "notebooks")) == 4)
    assert {pod["spec"]["nodeName"] for pod in found} == {"node-0", "node-1"}
    assert in_pools(cluster) == {"batch": ["node-2"], "interactive": ["node-0", "node-1"]}
    assert look(cluster, pools, now=9000).moves == ()


def test_a_node_that_a_pod_has_got_since_the_plan_stays(cluster: EmbeddedCluster, pools: GPUPools) -> None:
    """It keeps its label, and the pod runs on."""
    apply(cluster, look(cluster, pools, now=1000), now=1000, tell=lambda _: None)
    start(cluster, pools, "burst", "interactive", 3)
    until(cluster, lambda found: len(running(found, "burst")) == 2)
    for node in ("node-2", "node-0"):
        label = {"op": "add", "path": "/metadata/labels/kfp-volcano~1gpu-pool", "value": "batch"}
        cluster.patch("Node", node, "", [label])
    planned = look(cluster, pools, now=5000)
    assert [move.node for move in planned.moves] == ["node-0"]
    start(cluster, pools, "train", "batch", 4)
    until(cluster, lambda found: len(running(found, "train")) == 4)
    applied = apply(cluster, planned, now=5000, tell=lambda _: None)
    assert applied.done == []
    assert "a pod has got shares of node-0" in str(applied.kept[0][1])
    assert in_pools(cluster) == {"batch": ["node-0", "node-2"], "interactive": ["node-1"]}
    assert len(running(cluster.list("Pod")[0], "train")) == 4


def test_a_job_may_be_submitted_to_a_pool_that_has_no_node_yet(cluster: EmbeddedCluster, pools: GPUPools) -> None:
    """Its pods bring the first one; what no card could hold is refused at once."""
    start(cluster, pools, "first", "batch", 1)
    until(cluster, lambda found: [unschedulable(pod) for pod in found] == [True])
    apply(cluster, look(cluster, pools, now=1000), now=1000, tell=lambda _: None)
    until(cluster, lambda found: len(running(found, "first")) == 1)
    with pytest.raises(SpecError, match=r"25600 volcano\.sh/vgpu-memory does not fit"):
        start(cluster, pools, "large", "batch", 1, memory="25Gi")
