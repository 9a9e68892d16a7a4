# SPDX-License-Identifier: Apache-2.0
"""From a name to a cluster: what every step and the command line begin with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.errors import UnavailableError
from kfp_volcano.schemas.names import ENV_CLUSTER

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster

__all__ = ["EMBEDDED", "IN_CLUSTER", "KUBERNETES", "connect", "kubernetes"]

KUBERNETES = "kubernetes"
IN_CLUSTER = "in-cluster"
EMBEDDED = "embedded:"
PATIENCE_S = 30.0
_POD = "KUBERNETES_SERVICE_HOST"
"""Set in every pod."""


def connect(target: str | None = None, *, patience_s: float = PATIENCE_S) -> Cluster:
    """The cluster that `target` names, by default the one in `KFP_VOLCANO_CLUSTER`.

    Args:
        target: `embedded:<address of the host's Ray>`; `kubernetes` or `kubernetes:<context>` for a kubeconfig
            (`KUBECONFIG`, or `~/.kube/config`); `in-cluster` for a pod's service account. Where none is named, a pod
            takes its own cluster, and any other process its kubeconfig's, if there is one.
        patience_s: How long a request to an API server is tried again while there is no answer.

    Raises UnavailableError where none is named, the name is not understood, or nothing answers there; SpecError where
    the kubeconfig is not there or is wrong.
    """
    target = os.environ.get(ENV_CLUSTER, "") if target is None else target
    if target.startswith(EMBEDDED):
        from kfp_volcano.volcano.cluster.host import RemoteCluster  # noqa: PLC0415  # ray takes long to import

        return RemoteCluster(target.removeprefix(EMBEDDED))
    name, _, context = (target or _nearest()).partition(":")
    if name == KUBERNETES:
        return kubernetes(context=context or None, patience_s=patience_s)
    if name == IN_CLUSTER:
        return kubernetes(in_cluster=True, patience_s=patience_s)
    named = f"{ENV_CLUSTER} names {target!r}" if target else f"{ENV_CLUSTER} is not set, and there is no kubeconfig"
    raise UnavailableError(
        f"no cluster to talk to: {named}. For Kubernetes set it to kubernetes, kubernetes:CONTEXT or in-cluster, or"
        " set KUBECONFIG. To run on this machine: kfp-volcano run PIPELINE.py --local"
    )


def kubernetes(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    in_cluster: bool = False,
    patience_s: float = PATIENCE_S,
) -> KubernetesCluster:
    """A Kubernetes cluster: a kubeconfig's, or the one that this pod is in. Raises SpecError where there is no way."""
    # The client library takes long to import.
    from kfp_volcano.volcano.cluster.kubernetes import connection, own_pod  # noqa: PLC0415
    from kfp_volcano.volcano.cluster.kubernetes.api import Patience  # noqa: PLC0415
    from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415

    patience = Patience(total_s=patience_s)
    if in_cluster:
        return KubernetesCluster(connection.in_cluster(), pod=own_pod.named(), patience=patience)
    return KubernetesCluster(connection.from_kubeconfig(kubeconfig, context), patience=patience)


def _nearest() -> str:
    """Where to go when nothing is said; empty where there is no way."""
    if os.environ.get(_POD):
        return IN_CLUSTER
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return KUBERNETES if any(Path(file).is_file() for file in files.split(os.pathsep)) else ""
