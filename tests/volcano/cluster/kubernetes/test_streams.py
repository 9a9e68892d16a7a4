# SPDX-License-Identifier: Apache-2.0
"""Logs that come through a real API server from a node."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.certificates import Authority
from apiserver.kubelet import LogKubelet
from apiserver.server import ApiServer
from kfp_volcano.errors import NotFoundError, UnavailableError
from kfp_volcano.volcano.cluster.kubernetes.api import Patience
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig

pytestmark = pytest.mark.cluster


@pytest.fixture(name="node")
def _node(apiserver: ApiServer, namespace: str, tmp_path: Path) -> Iterator[LogKubelet]:
    """A node with a kubelet, and on it a pod `p` whose container `c` runs."""
    kubelet = LogKubelet(Authority(tmp_path).server("127.0.0.1"))
    kubelet.start()
    admin = apiserver.admin
    admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace}}).expect()
    merge = "application/merge-patch+json"
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }
    admin.request("PATCH", f"/api/v1/nodes/{namespace}/status", {"status": status}, content_type=merge).expect()
    spec = {"nodeName": namespace, "containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "p", "namespace": namespace}
    admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).expect()
    kubelet.runs[f"{namespace}/p/c"].append([])
    yield kubelet
    kubelet.stop()
    admin.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/p", {"gracePeriodSeconds": 0}).expect()
    admin.delete("v1", "Node", namespace).expect()


@pytest.fixture(name="cluster")
def _cluster(apiserver: ApiServer) -> KubernetesCluster:
    way = from_kubeconfig(apiserver.kubeconfig("streams", "system:masters"))
    return KubernetesCluster(way, patience=Patience(total_s=1.0, first_s=0.01, longest_s=0.05))


def test_a_log_is_read_and_read_on(node: LogKubelet, cluster: KubernetesCluster, namespace: str) -> None:
    """Lines, the place behind them, what came after it, and the tail: the API server takes all that is asked."""
    container = f"{namespace}/p/c"
    node.print(container, "one")
    node.print(container, "Grüße")
    text, place = cluster.logs("p", namespace)
    assert text == "one\nGrüße\n"
    assert cluster.logs("p", namespace, after=place) == ("", place)
    node.print(container, "three")
    assert cluster.logs("p", namespace, after=place)[0] == "three\n"
    assert cluster.logs("p", namespace, tail=1)[0] == "three\n"
    with pytest.raises(NotFoundError):
        cluster.logs("absent", namespace)


def test_a_stream_goes_on_over_a_restart(
    apiserver: ApiServer, node: LogKubelet, cluster: KubernetesCluster, namespace: str
) -> None:
    """Lines come as they are printed, over the container's runs, each once; the stream ends with the pod."""
    container = f"{namespace}/p/c"
    stop = threading.Event()
    stream = cluster.follow_logs("p", namespace, stop=stop)
    node.print(container, "first")
    assert next(stream)[0] == "first\n"
    node.print(container, "last words")
    node.runs[container].append([])
    node.print(container, "again")
    assert [next(stream)[0] for _ in range(2)] == ["last words\n", "again\n"]
    merge = "application/merge-patch+json"
    path = f"/api/v1/namespaces/{namespace}/pods/p/status"
    apiserver.admin.request("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type=merge).expect()
    node.runs[container].append([])  # the run ends
    assert list(stream) == []
    assert any("follow=true" in asked and "sinceTime=" in asked for asked in node.asked)


def test_a_node_that_is_away_is_told(node: LogKubelet, cluster: KubernetesCluster, namespace: str) -> None:
    """The API server cannot reach the kubelet: no answer, which may be better later."""
    node.stop()
    with pytest.raises(UnavailableError, match="log of Pod"):
        next(cluster.follow_logs("p", namespace, stop=threading.Event()))
