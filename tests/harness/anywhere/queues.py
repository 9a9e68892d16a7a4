# SPDX-License-Identifier: Apache-2.0
"""Queues of a test's own on a real cluster."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ClusterError, ConflictError, NotFoundError
from kfp_volcano.volcano.manifests.queues import queue_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["open_queue", "remove_queue"]

PATIENCE_S = 120.0


def open_queue(
    cluster: Cluster, name: str, capability: Mapping[str, str], deserved: Mapping[str, str] | None = None
) -> None:
    """Make a queue, and wait until it takes Jobs."""
    spec: dict[str, Any] = {"weight": 1, "reclaimable": True, "capability": dict(capability)}
    if deserved is not None:
        spec["deserved"] = dict(deserved)
    cluster.create(
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    )
    deadline = time.monotonic() + PATIENCE_S
    while cluster.get("Queue", name).get("status", {}).get("state") != "Open":
        assert time.monotonic() < deadline, cluster.get("Queue", name)
        _next_change(cluster)


def remove_queue(cluster: Cluster, name: str) -> None:
    """Take it away: Volcano deletes only a queue that is closed, and closes it when nothing is in it any more."""
    deadline = time.monotonic() + PATIENCE_S
    with suppress(NotFoundError, ConflictError):
        cluster.create(queue_command(cluster.get("Queue", name), "CloseQueue"))
    while not _deleted(cluster, name):
        assert time.monotonic() < deadline, cluster.get("Queue", name)
        _next_change(cluster)


def _deleted(cluster: Cluster, name: str) -> bool:
    try:
        cluster.delete("Queue", name)
    except NotFoundError:
        return True
    except ClusterError:
        return False
    return True


def _next_change(cluster: Cluster) -> None:
    version = cluster.list("Queue")[1]
    next(iter(cluster.watch("Queue", resource_version=version, timeout_s=1.0)), None)
