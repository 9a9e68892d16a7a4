# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano whatif` of a cluster as a real API server tells of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.volcano.cluster.connect import kubernetes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Manifest

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"
NODE: Manifest = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "whatif-node"},
    "status": {
        "allocatable": {GPU: "4", "cpu": "64", "memory": "256Gi", "pods": "110"},
        "capacity": {GPU: "4", "cpu": "64", "memory": "256Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    },
}


def job(name: str, namespace: str, gpus: int) -> Manifest:
    """A Job of one pod that takes so many GPUs."""
    container = {"name": "main", "image": "train", "resources": {"limits": {GPU: str(gpus)}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    task = {"name": "main", "replicas": 1, "minAvailable": 1, "template": template}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queue": "whatif", "minAvailable": 1, "schedulerName": "volcano", "tasks": [task]},
    }


@pytest.fixture(name="cluster")
def _cluster(kubeconfig: Path, namespace: str) -> Iterator[Any]:
    """A node of four GPUs, a queue, and two Jobs of four that wait for them."""
    cluster = kubernetes(kubeconfig)
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "whatif"},
        "spec": {"weight": 1, "reclaimable": True},
    }
    made = [queue, NODE, job("first", namespace, 4), job("second", namespace, 4)]
    for manifest in made:
        cluster.create(manifest)
    yield cluster
    for manifest in reversed(made):
        cluster.delete(manifest["kind"], manifest["metadata"]["name"], manifest["metadata"].get("namespace", ""))


def test_more_nodes_let_the_second_job_start_with_the_first(cluster: Any, kubeconfig: Path, namespace: str) -> None:
    """It would wait for the first on the cluster as it is."""
    command = ["whatif", "--kubeconfig", str(kubeconfig), "--policy-now", "fifo", "--add-nodes", "1x4", "-o", "json"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    before, after = found["gpus"]
    assert after == before + 4
    ours = {each["job"]: each for each in found["jobs"] if each["job"].startswith(f"{namespace}/")}
    assert ours.keys() == {f"{namespace}/first", f"{namespace}/second"}
    starts = sorted(each["before"]["starts_s"] for each in ours.values())
    assert starts[0] < starts[1]
    assert all(each["after"]["starts_s"] <= starts[0] + 60 for each in ours.values())
    assert cluster.get("Job", "second", namespace)["spec"]["queue"] == "whatif"
