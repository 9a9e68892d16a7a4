# SPDX-License-Identifier: Apache-2.0
"""Clusters to hold to the port, and Jobs to run on them."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from anywhere.place import Place, simulated_place
from anywhere.queues import open_queue, remove_queue
from kfp_volcano.errors import NotFoundError
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.cluster.host import RemoteCluster, start_host, stop_host
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

GPU = "nvidia.com/gpu"
PATIENCE_S = 60.0


class Jobs:
    """Job manifests of one namespace, whose pods come to a place; without one, to any node of the embedded cluster."""

    def __init__(
        self, namespace: str, queues: Sequence[str] = ("default", "research"), place: Place | None = None
    ) -> None:
        self.namespace = namespace
        self.queue, self.other_queue = queues
        self.place = place

    def task(
        self, name: str, replicas: int, command: list[str], *, least: int | None = None, gpus: int = 1, **spec: Any
    ) -> Manifest:
        """A task of pods with one container; `spec` adds to the pod."""
        resources = {"limits": {GPU: str(gpus)}} if gpus and (self.place is None or self.place.gpus) else {}
        container = {"name": "main", "image": "unused", "command": command, "resources": resources}
        container |= spec.pop("container", {})
        if self.place is not None:
            container |= {"image": self.place.image, "imagePullPolicy": "IfNotPresent"}
            spec |= {"affinity": self.place.affinity, "tolerations": self.place.tolerations}
        pod = {"restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 5, "containers": [container], **spec}
        return {
            "name": name,
            "replicas": replicas,
            "minAvailable": replicas if least is None else least,
            "template": {"spec": pod},
        }

    def job(self, name: str, tasks: list[Manifest], **spec: Any) -> Manifest:
        """A Job of these tasks."""
        least = sum(task["minAvailable"] for task in tasks)
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"queue": self.queue, "minAvailable": least, "plugins": {"svc": []}, "tasks": tasks, **spec},
        }

    def sleeping(self, name: str, workers: int, *, surplus: int = 0, gpus: int = 1) -> Manifest:
        """A Job that does nothing until it is told to end."""
        tasks = [self.task("core", workers, ["sleep", "600"], gpus=gpus)]
        tasks.append(self.task("elastic", surplus, ["sleep", "600"], least=0, gpus=gpus))
        return self.job(name, tasks)


@pytest.fixture
def namespace() -> str:
    """A namespace of this test alone."""
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def jobs(request: pytest.FixtureRequest, namespace: str) -> Jobs:
    """Jobs in the test's namespace: where containers run for tests of `kubelets`, else on nodes of the tests' own."""
    if "shared_cluster" not in request.fixturenames:
        return Jobs(namespace)
    cluster = request.getfixturevalue("shared_cluster")
    if not isinstance(cluster, KubernetesCluster):
        return Jobs(namespace)
    if "kubelets" in request.fixturenames:
        place = request.getfixturevalue("kubelets")
    else:
        place = simulated_place(request.getfixturevalue("simulated_nodes"))
    return Jobs(namespace, request.getfixturevalue("queues"), place)


_KUBERNETES = pytest.param("kubernetes", marks=(pytest.mark.cluster, pytest.mark.anywhere))


@pytest.fixture(scope="module", params=["embedded", "remote", _KUBERNETES])
def shared_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each implementation of the port, where Volcano runs with 2 nodes of 4 GPUs.

    On Kubernetes it is the cluster of `--kubeconfig`, or a real API server without Volcano's programs.
    """
    if request.param == "kubernetes":
        yield KubernetesCluster(from_kubeconfig(request.getfixturevalue("kubeconfig")))
        return
    directory = tmp_path_factory.mktemp("cluster")
    if request.param == "remote":
        yield RemoteCluster(start_host(directory))
        stop_host(grace_s=0)
        return
    cluster = EmbeddedCluster(directory)
    yield cluster
    cluster.shutdown(grace_s=0)


@pytest.fixture(scope="module")
def volcano(request: pytest.FixtureRequest, shared_cluster: Cluster) -> None:
    """Skips where Volcano's own programs do not run: there, Jobs are only kept."""
    if isinstance(shared_cluster, KubernetesCluster):
        request.getfixturevalue("with_volcano")


@pytest.fixture(scope="module")
def queues(shared_cluster: Cluster, volcano: None) -> Iterator[tuple[str, str]]:
    """Two queues of a real cluster for 8 GPUs each."""
    names = (f"test-{uuid.uuid4().hex[:8]}", f"test-{uuid.uuid4().hex[:8]}")
    for name in names:
        open_queue(shared_cluster, name, {GPU: "8"})
    yield names
    for name in names:
        remove_queue(shared_cluster, name)


@pytest.fixture
def kubelets(request: pytest.FixtureRequest, shared_cluster: Cluster, volcano: None) -> Place | None:
    """Where containers really run; skips where nodes are only simulated. None on the embedded cluster."""
    if not isinstance(shared_cluster, KubernetesCluster):
        return None
    place: Place = request.getfixturevalue("places").real()
    if not place.runs:
        pytest.skip("no container really runs on this cluster's nodes")
    return place


@pytest.fixture
def cluster(shared_cluster: Cluster, namespace: str, until: Callable[..., object]) -> Iterator[Cluster]:
    """A cluster that is empty again after the test."""
    namespaces = (namespace, f"{namespace}-other") if isinstance(shared_cluster, KubernetesCluster) else ()
    for name in namespaces:
        shared_cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for kind in ("ServiceAccount", "ConfigMap"):  # what Kubernetes puts into it
            until(shared_cluster, kind, name, bool)
    yield shared_cluster
    for job in shared_cluster.list("Job", namespace)[0]:
        with suppress(NotFoundError):
            shared_cluster.delete("Job", job["metadata"]["name"], namespace)
    for pod in shared_cluster.list("Pod", namespace)[0]:
        with suppress(NotFoundError):  # it may have ended meanwhile
            shared_cluster.delete("Pod", pod["metadata"]["name"], namespace, grace_s=0)
    for name in namespaces:
        shared_cluster.delete("Namespace", name)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """An embedded cluster of this test alone."""
    cluster = EmbeddedCluster(tmp_path / "cluster", workdir=tmp_path)
    yield cluster
    cluster.shutdown(grace_s=0)


@pytest.fixture
def until() -> Callable[..., list[Manifest]]:
    """Wait for a condition on the objects of a kind, by list and watch; returns them."""

    def wait(
        cluster: Cluster, kind: str, namespace: str, condition: Callable[[list[Manifest]], object]
    ) -> list[Manifest]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found, version = cluster.list(kind, namespace)
            if condition(found):
                return found
            assert time.monotonic() < deadline, f"{kind} still {found}"
            next(iter(cluster.watch(kind, namespace, resource_version=version, timeout_s=deadline - time.monotonic())))

    return wait


@pytest.fixture
def marked() -> Callable[[str], list[psutil.Process]]:
    """Find the living processes that have a given `MARKER` in their environment."""

    def carries(process: psutil.Process, marker: str) -> bool:
        try:
            return process.environ().get("MARKER") == marker and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    return lambda marker: [process for process in psutil.process_iter() if carries(process, marker)]
