# SPDX-License-Identifier: Apache-2.0
"""A process in a pod knows which pod, and where it has a claim's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiserver.server import ApiServer
from kfp_volcano.volcano.cluster.base import Manifest
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig
from kfp_volcano.volcano.cluster.kubernetes.own_pod import mounted, named


def pod(namespace: str, *mounts: dict[str, Any]) -> Manifest:
    """A pod whose second container has the mounts; each volume is the claim of its name."""
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in {m["name"] for m in mounts}]
    containers = [{"name": "wait", "image": "w"}, {"name": "main", "image": "m", "volumeMounts": list(mounts)}]
    metadata = {"name": "step", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"volumes": volumes, "containers": containers},
    }


def test_a_pod_knows_itself_by_kfps_word_or_its_hosts_name(tmp_path: Path) -> None:
    """Outside of a pod there is no service account."""
    assert named({"HOSTNAME": "laptop"}, tmp_path) is None
    (tmp_path / "namespace").write_text("vision\n")
    found = [named({"HOSTNAME": "host", **more}, tmp_path) for more in ({}, {"KFP_POD_NAME": "step"})]
    assert [each and each["metadata"] for each in found] == [
        {"name": "host", "namespace": "vision"},
        {"name": "step", "namespace": "vision"},
    ]
    assert named({}, tmp_path) is None


def test_a_claim_is_where_this_container_mounts_its_root(tmp_path: Path) -> None:
    """Not where another container does, nor where a part of it is mounted."""
    (tmp_path / "here").mkdir()
    (tmp_path / "part").mkdir()
    step = pod(
        "vision",
        {"name": "data", "mountPath": str(tmp_path / "elsewhere")},
        {"name": "data", "mountPath": str(tmp_path / "part"), "subPath": "a"},
        {"name": "data", "mountPath": str(tmp_path / "here")},
        {"name": "other", "mountPath": str(tmp_path / "part"), "subPathExpr": "$(A)"},
    )
    assert mounted(step, "data") == tmp_path / "here"
    assert mounted(step, "other") is None
    assert mounted(step, "absent") is None
    assert mounted({"metadata": {"name": "unread", "namespace": "vision"}}, "data") is None


@pytest.mark.cluster
def test_what_a_pod_mounts_the_api_server_knows(apiserver: ApiServer, namespace: str, tmp_path: Path) -> None:
    """Claims of its own namespace alone; one that is not there any more is known by name."""
    way = from_kubeconfig(apiserver.kubeconfig("admin", "system:masters"))
    KubernetesCluster(way).create(pod(namespace, {"name": "data", "mountPath": str(tmp_path)}))
    itself = {"metadata": {"name": "step", "namespace": namespace}}
    cluster = KubernetesCluster(way, pod=itself)
    found = cluster.own_pod()
    assert found is not None
    assert found["spec"]["containers"][1]["volumeMounts"][0]["name"] == "data"
    assert cluster.volume(namespace, "data") == tmp_path
    assert cluster.volume(namespace, "other") is None
    assert cluster.volume("other", "data") is None
    cluster.delete("Pod", "step", namespace, grace_s=0)
    assert cluster.own_pod() == itself
    assert cluster.volume(namespace, "data") is None
    assert KubernetesCluster(way).own_pod() is None
