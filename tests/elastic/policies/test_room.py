"""Room counts whole workers on single nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.room import Room
from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE

rooms = st.builds(Room, st.integers(0, 20), st.lists(st.integers(0, 8), max_size=4).map(tuple))


@pytest.mark.parametrize(
    ("limit", "nodes", "each", "workers"),
    [
        (8, (4, 4), 1, 8),
        (8, (3, 3), 2, 2),
        (3, (4, 4), 2, 1),
        (-2, (4, 4), 1, 0),
        (8, (1, 1, 1), 2, 0),
        (8, (), 1, 0),
    ],
)
def test_workers_are_rounded_down_on_each_node(limit, nodes, each, workers):
    """A part of a worker does not run, and none runs across two nodes."""
    assert Room(limit, nodes).workers(each) == workers


def test_pods_go_where_they_leave_the_least():
    """Placing keeps the largest gaps whole."""
    assert Room(8, (4, 1)).take((1,)) == Room(7, (4, 0))


def test_the_limit_counts_as_well_as_the_nodes():
    """GPUs on nodes are no room for a queue that may not use them."""
    assert Room(1, (4, 4)).take((1, 1)) is None


def test_only_what_is_held_on_a_usable_node_comes_free_for_others():
    """A worker without a node gives nothing, one on a cordoned node gives no room on a node."""
    assert Room(0, (0, 0)).give((1, NOWHERE, UNUSABLE), 2) == Room(4, (0, 2))


@given(rooms, st.integers(1, 4), st.integers(0, 10))
def test_taking_workers_succeeds_exactly_up_to_their_number(room, each, count):
    """`workers` and `take` agree."""
    assert (room.take([each] * count) is not None) == (count <= room.workers(each))


@given(rooms, st.lists(st.integers(1, 4), max_size=5))
def test_taking_never_leaves_less_than_nothing(room, pods):
    """What is handed out was there."""
    after = room.take(pods)
    if after is not None:
        assert min(after.nodes, default=0) >= 0
        assert after.limit == room.limit - sum(pods)
        assert sum(after.nodes) == sum(room.nodes) - sum(pods)
