# SPDX-License-Identifier: Apache-2.0
"""The training runtimes that TrainJobs refer to: from the files, else those that Kubeflow Trainer brings along.

Source: kubeflow/trainer (v2.3), manifests/base/runtimes/*.yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.volcano.manifests.convert.documents import Document

__all__ = ["Runtimes", "is_runtime"]

_CLUSTER, _NAMESPACED = "ClusterTrainingRuntime", "TrainingRuntime"
_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def is_runtime(document: Document) -> bool:
    """Whether a document is a training runtime."""
    return document.kind in (_CLUSTER, _NAMESPACED)


class Runtimes:
    """Training runtimes by kind, namespace and name."""

    def __init__(self, found: Iterable[Document]) -> None:
        self._found: dict[tuple[str, str, str], dict[str, Any]] = {}
        for document in found:
            if not isinstance(document.value, SpecError):
                metadata = document.value.get("metadata") or {}
                namespace = metadata.get("namespace", "default") if document.kind == _NAMESPACED else ""
                self._found[document.kind, namespace, metadata.get("name", "")] = document.value

    def find(self, kind: str, namespace: str, name: str) -> tuple[dict[str, Any] | None, bool]:
        """The runtime of that name, None where there is none; and whether it is from the files."""
        own = self._found.get((kind, namespace if kind == _NAMESPACED else "", name))
        return (own, True) if own is not None else (_BUILT_IN.get(name) if kind == _CLUSTER else None, False)


def _runtime(policy: dict[str, Any], image: str) -> dict[str, Any]:
    """A runtime whose nodes all run the same program."""
    return _object(policy, [_replicated("node", {"containers": [{"name": "node", "image": image}]}, ancestor=True)])


def _mpi_runtime(image: str) -> dict[str, Any]:
    """A runtime whose launcher runs a program on its nodes by mpirun."""
    security = {"securityContext": {"fsGroup": 1000}}
    container = {"name": "node", "image": image, "securityContext": {"runAsUser": 1000}}
    sshd = {"command": ["/usr/sbin/sshd"], "args": ["-De", "-f", "/home/mpiuser/.sshd_config"]}
    policy = {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "sshAuthMountPath": "/home/mpiuser/.ssh"}
    return _object(
        {"mpi": {**policy, "runLauncherAsNode": True}},
        [
            _replicated("node", {**security, "containers": [{**container, **sshd}]}),
            _replicated("launcher", {**security, "containers": [container]}, ancestor=True),
        ],
    )


def _replicated(name: str, pod: dict[str, Any], *, ancestor: bool = False) -> dict[str, Any]:
    labels = {"metadata": {"labels": {_ANCESTOR: "trainer"}}} if ancestor else {}
    return {"name": name, "template": {**labels, "spec": {"template": {"spec": pod}}}}


def _object(policy: dict[str, Any], jobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": {"replicatedJobs": jobs}}}}


_BUILT_IN = {
    "torch-distributed": _runtime({"torch": {}}, "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
    "jax-distributed": _runtime({"jax": {}}, "nvcr.io/nvidia/jax:25.10-py3"),
    "xgboost-distributed": _runtime({"xgboost": {}}, "ghcr.io/kubeflow/trainer/xgboost-runtime"),
    "deepspeed-distributed": _mpi_runtime("ghcr.io/kubeflow/trainer/deepspeed-runtime"),
    "mlx-distributed": _mpi_runtime("ghcr.io/kubeflow/trainer/mlx-runtime"),
}
