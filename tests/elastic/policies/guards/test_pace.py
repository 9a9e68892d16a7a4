# SPDX-License-Identifier: Apache-2.0
"""How often a Job may be resized."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfp_volcano.elastic.policies.guards.guarded import next_change
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import Resized
from wishes import JOB, NOW, decided, queue

HOURLY = GuardSettings(resizes_per_hour=3)


def resized(*ago, **more):
    """Resizes that ended so long ago."""
    return tuple(Resized(at=NOW - each, from_workers=2, to_workers=4, **more) for each in sorted(ago, reverse=True))


@pytest.mark.parametrize(
    ("ago", "wanted", "urgent", "expected"),
    [
        ((3000, 2000), 8, False, (8, Reason.QUEUE_IDLE)),
        ((3000, 2000, 1000), 8, False, (4, Reason.BUDGET)),
        ((3000, 2000, 1000), 2, False, (4, Reason.BUDGET)),
        ((3000, 2000, 1000), 2, True, (2, Reason.QUEUE_IDLE)),
        ((3600, 2000, 1000), 8, False, (8, Reason.QUEUE_IDLE)),
    ],
)
def test_after_so_many_resizes_within_an_hour_only_what_is_urgent_goes_on(ago, wanted, urgent, expected):
    """The hour goes along; the oldest of them drops out."""
    job = replace(JOB, resizes=resized(*ago))
    assert decided({JOB.key: wanted}, queue(job), urgent=urgent, settings=HOURLY) == {JOB.key: expected}


def test_the_budget_says_when_it_lets_go():
    """When the oldest of the last three is an hour old."""
    snapshot = queue(replace(JOB, resizes=resized(3000, 2000, 1000, 500)))
    assert next_change(snapshot, HOURLY) == NOW - 2000 + 3600
    assert next_change(snapshot, GuardSettings(resizes_per_hour=None)) is None


def test_a_policy_may_set_a_longer_cooldown_but_no_shorter_one():
    """A Job's own holds at least."""
    job = replace(JOB, last_resize_at=NOW - 50, cooldown_s=60.0)
    for cooldown, expected in [(0.0, 10), (100.0, 50)]:
        settings = GuardSettings(cooldown_s=cooldown)
        assert decided({JOB.key: 8}, queue(job), settings=settings) == {JOB.key: (4, Reason.COOLDOWN)}
        assert next_change(queue(job), settings) == NOW + expected
