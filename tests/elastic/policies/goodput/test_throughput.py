# SPDX-License-Identifier: Apache-2.0
"""What is made of observed throughput: the model, its fit, and what is believed of sizes never seen."""

from __future__ import annotations

import csv
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.goodput.throughput import StepTime, fit, observed
from kfp_volcano.elastic.policies.snapshot import Measured

ROOT = Path(__file__).resolve().parents[4]
PROFILES = Path(os.environ.get("KFP_VOLCANO_SHARED", ROOT.parent / "shared"), "data/pollux-osdi21/simulator/traces")


def measured(model, *, workers, nodes=1, batch=256, told=False):
    """What a Job would measure whose steps take what a model says."""
    compute = model.base_s + model.sample_s * batch / workers if told else None
    rate = model.throughput(workers, nodes, batch)
    return Measured(workers=workers, nodes=nodes, batch=batch, throughput=rate, compute_s=compute)


def profile(name):
    """A profile of the Pollux artifact: every placement at every local batch that was measured."""
    with (PROFILES / name / "placements.csv").open() as lines:
        for row in csv.DictReader(lines):
            placement = [int(digit) for digit in row["placement"]]
            workers, step_s = sum(placement), float(row["step_time"])
            batch = int(row["local_bsz"]) * workers
            yield Measured(
                workers=workers,
                nodes=len(placement),
                batch=batch,
                throughput=batch / step_s,
                compute_s=step_s - float(row["sync_time"]),
            )


def mean_error(model, points):
    """Of a step's time, relative."""
    errors = [
        abs(model.step_s(each.workers, each.nodes, each.batch) * each.throughput / each.batch - 1) for each in points
    ]
    return sum(errors) / len(errors)


@pytest.mark.parametrize("name", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"])
def test_the_profiles_of_pollux_are_fitted_within_a_tenth(name):
    """As the paper says of its model (section 5.1): at most 10 % error on average, for each of its applications."""
    if not PROFILES.is_dir():
        reason = f"the profiles of Pollux are absent: {PROFILES} (set KFP_VOLCANO_SHARED)"
        pytest.skip(reason)
    points = list(profile(name))
    assert len(points) > 500
    assert mean_error(fit(observed(points)), points) <= 0.1


@pytest.mark.parametrize("name", ["cifar10", "deepspeech2", "imagenet"])
def test_half_a_profile_tells_the_other_half(name):
    """Fitted to 40 points of a profile, the model is off by at most a seventh on average on those it has not seen."""
    if not PROFILES.is_dir():
        reason = f"the profiles of Pollux are absent: {PROFILES} (set KFP_VOLCANO_SHARED)"
        pytest.skip(reason)
    points = list(profile(name))
    random.Random(0).shuffle(points)
    assert mean_error(fit(observed(points[:40])), points[40:]) <= 1 / 7


@pytest.mark.parametrize("told", [True, False])
def test_what_a_model_made_is_found_again(told):
    """Steps that take what a model says are predicted at sizes in between and beyond, overlapping or not."""
    for model in (
        StepTime(0.02, 0.001, 0.02, 0.004, 0.05, 0.006),
        StepTime(0.05, 0.002, 0.04, 0.001, 0.08, 0.002, overlap=2.5),
    ):
        seen = [measured(model, workers=k, nodes=n, told=told) for k in (1, 2, 4, 8) for n in (1, 2) if n <= k]
        found = fit(observed(seen))
        for workers in (3, 6, 12):
            expected = model.step_s(workers, 2, 256)
            assert found.step_s(workers, 2, 256) == pytest.approx(expected, rel=0.1)


def test_one_size_is_thought_to_scale_perfectly():
    """Until shown otherwise: twice the workers, twice the throughput."""
    model = fit(observed([Measured(workers=2, throughput=100.0, batch=64)]))
    assert model.throughput(4, 1, 64) == pytest.approx(200.0, rel=0.02)
    assert model.throughput(4, 2, 64) == pytest.approx(200.0, rel=0.02)


def test_what_is_shown_is_believed():
    """A Job that did not get faster with twice the workers is not expected to with four times as many."""
    flat = [Measured(workers=2, throughput=100.0, batch=64), Measured(workers=4, throughput=104.0, batch=64)]
    model = fit(observed(flat))
    assert model.throughput(8, 1, 64) < 115.0


def test_time_told_apart_is_not_taken_to_scale():
    """With the time of computing known, the rest of a step stays however many workers there are."""
    model = fit(observed([Measured(workers=2, throughput=100.0, batch=100, compute_s=0.5)]))
    assert model.step_s(4, 1, 100) == pytest.approx(0.75, rel=0.05)


def test_several_nodes_never_seen_cost_more_than_one():
    """Pollux's prior."""
    seen = [Measured(workers=k, throughput=k * 20.0, batch=100, compute_s=4.0 / k) for k in (2, 4)]
    model = fit(observed(seen))
    assert model.sync_s(4, 2) == pytest.approx(1.1 * model.sync_s(4, 1))
    assert model.sync_s(4, 1) > 0


points = st.builds(
    Measured,
    workers=st.integers(1, 32),
    nodes=st.integers(1, 3),
    batch=st.sampled_from([32, 256, 1024]),
    throughput=st.floats(0.01, 1e6),
    compute_s=st.none() | st.floats(1e-4, 10),
)


@given(st.lists(points, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_fit_depends_on_what_was_seen_alone(seen, shuffle):
    """Whatever the order, however absurd the values: the same model, with times that are finite and positive."""
    again = list(seen)
    shuffle.shuffle(again)
    fit.cache_clear()
    model = fit(observed(seen))
    fit.cache_clear()
    assert fit(observed(again)) == model
    for workers in (1, 2, 7, 64):
        for nodes in (1, 2):
            assert 0 < model.step_s(workers, nodes, 256) < float("inf")


@given(st.lists(points, min_size=1, max_size=6))
def test_more_workers_never_compute_for_longer(seen):
    """Whatever was seen, one worker's share of the time to compute falls with their number."""
    model = fit(observed(seen))
    steps = [model.base_s + model.sample_s * 256 / workers for workers in range(1, 20)]
    assert steps == sorted(steps, reverse=True)


def test_a_reading_that_trembles_is_the_same_observation():
    """By less than rounding, the model, and so the decision, stays the same."""
    assert observed([Measured(workers=2, throughput=100.0, batch=64)]) == observed(
        [Measured(workers=2, throughput=100.1, batch=64)]
    )


def test_nothing_observed_is_no_model():
    """And readings that say nothing are no observations."""
    assert observed([Measured(workers=2, throughput=0.0, batch=64)]) == ()
    with pytest.raises(ValueError, match="nothing"):
        fit(())


def test_an_overlap_is_found():
    """Of steps that hide their sums behind computing, more than half of the overlap shows."""
    model = StepTime(0.05, 0.002, 0.04, 0.01, 0.08, 0.02, overlap=4.0)
    sizes = [(k, n, batch) for k in (1, 2, 4, 8, 16) for n in (1, 2) for batch in (64, 256, 1024) if n <= k]
    found = fit(observed(measured(model, workers=k, nodes=n, batch=batch, told=True) for k, n, batch in sizes))
    assert 2.5 <= found.overlap <= 6.0
    assert found.step_s(12, 2, 512) == pytest.approx(model.step_s(12, 2, 512), rel=0.05)
