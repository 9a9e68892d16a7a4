# SPDX-License-Identifier: Apache-2.0
"""From watched objects to what a policy may know. Pure: objects and time come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.observing.index import WATCHED, ClusterIndex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["WATCHED", "indexed", "observe"]


def observe(objects: Mapping[str, Sequence[Manifest]], *, queue: str, now: float, namespace: str = "") -> QueueSnapshot:
    """The snapshot of a queue at `now` (Unix seconds).

    Args:
        objects: What the cluster holds, by kind (`WATCHED`); a kind that is absent counts as empty.
        queue: The queue's name.
        now: Unix seconds.
        namespace: Where Jobs may be resized; those of other namespaces only count as load. Empty: everywhere.
    """
    return indexed(objects).snapshot(queue, now, namespace)


def indexed(objects: Mapping[str, Sequence[Manifest]]) -> ClusterIndex:
    """An index of what the cluster holds, by kind."""
    index = ClusterIndex()
    for kind in WATCHED:
        index.replace(kind, objects.get(kind, ()))
    return index
