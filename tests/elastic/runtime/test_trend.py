# SPDX-License-Identifier: Apache-2.0
"""Where the loss goes, and when that counts as running away."""

from __future__ import annotations

import json
import math
import random

import pytest

from kfp_volcano.elastic.policies.divergence import diverging
from kfp_volcano.elastic.runtime.trend import Trend
from kfp_volcano.schemas.records import LossTrend, dump, parse


def fed(losses: list[float], trend: Trend | None = None) -> Trend:
    """A trend after these losses."""
    trend = trend or Trend()
    for loss in losses:
        trend.add(loss)
    return trend


def falling(steps: int = 600, seed: int = 0) -> list[float]:
    """As losses fall: quickly, then slowly, with noise."""
    draw = random.Random(seed)
    return [0.2 + 2.0 * math.exp(-step / 100) + draw.gauss(0, 0.05) for step in range(steps)]


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_falls_and_rests_does_not_diverge(seed: int) -> None:
    """At no step, whatever the noise."""
    trend = Trend()
    for loss in falling(2000, seed):
        trend.add(loss)
        assert not diverging(trend.told)


def test_a_loss_that_climbs_diverges_and_one_that_comes_back_does_not() -> None:
    """Within some hundred steps; a single bad batch is forgiven."""
    trend = fed(falling())
    assert not diverging(fed([5.0], trend).told)
    fed([0.2] * 100, trend)
    fed([0.2 + 0.02 * step for step in range(150)], trend)
    assert diverging(trend.told)
    fed([0.2] * 300, trend)
    assert not diverging(trend.told)


def test_a_loss_that_is_not_a_number_diverges_at_once() -> None:
    """Also before a trend is known; and what was known before survives it."""
    assert diverging(fed([math.nan]).told)
    trend = fed([*falling(), math.inf])
    assert diverging(trend.told)
    assert not diverging(fed([0.2], trend).told)


def test_a_few_steps_say_nothing() -> None:
    """Neither that it diverges nor that it does not: no trend is told."""
    assert fed([1.0] * 10).told is None
    assert not diverging(None)


def test_it_is_handed_over_and_travels_as_it_is() -> None:
    """In a newcomer's state and in the annotation."""
    trend, newcomer = fed(falling()), Trend()
    newcomer.load_state_dict(json.loads(json.dumps(trend.state_dict())))
    assert newcomer.told == trend.told
    told = fed([math.nan], trend).told
    assert told is not None
    assert parse(LossTrend, dump(told)) == told
