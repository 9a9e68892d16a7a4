"""The laws of sharding, by their names in the design's reference (I1 … I13)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.sharding import Cursor, Plan, bounds, order, share
from kfp_volcano.errors import SpecError

plans = st.builds(
    Plan,
    size=st.integers(1, 300),
    batch=st.integers(1, 70),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
worlds = st.lists(st.integers(1, 9), min_size=1, max_size=20)


def fed(plan: Plan, sizes: list[int]) -> list[list[np.ndarray]]:
    """Each step's shares, where the number of workers at step t is the t-th of `sizes`, round and round."""
    return [
        [share(plan.ids(cursor, plan.batch), rank, world) for rank in range(world)]
        for step, cursor in enumerate(cursors(plan, [plan.batch]))
        for world in [sizes[step % len(sizes)]]
    ]


def cursors(plan: Plan, batches: list[int]) -> list[Cursor]:
    """Where each step begins, if the t-th batch has the t-th of these sizes, round and round."""
    found, cursor = [], Cursor()
    while not plan.finished(cursor):
        found.append(cursor)
        cursor = plan.after(cursor, len(plan.ids(cursor, batches[(len(found) - 1) % len(batches)])))
    return found


@given(plans, worlds)
def test_i1_i2_every_sample_once_an_epoch(plan: Plan, sizes: list[int]) -> None:
    """Whatever the numbers of workers, each epoch feeds every sample exactly once: none lost, none padded."""
    steps = fed(plan, sizes)
    for epoch in range(plan.epochs):
        each = -(-plan.size // plan.batch)
        shares = steps[epoch * each : (epoch + 1) * each]
        ids = np.concatenate([part for step in shares for part in step])
        assert sorted(ids.tolist()) == list(range(plan.size))


@given(plans, worlds, worlds)
def test_i3_batches_do_not_depend_on_the_workers(plan: Plan, one: list[int], other: list[int]) -> None:
    """Global batch t is the same set for every sequence of sizes."""
    for left, right in zip(fed(plan, one), fed(plan, other), strict=True):
        assert sorted(np.concatenate(left).tolist()) == sorted(np.concatenate(right).tolist())


@given(st.integers(0, 500), st.integers(1, 40))
def test_i4_i13_shares_are_disjoint_and_even(count: int, world: int) -> None:
    """The shares of a batch follow each other without gap or overlap, and differ by one at most."""
    edges = [bounds(count, rank, world) for rank in range(world)]
    assert edges[0][0] == 0
    assert edges[-1][1] == count
    assert all(left[1] == right[0] for left, right in pairwise(edges))
    sizes = [end - start for start, end in edges]
    assert max(sizes) - min(sizes) <= 1


@given(plans, st.lists(st.integers(1, 70), min_size=1, max_size=9))
def test_i5_the_cursor_counts_what_the_batches_hold(plan: Plan, batches: list[int]) -> None:
    """Samples committed grow by each batch's length, whatever their sizes, to all samples of all epochs."""
    starts = cursors(plan, batches)
    lengths = [len(plan.ids(cursor, batches[t % len(batches)])) for t, cursor in enumerate(starts)]
    assert [plan.samples(cursor) for cursor in starts] == [sum(lengths[:t]) for t in range(len(starts))]
    assert sum(lengths) == plan.size * plan.epochs
    assert [plan.cursor(plan.samples(cursor)) for cursor in starts] == starts
    assert all(length > 0 for length in lengths)


@given(plans)
def test_steps_are_foreseen(plan: Plan) -> None:
    """With batches of one size the steps left, and the cursor after so many, are what walking there finds."""
    starts = cursors(plan, [plan.batch])
    left = [plan.steps_left(cursor, plan.batch) for cursor in starts]
    assert left == list(range(len(starts), 0, -1))
    assert [plan.after_steps(step) for step in range(len(starts))] == starts
    assert plan.steps_left(Cursor(plan.epochs), plan.batch) == 0


@given(plans, st.lists(st.integers(1, 70), min_size=1, max_size=9))
def test_i9_batches_may_differ_in_size(plan: Plan, batches: list[int]) -> None:
    """Whatever the sizes of the batches, each epoch is a walk through its order."""
    starts = cursors(plan, batches)
    for epoch in range(plan.epochs):
        fed = [
            plan.ids(cursor, batches[step % len(batches)])
            for step, cursor in enumerate(starts)
            if cursor.epoch == epoch
        ]
        assert np.concatenate(fed).tolist() == order(plan.seed, epoch, plan.size).tolist()


@given(plans, worlds, st.data())
def test_i6_any_step_can_be_taken_up_again(plan: Plan, sizes: list[int], data: st.DataObject) -> None:
    """From the cursor alone, a fresh process feeds the same rest of the training."""
    starts = cursors(plan, sizes)
    step = data.draw(st.integers(0, len(starts) - 1))
    rest = [plan.ids(cursor, plan.batch).tolist() for cursor in starts[step:]]
    order.cache_clear()
    again = Plan(size=plan.size, batch=plan.batch, epochs=plan.epochs, seed=plan.seed)
    assert [again.ids(cursor, plan.batch).tolist() for cursor in starts[step:]] == rest


@given(plans, st.integers(1, 9), st.integers(1, 9))
def test_i7_going_back_to_a_size_changes_nothing(plan: Plan, world: int, between: int) -> None:
    """W → W' → W feeds each worker what it would have fed without the detour."""
    straight, detour = fed(plan, [world]), fed(plan, [world, between, world])
    for step in range(0, len(straight), 3):
        assert [part.tolist() for part in straight[step]] == [part.tolist() for part in detour[step]]


@given(st.integers(0, 2**32), st.integers(0, 50), st.integers(1, 400))
def test_i10_an_epochs_order_is_a_bijection_of_seed_and_epoch(seed: int, epoch: int, size: int) -> None:
    """The order depends on nothing else, and holds every sample."""
    first = order(seed, epoch, size).tolist()
    order.cache_clear()
    assert order(seed, epoch, size).tolist() == first
    assert sorted(first) == list(range(size))


def test_orders_differ_between_epochs_and_seeds_and_never_change() -> None:
    """A released order is a promise to every checkpoint: these values must stay."""
    assert order(0, 0, 10).tolist() == PINNED
    assert order(0, 1, 10).tolist() != PINNED
    assert order(1, 0, 10).tolist() != PINNED


PINNED = [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_all_wrong_arguments_are_named_at_once() -> None:
    """A plan that cannot be is refused with every problem."""
    with pytest.raises(SpecError) as caught:
        Plan(size=0, batch=-1, epochs=0, seed=-5)
    assert [problem.path for problem in caught.value.problems] == ["size", "batch", "epochs", "seed"]
