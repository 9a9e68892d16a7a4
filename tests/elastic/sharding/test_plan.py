# SPDX-License-Identifier: Apache-2.0
"""What a plan says of a training that is still to come, and of arguments that cannot be. The laws: test_laws.py."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.sharding import Cursor, Plan, Sequential, bounds, order, share
from kfp_volcano.errors import SpecError

plans = st.builds(
    Plan,
    size=st.integers(1, 300),
    batch=st.integers(1, 70),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    last=st.sampled_from(["keep", "drop", "pad"]),
)


def cursors(plan: Plan, batch: int) -> list[Cursor]:
    """Where each step begins."""
    found, cursor = [], Cursor()
    while not plan.finished(cursor):
        found.append(cursor)
        cursor = plan.after(cursor, plan.count(cursor, batch))
    return found


@given(plans)
def test_steps_are_foreseen(plan: Plan) -> None:
    """With batches of one size the steps left, and the cursor after so many, are what walking there finds."""
    starts = cursors(plan, plan.batch)
    assert [plan.steps_left(cursor, plan.batch) for cursor in starts] == list(range(len(starts), 0, -1))
    assert [plan.after_steps(step) for step in range(len(starts))] == starts
    assert plan.steps_left(Cursor(plan.epochs), plan.batch) == 0


@given(plans)
def test_the_last_batch_is_as_the_rule_says(plan: Plan) -> None:
    """`drop` has no smaller batch unless the whole epoch is one; `pad` fills it up; `keep` feeds it as it is."""
    for cursor in cursors(plan, plan.batch):
        count, width = plan.count(cursor, plan.batch), plan.width(cursor, plan.batch)
        assert len(plan.ids(cursor, plan.batch)) == count
        assert width == (plan.batch if plan.last == "pad" else count)
        if plan.last == "drop":
            assert count == min(plan.batch, plan.size)


@given(st.integers(0, 500), st.integers(1, 40))
def test_equal_shares_follow_each_other(count: int, world: int) -> None:
    """The shares of a batch follow each other without gap or overlap, and differ by one at most."""
    edges = [bounds(count, rank, world) for rank in range(world)]
    assert edges[0][0] == 0
    assert edges[-1][1] == count
    assert all(left[1] == right[0] for left, right in pairwise(edges))
    sizes = [end - start for start, end in edges]
    assert max(sizes) - min(sizes) <= 1
    batch = order(0, 0, count)
    assert [len(share(batch, rank, world)) for rank in range(world)] == sizes


def test_orders_differ_between_epochs_and_seeds_and_never_change() -> None:
    """A released order is a promise to every checkpoint: these values must stay."""
    assert order(0, 0, 10).tolist() == PINNED
    assert order(0, 1, 10).tolist() != PINNED
    assert order(1, 0, 10).tolist() != PINNED


PINNED = [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_all_wrong_arguments_are_named_at_once() -> None:
    """A plan that cannot be is refused with every problem."""
    with pytest.raises(SpecError) as caught:
        Plan(size=0, batch=-1, epochs=0, seed=-5, last="skip", order=Sequential(9))  # type: ignore[arg-type]
    assert [problem.path for problem in caught.value.problems] == ["size", "batch", "epochs", "seed", "last", "size"]
