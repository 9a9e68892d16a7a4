# SPDX-License-Identifier: Apache-2.0
"""What workers decide together after a step, from the rows all of them see."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.runtime.message import METRICS, Decision, Flag, Row

SILENCE_S = 0.9
rows = st.builds(
    Row,
    state=st.integers(0, 2**24 - 1),
    flags=st.sampled_from([Flag(value) for value in range(8)]),
    silent_s=st.floats(0, 5, width=32),
    count=st.integers(0, 2**20),
    loss=st.floats(-100, 100, width=32),
    node=st.integers(0, 2**24 - 1),
    summed_s=st.floats(0, 5, width=32),
    worker=st.integers(0, 2**24 - 1),
    computed_s=st.floats(0, 5, width=32),
    noise=st.sampled_from([-1.0, 0.0, math.inf]) | st.floats(0, 2**20, width=32),
    norm=st.floats(-1, 100, width=32),
    evaluated=st.integers(0, 2**20),
    metrics=st.tuples(*[st.floats(-1, 1, width=32)] * METRICS),
)


@given(rows)
def test_a_row_travels_unchanged_in_float32(row: Row) -> None:
    """Summed with the others' zeros in single precision, every number arrives as it left."""
    total = torch.tensor(row.numbers(), dtype=torch.float32) + torch.zeros(len(row.numbers()))
    assert Row.of(total.tolist()) == row


@given(st.lists(rows, min_size=1, max_size=8))
def test_leavers_part_when_the_last_has_been_silent_for_long_enough(seen: list[Row]) -> None:
    """No quorum while a leaver's heart may still be taken for beating; the group that all leave ends at once."""
    decision = Decision.of(seen, silence_s=SILENCE_S)
    leavers = [row for row in seen if Flag.LEAVING in row.flags]
    waiting = any(row.silent_s < SILENCE_S for row in leavers) and len(leavers) < len(seen)
    assert decision.part == (bool(leavers) and not waiting)
    assert not (waiting and decision.renew)
    assert decision.everyone == (len(leavers) == len(seen))
    assert decision.save or not decision.everyone


def test_only_steps_of_one_state_that_feed_the_whole_batch_count() -> None:
    """Workers with different pasts, samples too many or too few, and a failed sum are named."""
    row = Row(state=7, flags=Flag(0), silent_s=0.0, count=5, loss=1.0)
    other = Row(state=8, flags=Flag(0), silent_s=0.0, count=5, loss=1.0)
    assert Row.disagreement([row, row], [5, 5]) == ""
    assert "lost" in Row.disagreement([], [5, 5])
    assert "different states" in Row.disagreement([row, other], [5, 5])
    assert "[5, 5] samples were fed instead of [4, 6]" in Row.disagreement([row, row], [4, 6])
