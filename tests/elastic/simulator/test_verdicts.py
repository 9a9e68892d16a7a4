# SPDX-License-Identifier: Apache-2.0
"""Which of two policies is better: scipy as the oracle, and what must not be said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kfp_volcano.elastic.simulator.figures import Figures
from kfp_volcano.elastic.simulator.verdicts import holm, interval, sentence, verdicts


def figure(jct: float | None, **given: Any) -> Figures:
    whole: dict[str, Any] = {
        "jobs": 10, "not_ended": 0, "avg_jct": jct, "p50_jct": jct, "p99_jct": jct, "makespan": jct, "avg_wait": 0.0,
        "p99_wait": 0.0, "utilisation": 0.5, "goodput": 0.5, "avg_rho": 1.0, "worst_rho": 1.0, "unfair": 0.0,
        "jain": 1.0, "resizes": 0, "restarts": 0, "gpu_h": 1.0, "lost_gpu_h": 0.0,
    }  # fmt: skip
    return Figures(**{**whole, **given})


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=2, max_size=30))
def test_a_comparison_is_the_paired_t_test_of_logarithms(pairs: list[tuple[float, float]]) -> None:
    """With a single policy beside the first there is nothing to correct."""
    logs = np.array([math.log(one / other) for one, other in pairs])
    if np.std(logs) < 1e-6:
        return
    given_ = {"a": [figure(other) for _, other in pairs], "b": [figure(one) for one, _ in pairs]}
    (found,) = verdicts(given_, ["avg_jct"])
    expected = stats.ttest_1samp(logs, 0.0)
    low, high = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6)
    assert found.change is not None
    assert (found.change.low, found.change.high) == pytest.approx((math.expm1(low), math.expm1(high)), rel=1e-6)


def test_holms_correction_is_that_of_his_example() -> None:
    """The smallest counts n times, and no p may become smaller than one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_the_verdict_says_who_is_better_by_how_much_and_how_sure_that_is() -> None:
    """A tenth less, replication by replication."""
    first = [figure(jct) for jct in (100.0, 200.0, 400.0, 300.0)]
    other = [figure(jct) for jct in (90.1, 179.9, 360.2, 270.0)]
    (found,) = verdicts({"fifo": first, "goodput": other}, ["avg_jct"])
    assert found.better
    assert sentence(found) == (
        "goodput is better than fifo in avg JCT: -10.0 % [-10.1 % to -9.9 %], p < 0.001, 4 pairs."
    )
    (back,) = verdicts({"goodput": other, "fifo": first}, ["avg_jct"])
    assert back.significant
    assert not back.better
    assert "fifo is worse than goodput" in sentence(back)


def test_the_same_policy_twice_is_no_difference() -> None:
    """Whatever is equal each time has p = 1; what is off by the same factor each time, p = 0."""
    same = [figure(jct) for jct in (100.0, 200.0)]
    (found,) = verdicts({"a": same, "b": same}, ["avg_jct"])
    assert (found.p, found.significant) == (1.0, False)
    assert "no significant difference" in sentence(found)


@pytest.mark.parametrize(
    ("first", "other", "why"),
    [
        ([figure(1.0)], [figure(2.0)], "two replications"),
        ([figure(1.0), figure(2.0)], [figure(1.0), figure(2.0, not_ended=3)], "jobs ended"),
        ([figure(1.0), figure(None)], [figure(1.0), figure(2.0)], "no figure"),
    ],
)
def test_nothing_is_said_where_nothing_can_be(first: list[Figures], other: list[Figures], why: str) -> None:
    """Too few pairs, jobs that ended under one policy alone, no figure."""
    (found,) = verdicts({"a": first, "b": other}, ["avg_jct"])
    assert (found.change, found.p, found.better) == (None, None, False)
    assert why in sentence(found)


def test_a_metric_of_which_more_is_better_is_read_so() -> None:
    """Goodput up is better."""
    first = [figure(1.0, goodput=each) for each in (0.4, 0.5, 0.6)]
    other = [figure(1.0, goodput=each) for each in (0.5, 0.62, 0.76)]
    (found,) = verdicts({"a": first, "b": other}, ["goodput"])
    assert found.better


def test_an_interval_of_one_value_is_none() -> None:
    """And its mean the value."""
    assert interval([3.0]).low is None
    assert interval([3.0]).mean == 3.0
