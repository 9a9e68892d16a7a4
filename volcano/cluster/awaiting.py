# SPDX-License-Identifier: Apache-2.0
"""Wait until the cluster shows something."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from kfp_volcano.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["until"]

Found = TypeVar("Found")


def until(
    cluster: Cluster,
    kind: str,
    namespace: str,
    find: Callable[[list[Manifest]], Found | None],
    *,
    patience_s: float,
) -> Found | None:
    """Read the objects of a kind, again with each change, until `find` finds something in them.

    Args:
        cluster: Where.
        kind: The kind.
        namespace: Only there; everywhere where empty.
        find: Says what it found, None while that is nothing.
        patience_s: How long at most, seconds; they are read once at least.

    Returns what was found, None where time is over. Raises ClusterError.
    """
    deadline = time.monotonic() + patience_s
    while True:
        objects, version = cluster.list(kind, namespace)
        found = find(objects)
        left = deadline - time.monotonic()
        if found is not None or left <= 0:
            return found
        with suppress(ConflictError):  # the version is too old by now: list again
            next(iter(cluster.watch(kind, namespace, resource_version=version, timeout_s=left)), None)
