# SPDX-License-Identifier: Apache-2.0
"""The service account of coordinator pods: the one that `deploy/` installs, where a spec names none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import ForbiddenError, NotFoundError
from kfp_volcano.schemas.names import COORDINATOR, COORDINATOR_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["give_account"]


def give_account(cluster: Cluster, namespace: str, tasks: Iterable[Manifest]) -> None:
    """Have the coordinator's pod, where a Job's tasks have one, run as the account that is there for it, if it is.

    Without one the pod has the namespace's default account, which may do nothing: training goes on, nobody resizes it.
    """
    for task in tasks:
        pod = task["template"]["spec"]
        if task["name"] != COORDINATOR or pod.get("serviceAccountName"):
            continue
        try:
            cluster.get("ServiceAccount", COORDINATOR_ACCOUNT, namespace)
        except (ForbiddenError, NotFoundError):
            return
        pod["serviceAccountName"] = COORDINATOR_ACCOUNT
