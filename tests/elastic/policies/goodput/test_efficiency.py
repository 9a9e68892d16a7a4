# SPDX-License-Identifier: Apache-2.0
"""What a sample is worth, and what a Job makes of workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.goodput.efficiency import efficiency, goodput_of
from kfp_volcano.elastic.policies.snapshot import ElasticJob, Measured

noise = st.floats(0, 1e6)
batch = st.floats(1, 1e6)


def job(*measured, **more):
    """A Job of two workers."""
    return ElasticJob(
        key="ml/digits",
        workers=2,
        running=2,
        min_workers=1,
        max_workers=8,
        sizes=(1, 2, 4, 8),
        gpus_per_worker=1,
        nodes=("a", "a"),
        measured=measured,
        **more,
    )


@given(noise, batch, batch)
def test_larger_batches_are_worth_no_more_by_the_sample(scale, one, other):
    """EFF(M0) = 1, above M0 it falls, and never as fast as the batch grows: a larger batch makes a better step."""
    small, large = sorted([one, other])
    worth = efficiency(large, small, scale)
    assert efficiency(small, small, scale) == 1.0
    assert 0 < worth <= 1 + 1e-12
    assert large * worth >= small * (1 - 1e-9)


@given(batch, batch, batch, noise.filter(lambda value: value > 0))
def test_worths_compose(first, second, third, scale):
    """From M0 to M1 and from there to M2 is from M0 to M2."""
    chained = efficiency(second, first, scale) * efficiency(third, second, scale)
    assert chained == pytest.approx(efficiency(third, first, scale))


def test_a_constant_batch_is_always_worth_the_same():
    """Whatever the noise scale: sizes are compared by throughput."""
    seen = [Measured(workers=k, throughput=50.0 * k, batch=256) for k in (1, 2)]
    for scale in (None, 10.0):
        goodput = goodput_of(job(*seen, batch=256, noise_scale=scale))
        assert goodput.batch(8) == 256
        assert goodput.at(4) == pytest.approx(goodput.throughput(4))


def test_a_batch_that_grows_with_the_workers_is_discounted_by_the_noise_scale():
    """Little noise: twice the batch is hardly worth more; much noise: it is worth nearly twice as much."""
    seen = [Measured(workers=k, throughput=50.0 * k, batch=128 * k) for k in (1, 2)]
    little, much = (goodput_of(job(*seen, batch=256, noise_scale=scale)) for scale in (10.0, 1e5))
    assert little.batch(8) == 1024
    assert little.at(4) / little.at(2) == pytest.approx(2 * (10 + 256) / (10 + 512), rel=0.01)
    assert much.at(4) / much.at(2) == pytest.approx(2, rel=0.02)


def test_a_batch_that_was_set_anew_does_not_grow_with_the_workers():
    """A Job that was begun again with another batch keeps its present one at every size."""
    seen = [Measured(workers=1, throughput=50.0, batch=512), Measured(workers=2, throughput=90.0, batch=256)]
    assert goodput_of(job(*seen, batch=256)).batch(8) == 256


def test_the_slowest_class_sets_the_pace():
    """And a class that was never seen is as fast as the best known one until it shows otherwise."""
    seen = [
        Measured(workers=2, throughput=100.0, batch=64, gpu_class="a100"),
        Measured(workers=4, throughput=200.0, batch=64, gpu_class="a100"),
        Measured(workers=2, throughput=40.0, batch=64, gpu_class="t4"),
    ]
    goodput = goodput_of(job(*seen))
    assert goodput.at(2, 1, ("a100", "t4")) == pytest.approx(40.0, rel=0.02)
    assert goodput.at(2, 1, ("h100",)) == goodput.at(2, 1, ("a100",))


def test_what_was_measured_on_unknown_nodes_counts_for_every_class():
    """Training does not know on what it runs: its former sizes are evidence for each class."""
    seen = [
        Measured(workers=1, throughput=60.0, batch=64),
        Measured(workers=2, throughput=100.0, batch=64, gpu_class="a100"),
    ]
    goodput = goodput_of(job(*seen))
    assert goodput.at(1, 1, ("a100",)) == pytest.approx(60.0, rel=0.05)
    assert goodput.at(2, 1, ("a100",)) == pytest.approx(100.0, rel=0.05)


def test_what_has_told_nothing_scales_perfectly():
    """Until it tells otherwise."""
    goodput = goodput_of(job())
    assert not goodput.measured
    assert goodput.at(8) / goodput.at(2) == pytest.approx(4)
