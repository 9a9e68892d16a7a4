# SPDX-License-Identifier: Apache-2.0
"""Laws of stabilisation, rates and calculation, on random histories: what holds beside every table."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.hpa.behavior import (
    Bounds,
    down_limit,
    limited,
    limited_plainly,
    stabilised,
    stabilised_plainly,
    up_limit,
)
from kfp_volcano.elastic.policies.hpa.history import History, ScaleEvent, change_within, stored
from kfp_volcano.elastic.policies.hpa.numbers import INT32_MAX, INT64_MAX, ceil32, quotient, ratio
from kfp_volcano.elastic.policies.hpa.pods import MetricsError, Pod, PodSample
from kfp_volcano.elastic.policies.hpa.replicas import Calculator, Settings, Tolerance, external_total
from kfp_volcano.elastic.policies.memory import Recommendation, compact, noted
from kfp_volcano.schemas.hpa import Behavior, ScalingPolicy, ScalingRules

NOW = 1_000_000.0
SETTINGS = Settings()
sizes = st.integers(0, 1000)
windows = st.integers(0, 3600)
policies = st.builds(
    ScalingPolicy,
    type=st.sampled_from(["Pods", "Percent"]),
    value=st.integers(1, 200),
    period_seconds=st.integers(1, 1800),
)
rules = st.builds(
    ScalingRules,
    stabilization_window_seconds=windows,
    select_policy=st.sampled_from(["Max", "Min", "Disabled"]),
    policies=st.lists(policies, min_size=1, max_size=3).map(tuple),
)
behaviors = st.builds(Behavior, scale_up=rules, scale_down=rules)
logs = st.lists(st.builds(Recommendation, at=st.floats(NOW - 4000, NOW), workers=sizes), max_size=8).map(tuple)
events = st.lists(st.builds(ScaleEvent, st.integers(0, 50), st.floats(NOW - 2000, NOW)), max_size=6).map(tuple)
histories = st.builds(History, recommendations=logs, ups=events, downs=events)


@given(sizes, sizes, behaviors, logs)
def test_hpa_a_stabilised_size_is_never_beyond_what_was_recommended(current, wanted, behavior, log):
    """It lies between the present size and the recommendation, so that windows only ever hold back."""
    found = stabilised(current, wanted, behavior, log, NOW, down_window_s=300).replicas
    assert min(current, wanted) <= found <= max(current, wanted)


@given(sizes, sizes, behaviors, logs)
def test_hpa_a_stabilised_size_moves_only_where_all_of_the_window_agrees(current, wanted, behavior, log):
    """Up to the least of the up window, down to the most of the down window."""
    found = stabilised(current, wanted, behavior, log, NOW, down_window_s=300).replicas
    up, down = (NOW - each.stabilization_window_seconds for each in (behavior.scale_up, behavior.scale_down))
    if found > current:
        assert all(each.workers >= found for each in log if each.at > up)
    if found < current:
        assert all(each.workers <= found for each in log if each.at > down)


@given(sizes, sizes, behaviors, logs, sizes, st.floats(0, 4000))
def test_hpa_a_compact_log_says_the_same_at_any_later_time(current, wanted, behavior, log, later, after):
    """Dropping what is no extreme of its window changes no decision, now or later."""
    at = NOW + after

    def size(kept):
        return stabilised(current, later, behavior, kept, at, down_window_s=300).replicas

    whole = (*log, Recommendation(NOW, wanted))
    assert size(compact(whole)) == size(whole)
    assert (
        stabilised_plainly(later, compact(whole), at, down_window_s=300)[0]
        == (stabilised_plainly(later, whole, at, down_window_s=300)[0])
    )


@given(sizes, st.lists(st.tuples(st.floats(0.001, 30), sizes), min_size=1, max_size=30))
def test_hpa_remembering_turn_by_turn_holds_a_size_like_remembering_all(present, steps):
    """Recommendations that are noted as they come are as good as the whole list, and begin with the present size."""
    at, log, whole = NOW, (), [Recommendation(NOW, present)]
    for gap, wanted in steps:
        log = noted(log, present, wanted, at)
        whole.append(Recommendation(at, wanted))
        at += gap
        for window in (0, 60, 300):
            seen = {each.workers for each in whole if each.at > at - window}
            kept = {each.workers for each in log if each.at > at - window}
            assert (min(seen, default=None), max(seen, default=None)) == (
                min(kept, default=None),
                max(kept, default=None),
            )
    assert len(log) <= 2 * len({each.workers for each in whole})


@given(sizes, sizes, st.integers(0, 500), st.integers(0, 500), behaviors, histories)
def test_hpa_a_limited_size_is_between_the_present_one_and_the_one_wanted(
    current, wanted, below, above, behavior, history
):
    """Within range, rates never turn a change around or lead beyond it."""
    bounds = Bounds(max(0, current - below), current + above)
    found = limited(current, wanted, bounds, behavior, history, NOW)
    assert min(current, wanted) <= found.replicas <= max(current, wanted)
    assert bounds.least <= found.replicas <= bounds.most
    assert (found.reason == "DesiredWithinRange") == (found.replicas == wanted)


@given(st.integers(1, 500), st.integers(1, 50), st.integers(15, 600), st.lists(st.floats(0.5, 120), max_size=40))
def test_hpa_no_more_pods_come_within_a_period_than_the_policy_says(current, most, period, gaps):
    """However often it is asked, and whatever it would like."""
    one = ScalingRules(
        stabilization_window_seconds=0, policies=(ScalingPolicy(type="Pods", value=most, period_seconds=period),)
    )
    behavior, history, at, size = Behavior(scale_up=one, scale_down=one), History(), NOW, current
    changes = []
    for gap in gaps:
        at += gap
        new = limited(size, INT32_MAX, Bounds(1, INT32_MAX), behavior, history, at).replicas
        if new != size:
            history = stored(history, behavior, size, new, at)
            changes.append((at, new - size))
        size = new
        assert sum(change for when, change in changes if when > at - period) <= most


@given(st.integers(1, 500), behaviors, st.lists(st.tuples(st.floats(0.5, 120), sizes), max_size=20))
def test_hpa_events_kept_in_used_slots_count_like_a_whole_history(current, behavior, steps):
    """Incremental and whole agree for every period that a policy has."""
    history, whole, at, size = History(), {"up": [], "down": []}, NOW, current
    for gap, new in steps:
        at += gap
        if new != size:
            history = stored(history, behavior, size, new, at)
            whole["up" if new > size else "down"].append(ScaleEvent(abs(new - size), at))
        size = new
        for kept, all_, direction in (
            (history.ups, whole["up"], behavior.scale_up),
            (history.downs, whole["down"], behavior.scale_down),
        ):
            for policy in direction.policies:
                assert change_within(kept, policy.period_seconds, at) == (
                    change_within(tuple(all_), policy.period_seconds, at)
                )


@given(sizes, rules, histories)
def test_hpa_min_is_never_faster_than_max_and_disabled_is_no_change(current, one, history):
    """Of the same policies the one that allows least, the one that allows most, and none."""

    def limits(select):
        those = ScalingRules(select_policy=select, policies=one.policies)
        return up_limit(current, history, those, NOW), down_limit(current, history, those, NOW)

    (up_min, down_min), (up_max, down_max) = limits("Min"), limits("Max")
    assert up_min <= up_max
    assert down_min >= down_max
    assert limits("Disabled") == (current, current)


def test_hpa_the_slowest_policy_counts_with_min():
    """Of 2 pods and 50 %: from one to two, for the percentage is rounded up; from five to three, for it is cut off."""
    those = ScalingRules(
        select_policy="Min",
        policies=(
            ScalingPolicy(type="Pods", value=2, period_seconds=60),
            ScalingPolicy(type="Percent", value=50, period_seconds=60),
        ),
    )
    assert up_limit(1, History(), those, NOW) == 2
    assert down_limit(5, History(), those, NOW) == 3


@given(sizes, sizes, st.integers(0, 100), st.integers(0, 100))
def test_hpa_without_behaviours_a_size_at_most_doubles_or_becomes_four(current, wanted, below, above):
    """And stays in its range, where it is in it."""
    bounds = Bounds(max(0, current - below), current + above)
    found = limited_plainly(current, wanted, bounds).replicas
    assert found <= max(2 * current, 4)
    assert bounds.least <= found <= bounds.most


def ready(count):
    return [Pod(name=str(index), started_at=0.0) for index in range(count)]


def calculator(count, tolerance=Tolerance(0.1, 0.1)):  # noqa: B008  # a value that never changes
    return Calculator(current=count, status=count, pods=ready(count), at=NOW, tolerance=tolerance, settings=SETTINGS)


@given(st.integers(1, 200), st.integers(1, 10**6), st.floats(0.5, 1.5), st.floats(0, 0.3), st.floats(0, 0.3))
def test_hpa_within_its_tolerance_no_metric_changes_a_size(count, target, share, down, up):
    """Each way its own, both ends included."""
    tolerance = Tolerance(down, up)
    usage = int(target * share)
    assume(usage > 0)
    each = {str(index): PodSample(usage, NOW) for index in range(count)}
    found = calculator(count, tolerance).by_usage(target, each)
    assert (found.replicas == count) >= tolerance.holds(usage / target)
    if not tolerance.holds(usage / target):
        assert found.replicas == math.ceil(usage / target * count)


@given(st.integers(1, 50), st.integers(1, 1000), st.integers(0, 3000), st.integers(0, 20), st.integers(0, 20))
def test_hpa_pods_of_which_nothing_is_known_only_damp_a_change(count, target, usage, missing, unready):
    """They never turn it around, and never make it larger than the known ones alone."""
    each = {str(index): PodSample(usage, NOW) for index in range(count)}
    known = calculator(count).by_usage(target, each).replicas
    pods = [
        *ready(count),
        *(Pod(name=f"m{i}") for i in range(missing)),
        *(Pod(name=f"u{i}", phase="Pending") for i in range(unready)),
    ]
    current = len(pods)
    found = Calculator(
        current=current, status=current, pods=pods, at=NOW, tolerance=Tolerance(0.1, 0.1), settings=SETTINGS
    ).by_usage(target, each)
    if found.usage_ratio > 1:
        assert found.replicas >= current or not (missing or unready)
        assert found.replicas <= max(current, math.ceil(found.usage_ratio * current))
    if found.usage_ratio < 1 and missing:
        assert found.replicas <= current
        assert found.replicas >= min(known, current)


@given(st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1), st.integers(0, 1000))
def test_hpa_counts_fit_in_what_the_api_can_hold(usage, target, count):
    """Whatever a metric says, a number of replicas has 32 bits."""
    found = calculator(count)
    assert 0 <= found.by_average(target, usage).replicas <= INT32_MAX
    if count:
        assert 0 <= found.by_total(target, usage).replicas <= INT32_MAX


def test_hpa_arithmetic_is_that_of_go():
    """Division towards zero, floats without exceptions, and saturation."""
    assert (quotient(7, 2), quotient(-7, 2), quotient(7, -2), quotient(-7, -2)) == (3, -3, -3, 3)
    assert (ratio(1, 0), ratio(-1, 0), ratio(3, 2)) == (math.inf, -math.inf, 1.5)
    assert math.isnan(ratio(0, 0))
    assert (ceil32(math.inf), ceil32(-math.inf), ceil32(math.nan), ceil32(2.1)) == (INT32_MAX, -INT32_MAX - 1, 0, 3)
    assert external_total([INT64_MAX, 5, -3]) == INT64_MAX
    assert external_total([5, -3]) == 2


def test_hpa_an_external_metric_without_series_is_no_zero():
    """Nothing known is not nothing to do."""
    with pytest.raises(MetricsError):
        external_total([])


def test_hpa_a_percentage_of_growth_is_rounded_up_and_of_shrinking_towards_zero():
    """Or a small size would never grow."""
    tenth = ScalingRules(policies=(ScalingPolicy(type="Percent", value=10, period_seconds=60),))
    assert up_limit(1, History(), tenth, NOW) == 2
    assert down_limit(1, History(), tenth, NOW) == 0
    assert down_limit(19, History(), tenth, NOW) == 17
