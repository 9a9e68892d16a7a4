# SPDX-License-Identifier: Apache-2.0
"""On a real API server: with the accounts of `deploy/`, and no other rights, the whole work can be done."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.hands import Hands
from apiserver.server import ApiServer
from kfp_volcano.elastic.autoscaler.commands import command
from kfp_volcano.elastic.autoscaler.execution import execute
from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.autoscaler.leading import lease_name
from kfp_volcano.elastic.autoscaler.observing.view import ClusterView
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import NotFoundError
from kfp_volcano.schemas.names import PROGRESS, SYSTEM_NAMESPACE, labels_for
from kfp_volcano.schemas.records import Phase
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import update_annotation
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig
from kfp_volcano.volcano.launcher.conclude import clean_up
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.jobs import ask_for
from kfp_volcano.volcano.launcher.reaping import reap
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.submit import submit

pytestmark = pytest.mark.cluster

HOME = "kubeflow"
QUEUE = "deploy"
SPEC = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": HOME},
    "spec": {
        "framework": "pytorch",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "queue": QUEUE,
        "roles": {"worker": {"replicas": {"min": 1, "max": 3, "initial": 3}, "resources": {"cpu": 1, "memory": "1Gi"}}},
        "elasticity": {"strategy": "restart"},
    },
}


class Account:
    """A cluster as a service account sees it."""

    def __init__(self, server: ApiServer, name: str, namespace: str) -> None:
        self.cluster = KubernetesCluster(from_kubeconfig(server.token_kubeconfig(name, namespace)))


@pytest.fixture(name="hands")
def _hands(deployed: ApiServer) -> Iterator[Hands]:
    hands = Hands(deployed, HOME)
    hands.open_queue(QUEUE)
    yield hands
    hands.close_queue(QUEUE)


@pytest.fixture(name="steps")
def _steps(deployed: ApiServer) -> KubernetesCluster:
    return Account(deployed, "pipeline-runner", HOME).cluster


@pytest.fixture(name="coordinator")
def _coordinator(deployed: ApiServer) -> KubernetesCluster:
    return Account(deployed, "kfp-volcano-coordinator", HOME).cluster


def submitted(cluster: KubernetesCluster, run_id: str) -> Any:
    return submit(cluster, training_job(SPEC), run_id=run_id, step="submit", now=time.time())


def test_steps_submit_follow_resize_and_conclude(deployed: ApiServer, hands: Hands, steps: KubernetesCluster) -> None:
    """A run's whole course: created once, shrunk on request, followed to its end, and removed since it failed."""
    run_id = str(uuid.uuid4())
    job = submitted(steps, run_id)
    assert submitted(steps, run_id)["metadata"]["uid"] == job["metadata"]["uid"]
    (coordinator,) = [task for task in job["spec"]["tasks"] if task["name"] == "coordinator"]
    assert coordinator["template"]["spec"]["serviceAccountName"] == "kfp-volcano-coordinator"
    ref = JobRef.of(job)
    hands.phase(ref.name, "Running")
    hands.pods(job, node="by-hand")
    assert ask_for(steps, ref, 2, by="test", why="", request_id="r1", now=time.time())
    outcomes: list[Any] = []
    resize = threading.Thread(
        target=lambda: outcomes.append(execute(steps, ref.namespace, ref.name, holder=f"run:{run_id}"))
    )
    resize.start()
    deployed.apiserver.wait_until(lambda: _size(steps, ref) == 2, timeout_s=60.0)
    hands.pods(ref.read(steps), node="by-hand")
    resize.join(60.0)
    assert [outcome.phase for outcome in outcomes] == [Phase.DONE]
    hands.phase(ref.name, "Completed")
    said: list[str] = []
    assert (
        follow(steps, ref, holder=f"train-1:{run_id}", heir="", last=True, clock=time.time, say=said.append) == "done"
    )
    hands.phase(ref.name, "Failed")
    assert clean_up(steps, steps.get("Job", ref.name, ref.namespace))
    with pytest.raises(NotFoundError):
        ref.read(steps)


def _size(cluster: KubernetesCluster, ref: JobRef) -> int:
    tasks = ref.read(cluster)["spec"]["tasks"]
    return sum(task["replicas"] for task in tasks if task["name"] in {"core", "elastic"})


class Failures:
    """Listens for turns that failed."""

    def __init__(self) -> None:
        self.told: list[Exception] = []

    def failed(self, _: str, error: Exception) -> None:
        self.told.append(error)

    def decided(self, *_: object, **__: object) -> None: ...

    resized = ended = decided


def test_the_coordinator_leads_its_queue(
    hands: Hands, steps: KubernetesCluster, coordinator: KubernetesCluster
) -> None:
    """It sees the queue, takes the Lease and a turn, publishes progress, and ends what has reached a limit."""
    job = submitted(steps, str(uuid.uuid4()))
    ref = JobRef.of(job)
    hands.phase(ref.name, "Running")
    view, failures = ClusterView(coordinator), Failures()
    autoscaler = Fleet(
        coordinator,
        namespace=HOME,
        queues=lambda _: [QUEUE],
        policies=lambda _: Guarded(Threshold()),
        identity=f"sidecar:{ref}",
        recorders=[failures],
        shared_namespace=SYSTEM_NAMESPACE,
        view=view,
    )
    view.start()
    try:
        assert autoscaler.turn() > 0
        assert failures.told == []
        lease = coordinator.get("Lease", lease_name(QUEUE), HOME)
        assert lease["spec"]["holderIdentity"] == f"sidecar:{ref}"
        update_annotation(coordinator, "Job", ref.name, HOME, PROGRESS, lambda _: "{}")
        command(coordinator, ref.read(coordinator), "TerminateJob", "it took too long")
    finally:
        autoscaler.stop()
        clean_up(steps, job)


def test_the_reaper_removes_what_is_over(deployed: ApiServer, hands: Hands, steps: KubernetesCluster) -> None:
    """The Job of a run that lives stays; when that has ended it goes, and a leftover with it."""
    reaper = Account(deployed, "kfp-volcano-reaper", SYSTEM_NAMESPACE).cluster
    run_id = str(uuid.uuid4())
    hands.workflow("run-a", run_id)
    ref = JobRef.of(submitted(steps, run_id))
    metadata = {"name": "gone-logs", "namespace": HOME, "labels": labels_for("gone")}
    steps.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    def removed(namespace: str) -> set[str]:
        found = reap(reaper, namespace, clock=time.time, tell=lambda _: None)
        assert "failed" not in {decision.what for decision in found}
        return {f"{decision.kind} {decision.name}" for decision in found if decision.what == "removed"}

    assert removed("") == {"ConfigMap gone-logs"}
    hands.end_workflow("run-a", "Failed")
    assert removed(HOME) == {f"Job {ref.name}"}
    deployed.admin.delete("argoproj.io/v1alpha1", "Workflow", "run-a", HOME).expect()
