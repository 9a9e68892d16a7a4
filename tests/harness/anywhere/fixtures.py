# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests that run on any cluster with Volcano, whatever it has; such a test is marked `anywhere`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from anywhere.ground import Ground
from anywhere.nodes import SimulatedNodes
from anywhere.place import Place, real_place, simulated_place
from kfp_volcano.errors import NotFoundError
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig

__all__ = ["ground", "grounds", "place", "places", "simulated_nodes", "with_volcano"]

IMAGE = os.environ.get("KFP_VOLCANO_TEST_IMAGE")
"""Read at once: no test sees the machine's environment."""


@pytest.fixture(scope="session")
def with_volcano(kubeconfig: Path) -> KubernetesCluster:
    """The cluster of `--kubeconfig`; skips where Volcano's programs do not run, as in the API server of the tests."""
    cluster = KubernetesCluster(from_kubeconfig(kubeconfig))
    try:
        state = cluster.get("Queue", "default").get("status", {}).get("state")
    except NotFoundError:
        state = None
    if state != "Open":
        pytest.skip("Volcano's controllers do not run on this cluster")
    return cluster


@pytest.fixture(scope="session")
def simulated_nodes(with_volcano: KubernetesCluster) -> Iterator[SimulatedNodes]:
    """Two nodes of 4 GPUs, made for the tests."""
    nodes = SimulatedNodes(with_volcano)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.stop()


class Places:
    """What was found out about a cluster, once."""

    def __init__(self, cluster: KubernetesCluster, image: str | None) -> None:
        self._cluster = cluster
        self._image = image
        self._real: Place | str | None = None

    def real(self) -> Place:
        """The cluster's own nodes; skips where no pod can run there."""
        if self._real is None:
            name = f"kfp-volcano-probe-{uuid.uuid4().hex[:8]}"
            labels = {"pod-security.kubernetes.io/enforce": "privileged"}
            metadata = {"name": name, "labels": labels}
            self._cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            try:
                while not self._cluster.list("ServiceAccount", name)[0]:
                    version = self._cluster.list("ServiceAccount", name)[1]
                    next(iter(self._cluster.watch("ServiceAccount", name, resource_version=version, timeout_s=1)), None)
                self._real = real_place(self._cluster, name, image=self._image)
            finally:
                with suppress(NotFoundError):
                    self._cluster.delete("Namespace", name)
        if isinstance(self._real, str):
            pytest.skip(self._real)
        return self._real


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest, with_volcano: KubernetesCluster) -> Places:
    """Where pods may run."""
    return Places(with_volcano, request.config.getoption("test_image") or IMAGE)


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest) -> Place:
    """The cluster's own nodes, and nodes that the tests have made."""
    if request.param == "simulated":
        nodes: SimulatedNodes = request.getfixturevalue("simulated_nodes")
        return simulated_place(nodes)
    found: Places = request.getfixturevalue("places")
    return found.real()


@pytest.fixture(scope="session")
def grounds() -> Iterator[list[Ground]]:
    """All that tests have made and cleared; the end of the tests waits until nothing of it is left."""
    made: list[Ground] = []
    yield made
    for each in made:
        each.gone()


@pytest.fixture
def ground(with_volcano: KubernetesCluster, place: Place, grounds: list[Ground]) -> Iterator[Ground]:
    """A namespace and queues of this test alone."""
    made = Ground(with_volcano, place)
    grounds.append(made)
    yield made
    if place.simulated is not None:
        place.simulated.restore()
    made.clear()
