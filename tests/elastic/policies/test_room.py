# SPDX-License-Identifier: Apache-2.0
"""Room counts whole workers on single nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from books import free, name, pods, room, states
from kfp_volcano.elastic.policies.room import Room, Spot, room_of, unclaimed
from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE, NodeState, QueueSnapshot, Shape
from wishes import JOB

spots = st.builds(
    lambda now, coming, fits: Spot(now, now + coming, fits),
    st.integers(0, 8),
    st.integers(0, 4),
    st.just(()) | st.integers(0, 4).map(lambda most: (("a", most),)),
)
rooms = st.builds(
    lambda limit, coming, named, crowd: Room(
        limit, limit + coming, {f"node-{at}": spot for at, spot in enumerate(named)}, Counter(crowd)
    ),
    st.integers(0, 20),
    st.integers(0, 8),
    st.lists(spots, max_size=3),
    st.lists(spots, max_size=3),
)


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
    assert room(limit, nodes).workers("", each) == workers


def test_pods_go_where_they_leave_the_least():
    """Placing keeps the largest gaps whole."""
    assert room(8, (4, 1)).take(pods([1])) == room(7, (4, 0))


def test_the_limit_counts_as_well_as_the_nodes():
    """GPUs on nodes are no room for a queue that may not use them."""
    assert room(1, (4, 4)).take(pods([1, 1])) is None


@pytest.mark.parametrize("later", [False, True])
def test_no_pods_at_all_fit_also_where_a_queue_holds_more_than_it_may(later):
    """Its limit was cut: who gives up workers takes nothing, so that nothing stands against it."""
    assert room(-2, (0, 0)).take([], later=later) == room(-2, (0, 0))


def test_only_what_is_held_on_a_usable_node_comes_free_for_others():
    """A worker without a node gives nothing, one on a cordoned node gives no room on a node; and all of it later."""
    after = room(0, (0, 0)).give(("node-1", NOWHERE, UNUSABLE), 2)
    assert (after.limit, after.limit_later, free(after)) == (0, 4, (0, 2))
    assert after.workers("", 1) == 0


def test_what_else_a_node_is_short_of_bounds_the_shape_that_needs_it():
    """Four GPUs and CPU for one: one worker of that shape, four of another."""
    node = {"node-0": Spot(4, 4, (("large", 1),))}
    tight = Room(8, 8, node, shapes={"large": Shape(name="large", requests={"cpu": 8000})})
    assert (tight.workers("large", 1), tight.workers("small", 1)) == (1, 4)
    after = tight.take([("large", 1)])
    assert after is not None
    assert after.workers("large", 1) == 0


def test_what_was_promised_to_other_queues_is_not_free():
    """A pod of another queue that waits for its node takes room on nodes, and nothing of this queue's limit."""
    snapshot = QueueSnapshot(
        queue="research", at=0.0, limit_gpus=8, allocated_gpus=0, crowd={NodeState(4): 2}, reserved=(("", 2),)
    )
    left = room_of(snapshot)
    assert (left.limit, left.workers("", 1)) == (8, 6)


def test_nothing_is_kept_for_workers_that_have_ended():
    """Volcano puts nothing in their place; what waits beside them is still promised."""
    nodes = (name(0), NOWHERE, NOWHERE, NOWHERE)
    job = replace(JOB, workers=4, min_workers=1, nodes=nodes, ended=2)
    snapshot = QueueSnapshot(queue="research", at=0.0, limit_gpus=8, allocated_gpus=1, nodes=states((7,)), jobs=(job,))
    assert unclaimed(room_of(snapshot), snapshot).gpus == 6


@given(rooms, st.sampled_from(["", "a"]), st.integers(1, 4), st.integers(0, 10), st.booleans())
def test_taking_workers_succeeds_exactly_up_to_their_number(some, shape, each, count, later):
    """`workers` and `take` agree, now and later."""
    fits = some.take(pods([each] * count, shape), later=later) is not None
    assert fits == (count <= some.workers(shape, each, later=later))


@given(rooms, st.lists(st.integers(1, 4), max_size=5), st.booleans())
def test_taking_never_leaves_less_than_nothing(some, wanted, later):
    """What is handed out was there; what is free now is never more than what is free later."""
    after = some.take(pods(wanted), later=later)
    if after is not None:
        left = [*after.named.values(), *after.crowd]
        assert all(0 <= spot.now <= spot.later for spot in left)
        assert after.limit_later == some.limit_later - sum(wanted)
        assert total(after) == total(some) - sum(wanted)


@given(rooms, st.lists(st.integers(1, 4), max_size=5))
def test_nodes_count_the_same_with_and_without_a_name(some, wanted):
    """To tell nodes apart changes nothing."""
    told = {f"other-{at}": spot for at, spot in enumerate(Counter(some.crowd).elements())}
    named = replace(some, named={**some.named, **told}, crowd={})
    one, other = some.take(pods(wanted)), named.take(pods(wanted))
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert [one.workers("", gpus) for gpus in (1, 2, 3)] == [other.workers("", gpus) for gpus in (1, 2, 3)]


def total(some):
    return sum(spot.later for spot in some.named.values()) + sum(
        spot.later * count for spot, count in some.crowd.items()
    )
