"""From a name to a cluster: what every step and the command line begin with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kfp_volcano.errors import UnavailableError
from kfp_volcano.schemas.names import ENV_CLUSTER

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["connect"]

_EMBEDDED = "embedded:"


def connect(target: str | None = None) -> Cluster:
    """The cluster that `target` names, by default the one in `KFP_VOLCANO_CLUSTER`.

    Args:
        target: `embedded:<address of the host's Ray>`.

    Raises UnavailableError where none is named, the name is not understood, or nothing answers there.
    """
    target = os.environ.get(ENV_CLUSTER, "") if target is None else target
    if target.startswith(_EMBEDDED):
        from kfp_volcano.volcano.cluster.host import RemoteCluster  # noqa: PLC0415  # ray takes long to import

        return RemoteCluster(target.removeprefix(_EMBEDDED))
    named = f"{ENV_CLUSTER} names {target!r}" if target else f"{ENV_CLUSTER} is not set"
    raise UnavailableError(
        f"no cluster to talk to: {named}, and a Kubernetes adapter is not part of this version."
        " To run on this machine: kfp-volcano run PIPELINE.py --local"
    )
