# SPDX-License-Identifier: Apache-2.0
"""Puts jobs on nodes one after another, always where most is free: as the published schedulers do. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.elastic.simulator.allocators.allocator import Spots
    from kfp_volcano.elastic.simulator.scenario import Node

__all__ = ["Free"]


class Free:
    """GPUs that nobody holds, by node."""

    def __init__(self, nodes: Sequence[Node], held: Iterable[Spots]) -> None:
        self._free = {node.name: node.gpus for node in nodes}
        for spots in held:
            for node, gpus in spots:
                self._free[node] -= gpus

    @property
    def total(self) -> int:
        """Of all nodes."""
        return sum(self._free.values())

    def take(self, gpus: int) -> Spots:
        """So many, no more than there are; from the node with most, the first of those with as many."""
        spots: list[tuple[str, int]] = []
        while gpus > 0:
            node = max(self._free, key=self._free.__getitem__)
            taken = min(gpus, self._free[node])
            spots.append((node, taken))
            self._free[node] -= taken
            gpus -= taken
        return tuple(spots)
