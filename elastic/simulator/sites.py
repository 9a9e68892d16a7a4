# SPDX-License-Identifier: Apache-2.0
"""Where a scenario's nodes are down, and what a place on them is to a training. Pure."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.work import Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kfp_volcano.elastic.simulator.allocators.allocator import Spots
    from kfp_volcano.elastic.simulator.scenario import Node, Scenario

__all__ = ["Sites", "Turn", "turns"]

Turn = tuple[float, str, bool]
"""(when, node, whether it is there from then on)."""


class Sites:
    """The nodes of a scenario.

    Args:
        nodes: In their order.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._classes = {node.name: node.gpu_class for node in nodes}
        self._mixed = len(set(self._classes.values())) > 1
        self._known: dict[Spots, Placement] = {}

    def placement(self, spots: Spots) -> Placement:
        """What these GPUs are to a training."""
        known = self._known.get(spots)
        if known is None:
            classes = tuple(self._classes[node] for node, _ in spots) if self._mixed else ()
            known = self._known[spots] = Placement(tuple(gpus for _, gpus in spots), classes)
        return known


def turns(scenario: Scenario) -> Iterator[Turn]:
    """When nodes go and come, in order of time: a node is there again when the last of its outages is over."""
    ends = [(outage.at, False, outage.node) for outage in scenario.outages if outage.until > outage.at]
    ends += [(outage.until, True, outage.node) for outage in scenario.outages if outage.until > outage.at]
    heapq.heapify(ends)
    down: dict[str, int] = {}
    while ends:
        at, back, node = heapq.heappop(ends)
        before = down.get(node, 0)
        down[node] = before + (-1 if back else 1)
        if not before or not down[node]:
            yield at, node, back
