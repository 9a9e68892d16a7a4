# SPDX-License-Identifier: Apache-2.0
"""Growth has to pay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.guards.benefit import savings_s
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import Measured, Resized
from wishes import JOB, NOW, decided, queue


def measured(**throughputs):
    """Throughput by workers: w4=100.0 and so on."""
    return tuple(Measured(workers=int(key[1:]), throughput=each, batch=64) for key, each in throughputs.items())


def paused(*seconds):
    """Resizes with such pauses."""
    return tuple(
        Resized(at=NOW - 5000 - at, from_workers=2, to_workers=4, pause_s=each) for at, each in enumerate(seconds)
    )


@pytest.mark.parametrize(
    ("change", "benefit", "expected"),
    [
        ({}, 1.0, 8),  # nothing is known of what is left: hope
        ({"remaining_s": 100.0}, 1.0, 8),  # saves 50 s, costs about 1 s
        ({"remaining_s": 100.0, "resizes": paused(40.0, 58.0)}, 1.0, 8),
        ({"remaining_s": 100.0, "resizes": paused(40.0, 60.0)}, 1.0, 4),
        ({"remaining_s": 100.0, "resizes": paused(40.0, 60.0)}, 0.0, 8),
        ({"remaining_s": 100.0, "resizes": paused(20.0)}, 3.0, 4),
        ({"remaining_s": 1000.0, "measured": measured(w4=100.0, w8=100.0)}, 1.0, 4),  # eight are no faster
        ({"remaining_s": 1000.0, "measured": measured(w4=100.0, w8=90.0)}, 1.0, 4),
        ({"remaining_s": 1000.0, "measured": measured(w4=100.0, w8=101.0)}, 1.0, 8),  # saves 10 s
        ({"remaining_samples": 1000, "measured": measured(w4=100.0, w8=101.0)}, 1.0, 4),  # saves 0.1 s of 10 s
        ({"remaining_samples": 1000, "measured": measured(w4=100.0)}, 1.0, 8),
        ({"remaining_samples": 1000}, 1.0, 8),  # at an unknown pace
    ],
)
def test_a_size_must_save_more_than_its_pause(change, benefit, expected):
    """Of the work that is left, by what was measured, or by hope."""
    settings = GuardSettings(benefit=benefit)
    [(size, reason)] = decided({JOB.key: 8}, queue(replace(JOB, **change)), settings=settings).values()
    assert (size, reason) == (expected, Reason.QUEUE_IDLE if expected == 8 else Reason.NO_BENEFIT)


def test_only_the_sizes_that_do_not_pay_are_ruled_out():
    """Six workers were no faster than four; eight were."""
    job = replace(JOB, sizes=(2, 4, 6, 8), remaining_s=1000.0, measured=measured(w4=100.0, w6=100.0, w8=150.0))
    assert decided({JOB.key: 6}, queue(job)) == {JOB.key: (4, Reason.NO_BENEFIT)}
    assert decided({JOB.key: 8}, queue(job)) == {JOB.key: (8, Reason.QUEUE_IDLE)}


def test_shrinking_need_not_pay():
    """Whatever it costs, a gang comes first."""
    job = replace(JOB, remaining_s=1000.0, resizes=paused(5000.0))
    assert decided({JOB.key: 2}, queue(job), urgent=True) == {JOB.key: (2, Reason.QUEUE_IDLE)}


@given(st.floats(1, 1e6), st.integers(1, 8), st.integers(1, 16))
def test_hope_is_throughput_in_proportion_to_workers(left, present, more):
    """Twice the workers, half the time."""
    job = replace(JOB, workers=present, remaining_s=left)
    saved = savings_s(job, [present + more])[present + more]
    assert saved == pytest.approx(left - left * present / (present + more))
