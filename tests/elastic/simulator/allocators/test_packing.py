# SPDX-License-Identifier: Apache-2.0
"""Placing jobs on nodes: whatever the numbers are, all find room where each divides the next, and few move."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.simulator.allocators.allocator import Present, Spots
from kfp_volcano.elastic.simulator.allocators.packing import held, pack, placeable
from kfp_volcano.elastic.simulator.allocators.pollux import least
from kfp_volcano.elastic.simulator.scenario import Job, Node
from kfp_volcano.elastic.simulator.work import Placement

_NODES = tuple(Node(name=f"node-{number}", gpus=4) for number in range(6))
_SIZES = [0, *placeable(24, 4)]


class _Nothing:
    """Work, and its training, that packing never looks at."""

    done = 0.0
    batch = noise_scale = None
    measured = ()

    def begin(self, *, adaptive: bool = False) -> _Nothing:
        del adaptive
        return self

    def alone_s(self, gpus: int) -> float:
        return 1.0 / gpus

    def advance(self, placement: Placement, seconds: float) -> float:
        del placement
        return seconds

    def left(self, placement: Placement) -> float:
        return 1.0 / max(placement.total, 1)


def _present(name: str, spots: Spots) -> Present:
    job = Job(name=name, submitted_at=0, work=_Nothing(), workers=1, min_workers=1, max_workers=64)
    return Present(job=job, training=_Nothing(), spots=spots, served_gpu_s=0, restarts=0)


def _within(numbers: list[int]) -> dict[str, int]:
    """As many of them as the nodes have GPUs for."""
    total, found = sum(node.gpus for node in _NODES), {}
    for index, number in enumerate(numbers):
        taken = number if number <= total else 0
        total -= taken
        found[f"job-{index}"] = taken
    return found


@given(before=st.lists(st.sampled_from(_SIZES), max_size=12), after=st.lists(st.sampled_from(_SIZES), max_size=12))
def test_every_number_finds_room(before: list[int], after: list[int]) -> None:
    """All jobs get exactly what they are to have, no node holds more than it has, and no two jobs share a node that
    are on several."""
    spots: dict[str, Spots] = {}
    for wanted in (_within(before), _within(after)):
        spots = pack([(_present(name, spots.get(name, ())), number) for name, number in wanted.items()], _NODES)
        assert {name: held(each) for name, each in spots.items()} == {name: n for name, n in wanted.items() if n}
        used = Counter({node.name: 0 for node in _NODES})
        for each in spots.values():
            used.update(dict(each))
        assert max(used.values()) <= 4
        spread = Counter(node for each in spots.values() if len(each) > 1 for node, _ in each)
        assert max(spread.values(), default=1) == 1


@given(numbers=st.lists(st.sampled_from(_SIZES), max_size=12))
def test_nobody_moves_for_nothing(numbers: list[int]) -> None:
    """Who has what it is to have stays where it is, where nobody else wants anything."""
    wanted = _within(numbers)
    spots = pack([(_present(name, ()), number) for name, number in wanted.items()], _NODES)
    again = pack([(_present(name, spots.get(name, ())), number) for name, number in wanted.items()], _NODES)
    assert again == spots


@pytest.mark.parametrize(
    ("whole", "sizes"), [(4, [1, 2, 4, 8, 12]), (8, [1, 2, 4, 8]), (6, [1, 3, 6, 12]), (1, [1, 2])]
)
def test_sizes_that_always_find_room(whole: int, sizes: list[int]) -> None:
    """Parts of a node each of which divides the next, and whole nodes."""
    assert placeable(sizes[-1], whole) == sizes


@given(
    costs=st.lists(
        st.dictionaries(st.integers(1, 5), st.integers(0, 20).map(float), max_size=3).map(
            lambda each: {0: 20.0, **each}
        ),
        max_size=4,
    ),
    total=st.integers(0, 8),
)
def test_the_numbers_cost_least(costs: list[dict[int, float]], total: int) -> None:
    """No other numbers that fit cost less than those of the dynamic programme."""

    def cheapest(left: int, rest: list[dict[int, float]]) -> float:
        if not rest:
            return 0.0
        return min(cost + cheapest(left - number, rest[1:]) for number, cost in rest[0].items() if number <= left)

    numbers = least(costs, total)
    assert sum(numbers) <= total
    assert sum(options[number] for options, number in zip(costs, numbers, strict=True)) == cheapest(total, costs)
