# SPDX-License-Identifier: Apache-2.0
"""Nodes that are the same to every pod: one is looked at for all of them.

A placement then costs a look at each state that nodes are in, and not at each node, and finds the same node.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from kfp_volcano.volcano.model.nodes import Node

__all__ = ["Alike"]


class Alike:
    """Nodes by their state.

    Args:
        kinds: Each node, in their order, and its kind: nodes of one kind have the same labels, taints and room.
    """

    def __init__(self, kinds: Mapping[Node, Hashable]) -> None:
        self._kinds = {node: (order, kind) for order, (node, kind) in enumerate(kinds.items())}
        self._states: dict[Node, Hashable] = {}
        self._counts: dict[Hashable, int] = {}
        self._lines: dict[Hashable, list[tuple[int, Node]]] = {}
        """Nodes in each state, the first in their order on top; some have left it since."""
        self._changed: dict[Node, None] = dict.fromkeys(kinds)
        for node in kinds:
            node.alike = self

    def changed(self, node: Node) -> None:
        """Its state may be another now."""
        self._changed[node] = None

    def firsts(self) -> Iterator[tuple[Node, int]]:
        """The first node in each state and how many are in it, in the order of these nodes."""
        self._settle()
        found = []
        for state, line in self._lines.items():
            while self._states[line[0][1]] != state:
                heapq.heappop(line)
            found.append((line[0], self._counts[state]))
        found.sort(key=lambda each: each[0][0])
        return ((node, count) for (_, node), count in found)

    def _settle(self) -> None:
        for node in self._changed:
            order, kind = self._kinds[node]
            before, state = self._states.get(node), (kind, node.state)
            if state == before:
                continue
            if before is not None:
                self._counts[before] -= 1
                if not self._counts[before]:
                    del self._counts[before], self._lines[before]
            self._states[node] = state
            self._counts[state] = self._counts.get(state, 0) + 1
            line = self._lines.setdefault(state, [])
            if (order, node) not in line:
                heapq.heappush(line, (order, node))
        self._changed.clear()
