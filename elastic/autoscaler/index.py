"""What a cluster's objects come to for the autoscaler, kept up to date event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ClusterIndex"]


class ClusterIndex:
    """Compact records of the objects of `WATCHED`."""

    @property
    def queues(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each queue, by name."""
        return {}
