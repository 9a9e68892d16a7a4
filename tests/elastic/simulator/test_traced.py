# SPDX-License-Identifier: Apache-2.0
"""Work of which only a duration is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.simulator.traced import Scaling, Traced
from kfp_volcano.elastic.simulator.work import Placement

SCALINGS = st.one_of(
    st.builds(Scaling, serial=st.floats(0, 1), spread=st.floats(0.1, 1)),
    st.lists(
        st.tuples(st.integers(1, 64), st.floats(0.1, 1e4)), min_size=1, max_size=5, unique_by=lambda each: each[0]
    ).map(lambda points: Scaling(points=tuple(sorted(points)))),
)


@given(duration=st.floats(1, 1e7), gpus=st.integers(1, 64), scaling=SCALINGS)
def test_on_its_own_gpus_it_takes_its_own_time(duration, gpus, scaling):
    """Whatever is assumed of other sizes."""
    work = Traced(duration_s=duration, gpus=gpus, scaling=scaling)
    assert work.alone_s(gpus) == pytest.approx(duration)
    training = work.begin()
    assert training.advance(Placement((gpus,)), 2 * duration) == pytest.approx(duration)
    assert training.done == 1.0


@given(
    scaling=SCALINGS,
    gpus=st.integers(1, 16),
    pieces=st.lists(st.tuples(st.integers(0, 32), st.floats(0, 1e3)), max_size=8),
)
def test_however_it_is_cut_up_its_work_is_the_same(scaling, gpus, pieces):
    """What is done and what is left add up; on no GPUs nothing is done."""
    work = Traced(duration_s=5e3, gpus=gpus, scaling=scaling, node_gpus=64)
    training, done_s = work.begin(), 0.0
    for size, seconds in pieces:
        placement = Placement((size,) if size else ())
        took = training.advance(placement, seconds)
        assert 0 <= took <= seconds
        done_s += took * work.speed(placement)
    left = training.left(Placement((gpus,)))
    assert done_s + left == pytest.approx(5e3, rel=1e-6)
    assert training.done == pytest.approx(done_s / 5e3, abs=1e-6)
    assert math.isinf(training.left(Placement(()))) or left == 0


@pytest.mark.parametrize(
    ("placement", "speed"),
    [
        (Placement((8,)), 1.0),
        (Placement((4, 4)), 0.5),
        (Placement((4,)), 0.5),
        (Placement((8, 8)), 2.0),
        (Placement((8,), ("t4",)), 0.25),
        (Placement((8, 8), ("a100", "t4")), 0.5),
        (Placement(()), 0.0),
    ],
)
def test_where_it_is_matters(placement, speed):
    """More nodes than it takes slow it down, and so does the slowest GPU."""
    scaling = Scaling(spread=0.5, classes={"t4": 0.25})
    assert Traced(duration_s=100, gpus=8, scaling=scaling, node_gpus=8).speed(placement) == pytest.approx(speed)


def test_what_it_measured_is_told_by_workers():
    """In samples of its batch, at each size that it had."""
    training = Traced(duration_s=100, gpus=8, gpus_per_worker=4, batch=32).begin()
    training.advance(Placement((8,)), 10)
    training.advance(Placement((8, 8)), 10)
    assert [(each.workers, each.nodes, each.throughput) for each in training.measured] == [(2, 1, 32.0), (4, 2, 64.0)]


def test_part_of_it_may_be_done_before():
    """A job that is under way as a scenario begins."""
    training = Traced(duration_s=100, gpus=1, done=0.25).begin()
    assert (training.done, training.left(Placement((1,)))) == (0.25, 75.0)
