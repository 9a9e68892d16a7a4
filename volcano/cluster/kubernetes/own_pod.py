# SPDX-License-Identifier: Apache-2.0
"""The pod that this process runs in, and what it mounts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["SERVICE_ACCOUNT", "mounted", "named"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its namespace, and the token and certificate authority for the API server."""


def named(environment: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT) -> Manifest | None:
    """The pod as far as it knows itself, name and namespace; None outside of one.

    KFP tells a step its pod's name. Elsewhere the host's name is the pod's, but for pods in the node's own network.
    """
    name = environment.get("KFP_POD_NAME") or environment.get("HOSTNAME")
    try:
        namespace = (service_account / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    if not name or not namespace:
        return None
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}


def mounted(pod: Manifest, claim: str) -> Path | None:
    """Where this container of the pod has the root of a claim; None where it does not mount it.

    Containers of a pod mount at places of their own: that is ours which is there.
    """
    spec = pod.get("spec") or {}
    volumes = {
        volume["name"]
        for volume in spec.get("volumes") or ()
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim
    }
    places = (
        Path(mount["mountPath"])
        for container in spec.get("containers") or ()
        for mount in container.get("volumeMounts") or ()
        if mount["name"] in volumes and not mount.get("subPath") and not mount.get("subPathExpr")
    )
    return next((place for place in places if place.is_dir()), None)
