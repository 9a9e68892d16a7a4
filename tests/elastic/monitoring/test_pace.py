# SPDX-License-Identifier: Apache-2.0
"""A loss that slows down at a resize is told apart from one that levels off or trembles."""

from __future__ import annotations

import random

import pytest

from kfp_volcano.elastic.monitoring import Pace


def verdicts(fall_before, fall_after, *, noise=0.01, window=50, seed=0):
    """What is told of a loss that falls so much a step before a resize, and after it."""
    pace, chance, loss, told = Pace(ratio=0.25, window=window), random.Random(seed), 10.0, []
    for step in range(4 * window):
        loss -= fall_before if step < 2 * window else fall_after
        workers = 2 if step < 2 * window else 4
        told.append(pace.add(step=step, samples=8 * step, loss=loss + chance.gauss(0, noise), workers=workers))
    return [each for each in told if each]


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_stands_still_after_a_resize_is_told_once(seed):
    """With where, from and to what, and how fast it was and is."""
    (slower,) = verdicts(0.01, 0.0, seed=seed)
    assert (slower.step, slower.from_workers, slower.to_workers) == (100, 2, 4)
    assert slower.before == pytest.approx(0.01 / 8 * 1000, rel=0.2)
    assert slower.after < slower.before / 4


@pytest.mark.parametrize(("before", "after", "noise"), [(0.01, 0.005, 0.01), (0.01, 0.01, 0.01), (0.001, 0.0, 0.5)])
@pytest.mark.parametrize("seed", range(5))
def test_levelling_off_and_noise_are_no_slow_down(before, after, noise, seed):
    """Half the pace is usual, and what noise hides is not known."""
    assert verdicts(before, after, noise=noise, seed=seed) == []
