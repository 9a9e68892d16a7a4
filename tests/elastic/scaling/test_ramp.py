# SPDX-License-Identifier: Apache-2.0
"""The way from one learning rate to the next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.scaling import Ramp

targets = st.lists(st.tuples(st.floats(0.1, 64), st.integers(0, 500)), min_size=1)


@given(targets, st.integers(0, 300))
def test_it_ends_at_the_target_to_the_bit(way: list[tuple[float, int]], length: int) -> None:
    """However often the target changed on the way, and wherever it was then."""
    ramp, samples = Ramp(length=length), 0
    for target, later in way:
        ramp, samples = ramp.toward(target, samples), samples + later
    assert ramp.at(samples + length) == way[-1][0]


@given(targets, st.integers(1, 300))
def test_it_makes_no_jump(way: list[tuple[float, int]], length: int) -> None:
    """A new target begins where the ramp has come to, and what follows is in between."""
    ramp, samples = Ramp(length=length), 0
    for target, later in way:
        here = ramp.at(samples)
        ramp = ramp.toward(target, samples)
        assert ramp.at(samples) == pytest.approx(here)
        low, high = sorted((here, target))
        assert low * 0.999 <= ramp.at(samples + later) <= high * 1.001
        samples += later


def test_it_begins_at_the_base_learning_rate() -> None:
    """A training that begins with four times the base batch goes there in steps of the same size."""
    ramp = Ramp(length=100).toward(5.0, 0)
    assert [ramp.at(samples) for samples in (0, 25, 50, 100, 1000)] == [1.0, 2.0, 3.0, 5.0, 5.0]
