# SPDX-License-Identifier: Apache-2.0
"""How fast training was with each number of workers."""

from __future__ import annotations

import json

import pytest

from kfp_volcano.elastic.coordination.history import SIZES_KEPT
from kfp_volcano.elastic.runtime.progress import History
from kfp_volcano.elastic.runtime.speeds import Speeds
from kfp_volcano.schemas.records import Measured


def fed(speeds: Speeds, workers: int, *steps: float, summed: float = 0.0) -> Speeds:
    """So many steps of these times."""
    for step_s in steps:
        speeds.add(workers=workers, nodes=1, batch=100, step_s=step_s, summed_s=summed)
    return speeds


def test_each_size_is_told_by_the_middle_of_its_steps() -> None:
    """An evaluation between two steps changes nothing; the time of summing is told apart where there is any."""
    speeds = fed(Speeds(), 1, *[1.0] * 9, 60.0)
    fed(speeds, 2, *[0.6] * 6, summed=0.1)
    assert speeds.told == (
        Measured(workers=1, nodes=1, batch=100, throughput=100.0),
        Measured(workers=2, nodes=1, batch=100, throughput=pytest.approx(100 / 0.6), compute_s=pytest.approx(0.5)),
    )


def test_a_size_that_was_there_for_a_moment_is_not_told() -> None:
    """Its first steps are still finding their pace; what was known of it stays."""
    speeds = fed(Speeds(), 2, *[0.5] * 10)
    fed(speeds, 4, 9.0, 9.0)
    assert [each.workers for each in speeds.told] == [2]
    fed(speeds, 2, 7.0, 7.0)
    assert speeds.told == (Measured(workers=2, nodes=1, batch=100, throughput=200.0, compute_s=0.5),)
    fed(speeds, 2, *[1.0] * 10)
    assert [each.throughput for each in speeds.told] == [100.0]


def test_it_is_handed_over_as_it_is() -> None:
    """A newcomer tells the same, and goes on from there."""
    speeds = fed(fed(Speeds(), 1, *[1.0] * 9), 2, *[0.5] * 9)
    newcomer = Speeds()
    newcomer.load_state_dict(json.loads(json.dumps(speeds.state_dict())))
    assert newcomer.told == speeds.told
    assert fed(newcomer, 3, *[0.4] * 9).told == fed(speeds, 3, *[0.4] * 9).told


def test_it_does_not_grow_without_end() -> None:
    """The latest sizes are kept."""
    speeds = Speeds()
    for workers in range(1, 40):
        fed(speeds, workers, *[1.0] * 9)
    assert [each.workers for each in speeds.told] == list(range(40 - SIZES_KEPT, 40))


def test_only_steps_that_follow_one_of_the_same_workers_count() -> None:
    """Neither the pause of a change, nor a step done again, nor an epoch's short last batch is a step's time."""
    history = History()
    at = 0.0
    for step in range(40):
        at += 5.0 if step == 20 else 3.0 if step == 30 else 1.0
        if step == 30:
            history.discard()
        batch = None if step % 10 == 9 else 64
        history.commit(step=step + 1, samples=64, workers=2 if step < 20 else 4, at=at, batch=batch)
    assert [(each.workers, each.throughput) for each in history.measured] == [(2, 64.0), (4, 64.0)]
