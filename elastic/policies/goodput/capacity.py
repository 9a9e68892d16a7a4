# SPDX-License-Identifier: Apache-2.0
"""What physically fits, as few linear rows: nodes that are alike are one pool. Pure.

Whether pods fit on nodes is a packing, and linear all the same where each pod size divides the next (1, 2, 4, 8 GPUs):
placed from large to small, a pod of h GPUs takes just h/g places of a smaller pod's g, so that all fit if and only if
for each size g the places taken by pods of g and more are at most the sum over nodes of floor(free/g). Elsewhere (sizes
3 and 2, or a node short of memory) the rows only say what cannot fit, and plans are tried on the room too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.elastic.policies.room import Room, Spot

__all__ = ["Capacity", "Kind", "Pool", "capacity_of"]


class Kind(NamedTuple):
    """Pods that are the same to every node."""

    shape: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are alike, together."""

    gpu_class: str
    takes: frozenset[Kind]
    """The kinds that may go there at all."""
    places: tuple[int, ...]
    """By level: how many pods of its GPUs fit, if there were no others."""
    most: Mapping[Kind, int] = field(default_factory=dict)
    """Of kinds of which it takes fewer than its GPUs would allow."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What can be placed: now, or once all that leaves is gone."""

    limit: int
    """GPUs."""
    levels: tuple[int, ...]
    """The GPUs of a pod that occur, rising."""
    pools: tuple[Pool, ...]
    pool_of: Mapping[str, int]
    """By node; of nodes that workers may leave."""

    def pools_for(self, kind: Kind, gpu_class: str | None = None) -> tuple[int, ...]:
        """Where pods of a kind may go; of one class, or of any."""
        return tuple(
            index for index, pool in enumerate(self.pools) if kind in pool.takes and gpu_class in {None, pool.gpu_class}
        )

    def weight(self, gpus: int, level: int) -> int:
        """How many places of a level a pod takes: none of those for larger pods than itself."""
        return gpus // self.levels[level]

    def given(self, nodes: Iterable[str]) -> tuple[tuple[int, int], ...]:
        """(pool, pods) that leave these nodes."""
        return tuple(sorted(Counter(self.pool_of[node] for node in nodes if node in self.pool_of).items()))

    @staticmethod
    def held(nodes: Iterable[str]) -> int:
        """How many of these positions hold GPUs."""
        return sum(node != NOWHERE for node in nodes)


def capacity_of(room: Room, kinds: Sequence[Kind], *, later: bool) -> Capacity:
    """The room for pods of these kinds: what is free now, or `later` when all that leaves is gone."""
    levels = tuple(sorted({kind.gpus for kind in kinds}))
    pools: dict[tuple[str, frozenset[Kind]], list[tuple[Spot, int]]] = defaultdict(list)
    node_keys: dict[str, tuple[str, frozenset[Kind]]] = {}
    known: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[str, frozenset[Kind]]] = {}

    def put(spot: Spot, count: int) -> tuple[str, frozenset[Kind]]:
        alike = (spot.gpu_class, spot.fits)
        if alike not in known:
            known[alike] = (spot.gpu_class, frozenset(kind for kind in kinds if _takes(spot, kind, room)))
        pools[known[alike]].append((spot, count))
        return known[alike]

    for name, spot in sorted(room.named.items()):
        node_keys[name] = put(spot, 1)
    for spot, count in sorted(room.crowd.items()):
        put(spot, count)
    order = sorted(pools, key=lambda key: (key[0], sorted(key[1])))
    numbers = {key: number for number, key in enumerate(order)}
    made = tuple(_pool(key, pools[key], levels, later=later) for key in order)
    return Capacity(
        limit=max(0, room.limit_later if later else room.limit),
        levels=levels,
        pools=made,
        pool_of={name: numbers[key] for name, key in node_keys.items() if name != UNUSABLE},
    )


def _takes(spot: Spot, kind: Kind, room: Room) -> bool:
    shape = room.shapes.get(kind.shape)
    if shape is not None and shape.gpu_classes and spot.gpu_class not in shape.gpu_classes:
        return False
    return dict(spot.fits).get(kind.shape, 1) > 0


def _pool(
    key: tuple[str, frozenset[Kind]], spots: Sequence[tuple[Spot, int]], levels: Sequence[int], *, later: bool
) -> Pool:
    gpu_class, takes = key
    places = tuple(
        sum((spot.later if later else spot.now) // level * count for spot, count in spots) for level in levels
    )
    short = {shape for spot, _ in spots for shape, _ in spot.fits}
    fitting = {
        kind: sum(spot.pods(kind.shape, kind.gpus, later=later) * count for spot, count in spots)
        for kind in sorted(takes)
        if kind.shape in short
    }
    most = {kind: count for kind, count in fitting.items() if count < places[levels.index(kind.gpus)]}
    return Pool(gpu_class, takes, places, most)
