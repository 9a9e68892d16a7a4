# SPDX-License-Identifier: Apache-2.0
"""Puts jobs of given numbers of GPUs on nodes, moving as few as it takes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.simulator.allocators.allocator import Present, Spots
    from kfp_volcano.elastic.simulator.scenario import Node

__all__ = ["held", "pack", "placeable"]


def held(spots: Spots) -> int:
    """GPUs of a job."""
    return sum(gpus for _, gpus in spots)


def placeable(most: int, whole: int) -> list[int]:
    """Numbers of GPUs up to `most` that find room on nodes of `whole` wherever there are as many in all.

    Up to a node each divides the next, and beyond that they are whole nodes.
    """
    parts = [whole]
    while parts[-1] > 1:
        parts.append(parts[-1] // next(factor for factor in range(2, parts[-1] + 1) if parts[-1] % factor == 0))
    return [size for size in sorted({*parts, *range(whole, most + 1, whole)}) if size <= most]


def pack(wanted: Sequence[tuple[Present, int]], nodes: Sequence[Node]) -> dict[str, Spots]:
    """Where each job is to be; those whose number stays the same stay where they are, as far as that leaves room.

    A job for which no room is found gets none.
    """
    board = _Board(nodes)
    moving = []
    for each, number in wanted:
        if number and held(each.spots) == number and board.fits(each.spots):
            board.put(each.job.name, each.spots)
        elif number:
            moving.append((number, each.job.name))
    for number, name in sorted(moving, key=lambda pair: -pair[0]):
        board.place(name, number)
    return board.spots


class _Board:
    """Who is where."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._size = {node.name: node.gpus for node in nodes}
        self._free = dict(self._size)
        self.spots: dict[str, Spots] = {}

    def fits(self, spots: Spots) -> bool:
        """Whether that is free."""
        return all(self._free.get(node, 0) >= gpus for node, gpus in spots)

    def put(self, name: str, spots: Spots) -> None:
        """Give it to a job."""
        self.spots[name] = spots
        for node, gpus in spots:
            self._free[node] -= gpus

    def place(self, name: str, number: int) -> None:
        """Find room for a job, if need be by moving smaller ones that are on one node."""
        evicted: list[tuple[int, str]] = []
        spots = self._room(number)
        while spots is None and (node := self._cheapest(number)):
            evicted += self._clear(node, number)
            spots = self._room(number)
        if spots is not None:
            self.put(name, spots)
        for gpus, other in sorted(evicted, key=lambda pair: -pair[0]):
            self.place(other, gpus)

    def _room(self, number: int) -> Spots | None:
        """Where it fits without moving anyone: on the fullest node that has room, or on free nodes."""
        whole = max(self._size.values())
        if number <= whole:
            fitting = [node for node, free in self._free.items() if free >= number]
            return ((min(fitting, key=self._free.__getitem__), number),) if fitting else None
        empty = [node for node, free in self._free.items() if free == self._size[node]]
        spots = []
        for node in sorted(empty, key=lambda node: -self._free[node]):
            taken = min(number, self._free[node])
            spots.append((node, taken))
            number -= taken
            if not number:
                return tuple(sorted(spots))
        return None

    def _cheapest(self, number: int) -> str | None:
        """The node that has most free of those on which only smaller jobs of one node are."""
        shared = {node for spots in self.spots.values() if len(spots) > 1 for node, _ in spots}
        least = min(number, max(self._size.values()))
        able = [
            node
            for node, free in self._free.items()
            if node not in shared
            and self._size[node] - free > 0
            and free < least <= self._size[node]
            and all(gpus < least for spots in self.spots.values() for at, gpus in spots if at == node)
        ]
        return max(able, key=self._free.__getitem__) if able else None

    def _clear(self, node: str, number: int) -> list[tuple[int, str]]:
        """Take the smallest jobs off a node until there is room for so many, or it is empty."""
        there = sorted((spots[0][1], name) for name, spots in self.spots.items() if spots[0][0] == node)
        gone = []
        for gpus, name in there:
            if self._free[node] >= min(number, self._size[node]):
                break
            del self.spots[name]
            self._free[node] += gpus
            gone.append((gpus, name))
        return gone
