# SPDX-License-Identifier: Apache-2.0
"""Ways to an API server that do harm, and time that passes only where somebody waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from apiserver.faults import FaultyProxy
from apiserver.server import ApiServer
from kfp_volcano.volcano.cluster.kubernetes.api import Patience
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig


@dataclass
class VirtualTime:
    """A clock that only sleeping moves, and the pauses that were slept."""

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def patience(self, total_s: float = 30.0) -> Patience:
        """Patience by this clock, with the pauses as they are without chance; a second is long for an answer."""
        return Patience(total_s=total_s, answer_s=1.0, clock=lambda: self.now, sleep=self.sleep, jitter=lambda: 1.0)


@pytest.fixture
def virtual() -> VirtualTime:
    """Time of this test alone."""
    return VirtualTime()


@pytest.fixture
def namespace(apiserver: ApiServer, namespace: str) -> str:
    """A namespace of this test alone, which is there."""
    apiserver.create_namespace(namespace)
    return namespace


@pytest.fixture
def through(proxy: FaultyProxy, tmp_path: Path, virtual: VirtualTime) -> KubernetesCluster:
    """The real API server through the proxy, in virtual time."""
    return KubernetesCluster(from_kubeconfig(proxy.kubeconfig(tmp_path)), patience=virtual.patience())
