# SPDX-License-Identifier: Apache-2.0
"""On a real API server with its controllers: what a training makes goes with its Job, its run, its namespace."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.argo import install_workflows
from apiserver.hands import Hands
from apiserver.server import ApiServer
from kfp_volcano.elastic.autoscaler.commands import command
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig
from kfp_volcano.volcano.launcher.log_record import LogRecord
from kfp_volcano.volcano.launcher.reaping import reap
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.submit import submit

pytestmark = pytest.mark.cluster

KINDS = ("Job", "ConfigMap", "Lease", "Command", "ResourceClaimTemplate", "Pod")
GONE_S = 120.0
"""The garbage collector learns of a new kind every half minute."""


@pytest.fixture(name="cluster")
def _cluster(controllers: ApiServer) -> KubernetesCluster:
    install_workflows(controllers)
    return KubernetesCluster(from_kubeconfig(controllers.kubeconfig("garbage", "system:masters")))


@pytest.fixture(name="hands")
def _hands(controllers: ApiServer, namespace: str) -> Iterator[Hands]:
    hands = Hands(controllers, namespace)
    hands.open_queue(namespace)
    yield hands
    hands.close_queue(namespace)


def trained(cluster: KubernetesCluster, hands: Hands, namespace: str, root: Path, owner: Any = None) -> JobRef:
    """A Job with all that can be made beside it: claims, Lease, places in logs, a Command, pods."""
    wire = yaml.safe_load((root / "tests" / "golden" / "rdma-claims.spec.yaml").read_text(encoding="utf-8"))
    wire["metadata"]["namespace"] = namespace
    wire["spec"]["queue"] = namespace
    del wire["spec"]["checkpoint"]
    job = submit(cluster, training_job(wire), run_id=str(uuid.uuid4()), step="submit", now=time.time(), owner=owner)
    ref = JobRef.of(job)
    JobLease(cluster, namespace, ref.name, holder="run:r", clock=time.time).hold()
    LogRecord(cluster, job, ref, by="test").take_over()
    command(cluster, job, "TerminateJob", "test")
    hands.pods(job)
    assert left(cluster, namespace) == set(KINDS)
    return ref


def left(cluster: KubernetesCluster, namespace: str) -> set[str]:
    """The kinds of which something of ours is there."""
    return {
        kind
        for kind in KINDS
        for each in cluster.list(kind, namespace)[0]
        if each["metadata"]["name"] != "kube-root-ca.crt"
    }


def all_gone(controllers: ApiServer, cluster: KubernetesCluster, namespace: str) -> bool:
    controllers.apiserver.wait_until(lambda: not left(cluster, namespace), timeout_s=GONE_S)
    return True


def test_all_goes_with_the_job(
    controllers: ApiServer, cluster: KubernetesCluster, hands: Hands, namespace: str, root: Path
) -> None:
    """Claims, Lease, places in logs, Commands and pods: nothing is left, and nothing holds it up."""
    ref = trained(cluster, hands, namespace, root)
    cluster.delete("Job", ref.name, namespace)
    assert all_gone(controllers, cluster, namespace)


def test_the_job_goes_with_its_run(
    controllers: ApiServer, cluster: KubernetesCluster, hands: Hands, namespace: str, root: Path
) -> None:
    """The Workflow is deleted at once, it does not wait for the Job; the Job and the rest follow."""
    workflow = hands.workflow("run", str(uuid.uuid4()))
    owner = {key: workflow[key] for key in ("apiVersion", "kind")}
    owner |= {key: workflow["metadata"][key] for key in ("name", "uid")}
    trained(cluster, hands, namespace, root, owner)
    cluster.delete("Workflow", "run", namespace)
    assert cluster.list("Workflow", namespace)[0] == []
    assert all_gone(controllers, cluster, namespace)


def test_all_goes_with_the_namespace(
    controllers: ApiServer, cluster: KubernetesCluster, hands: Hands, namespace: str, root: Path
) -> None:
    """No finalizer of ours keeps a namespace from going."""
    trained(cluster, hands, namespace, root)
    cluster.delete("Namespace", namespace)
    gone = lambda: controllers.admin.get("v1", "Namespace", namespace).status == 404  # noqa: E731
    controllers.apiserver.wait_until(gone, timeout_s=GONE_S)


def test_what_was_orphaned_is_reaped(
    controllers: ApiServer, cluster: KubernetesCluster, hands: Hands, namespace: str, root: Path
) -> None:
    """A Job deleted without its dependents leaves them without an owner; the reaper finds them, but touches no pod."""
    ref = trained(cluster, hands, namespace, root)
    path = controllers.admin.path(ref.read(cluster), ref.name)
    controllers.admin.request("DELETE", path, query={"propagationPolicy": "Orphan"}).expect()
    controllers.apiserver.wait_until(lambda: "Job" not in left(cluster, namespace), timeout_s=GONE_S)
    reap(cluster, namespace, clock=time.time, tell=lambda _: None)
    assert left(cluster, namespace) == {"Pod"}
