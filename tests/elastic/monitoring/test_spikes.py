# SPDX-License-Identifier: Apache-2.0
"""A number that leaps up: independent of scale, deaf to one hard batch, and never blind to NaN."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.monitoring import Spikes

calm = st.lists(st.floats(0.5, 1.5), min_size=10, max_size=10)


def leaps(values, spikes=None):
    """At which of the values a leap was told."""
    spikes = spikes or Spikes(factor=3.0, window=10, steps=3)
    return [index for index, value in enumerate(values) if spikes.add(value)]


@given(calm, st.floats(-5, 5), st.floats(0.01, 1e3))
def test_shifted_and_scaled_numbers_leap_where_these_do(values, shift, scale):
    """No loss needs another setting because of its units."""
    told = [*values, 9.0, 9.0, 9.0, 1.0]
    moved = [scale * (shift + value) for value in told]
    if max(values) - sorted(values)[5] > 0.1:  # else the floor, a part of the median, is the measure
        assert leaps(moved) == leaps(told)


@given(calm)
def test_a_leap_takes_steps_in_a_row_and_is_told_once(values):
    """One hard batch, or two, is no fault."""
    assert leaps([*values, 90.0, 90.0, min(values), 90.0]) == []
    assert leaps([*values, *[90.0] * 5]) == [12]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_told_at_once_and_without_a_window(value):
    """Before there is any measure, too, and once until it is over."""
    assert leaps([value, value, 1.0, value]) == [0, 3]


@given(st.lists(st.floats(0.5, 1.5), min_size=5, max_size=40))
def test_what_trembles_within_its_window_does_not_leap(values):
    """Numbers between bounds whose middle and highest the window has seen."""
    assert leaps([0.5, 1.5] * 5 + values) == []


def test_a_level_that_stays_is_the_new_usual():
    """After a window of it, so that the next leap is seen again."""
    spikes = Spikes(factor=3.0, window=10, steps=3)
    assert leaps([1.0, 1.1] * 5 + [50.0] * 25, spikes) == [12]
    assert leaps([50.0, 51.0, 50.0] * 8, spikes) == []
    assert leaps([900.0] * 3, spikes) == [2]


def test_hard_batches_widen_the_measure_a_little():
    """As far as they just would not have been too high: one of them does not make the watch blind."""
    spikes = Spikes(factor=3.0, window=10, steps=1)
    lone = Spikes(factor=3.0, window=10, steps=2)
    assert leaps([1.0, 1.1] * 5 + [1e9], spikes) == [10]
    assert leaps([1.0, 1.1] * 5 + [1e9, 1.0, 3.0, 3.0], lone) == [13]


@given(calm, st.integers(0, 15))
def test_a_state_handed_over_goes_on_the_same(values, at):
    """A newcomer decides as the others do."""
    told = [*values, 90.0, 90.0, 90.0, math.nan, 1.0, 90.0]
    one, other = Spikes(factor=3.0, window=10, steps=3), Spikes(factor=3.0, window=10, steps=3)
    before = leaps(told[:at], one)
    other.load_state_dict(one.state_dict())
    after = leaps(told[at:], other)
    assert before + [at + index for index in after] == leaps(told)
