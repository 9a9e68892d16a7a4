# SPDX-License-Identifier: Apache-2.0
"""The namespace in which an autoscaler's Leases are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError, ForbiddenError, NotFoundError, SpecError
from kfp_volcano.schemas.names import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["make_home"]

_log = logging.getLogger(__name__)


def make_home(cluster: Cluster, name: str) -> None:
    """See that the namespace is there. Raises SpecError where it is not.

    The shared autoscaler's is made where it is missing: by whoever may do that, a cluster on which nothing of this
    project is installed can be led from a laptop. Who may not see namespaces learns later that no Lease can be made.
    """
    try:
        cluster.get("Namespace", name)
    except ForbiddenError:
        return
    except NotFoundError as error:
        remedy = "kubectl apply -k deploy/base makes it; or lead one namespace alone: --namespace NAME"
        if name != SYSTEM_NAMESPACE or not _made(cluster, name):
            what = f"there is no namespace {name} for the Leases: {remedy}"
            raise SpecError(what, source="--namespace") from error


def _made(cluster: Cluster, name: str) -> bool:
    try:
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except ForbiddenError:
        return False
    except ConflictError:  # another replica was faster
        return True
    _log.info("made the namespace %s for the Leases", name)
    return True
